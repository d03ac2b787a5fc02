"""Sessions that each client opens, for tests of where a client ends up."""

from collections.abc import Awaitable, Callable

import pytest

import nnhal
import nnhal.aio

Session = Callable[[str], Awaitable[str]]
"""Connects to an address, and returns the address that opened the session."""


async def session_sync(target: str) -> str:
    """Open a session with the synchronous client."""
    with nnhal.connect(target) as device:
        return device._connection.session.decode()


async def session_async(target: str) -> str:
    """Open a session with the asyncio client."""
    async with nnhal.aio.connect(target) as device:
        return device._connection.session.decode()


both_clients = pytest.mark.parametrize("session", [session_sync, session_async])
"""Runs a test with each client. A fixture would need a conftest, which tests for other systems must not load."""
