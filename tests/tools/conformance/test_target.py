"""Sessions of the harness on services that redirect them."""

import pytest

from nnhal_tools.conformance.check import NotServiceSpecific
from nnhal_tools.conformance.device.target import Target
from tests.redirecting_server import redirecting
from tests.tools.conformance.selftest.proxy import Proxy


def test_session_is_where_the_service_redirects_it() -> None:
    with redirecting() as worker, redirecting(worker.target) as service, Target(service.target) as target:
        assert target.session == worker.target.encode()
        assert [request.accept_redirect for request in (*service.requests, *worker.requests)] == [True, False]


def test_new_sessions_ask_the_service_again() -> None:
    with redirecting() as worker, redirecting(worker.target) as service, Target(service.target) as target:
        service.redirect = ""
        with target.new_session() as other:
            assert other.session == service.target.encode()


def test_session_stays_if_the_address_of_the_redirect_does_not_answer() -> None:
    with redirecting() as gone:
        pass
    with redirecting(gone.target) as service, Target(service.target) as target:
        assert target.session == service.target.encode()
        assert [request.accept_redirect for request in service.requests] == [True, False]


def test_invalid_redirect_is_an_error() -> None:
    with redirecting("nowhere") as service, pytest.raises(NotServiceSpecific, match="invalid redirect"):
        Target(service.target)


def test_proxy_of_the_self_test_keeps_sessions() -> None:
    with redirecting() as worker, redirecting(worker.target) as service, Proxy(service.target) as proxy:
        with Target(proxy.address) as target:
            assert target.session == service.target.encode()
        assert worker.requests == []
