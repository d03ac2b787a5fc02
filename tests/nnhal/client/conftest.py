"""Fixtures of the tests of both clients."""

import pytest

from tests.nnhal.client.opened_session import Session, session_async, session_sync


@pytest.fixture(params=[session_sync, session_async])
def session(request: pytest.FixtureRequest) -> Session:
    """Return a function that connects with each client, and returns the address that opened the session."""
    function: Session = request.param
    return function
