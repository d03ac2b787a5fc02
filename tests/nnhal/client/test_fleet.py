"""Clients of a fleet, with both clients: they follow redirects between services, and go to others when one is gone."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from types import ModuleType

import pytest

import nnhal
import nnhal.aio
from nnhal.address import target_address
from nnhal.client.fleet import targets
from tests.concurrency import wait_until
from tests.nnhal.client.opened_session import Session, both_clients
from tests.redirecting_server import RedirectingServer, redirecting


@pytest.fixture
def servers() -> Iterator[list[RedirectingServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(redirecting()) for _ in range(3)]


def unused_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def flags(server: RedirectingServer) -> list[tuple[bool, bool]]:
    return [(request.accept_redirect, request.placed) for request in server.requests]


@both_clients
async def test_another_service_may_send_the_client_to_its_worker(
    session: Session,
    servers: list[RedirectingServer],
) -> None:
    first, second, worker = servers
    first.redirect, first.other_service, first.reason = second.target, True, "first: second is idle"
    second.redirect = worker.target
    assert await session(first.target) == worker.target
    assert (flags(first), flags(second), flags(worker)) == ([(True, False)], [(True, True)], [(False, False)])
    placements = [server.requests[0].placement for server in servers]
    assert placements == ["", first.reason, first.reason], "operators see at the worker why the client is there"


@both_clients
async def test_services_that_send_a_client_to_each_other(
    session: Session,
    servers: list[RedirectingServer],
) -> None:
    first, second, _ = servers
    first.redirect, second.redirect = second.target, first.target
    first.other_service = second.other_service = True
    assert await session(first.target) == first.target
    assert len(first.requests) + len(second.requests) == 3


@both_clients
async def test_another_service_that_is_gone(
    session: Session,
    servers: list[RedirectingServer],
) -> None:
    first = servers[0]
    first.redirect, first.other_service = unused_address(), True
    assert await session(first.target) == first.target
    assert flags(first) == [(True, False), (False, False)]


@both_clients
async def test_scheme_of_addresses_without_tls(
    session: Session,
    servers: list[RedirectingServer],
) -> None:
    assert await session(f"grpc://{servers[0].target}/") == servers[0].target


@pytest.mark.parametrize(
    ("target", "port"), [("ray://head", 6379), ("ray://head:7", 7), ("ray://[::1]:7/", 7), ("grpcs://head:8/", 8)]
)
def test_addresses_in_targets(target: str, port: int) -> None:
    assert target_address(target).port == port


@both_clients
async def test_cluster_that_is_not_there(session: Session) -> None:
    pytest.importorskip("ray", reason="needs nnhal[fleet]")
    with pytest.raises(nnhal.DeadObjectError, match="cannot be reached"):
        await session(f"ray://{unused_address()}")


@both_clients
async def test_cluster_without_ray(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setitem(sys.modules, "ray._raylet", None)
    with pytest.raises(ImportError, match=r"nnhal\[fleet\]"):
        await session("ray://127.0.0.1:1")


@both_clients
async def test_cluster_with_a_release_of_ray_that_has_changed(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = ModuleType("ray")
    changed.__version__ = "9.9"  # type: ignore[attr-defined]
    changed.__path__ = []
    monkeypatch.setitem(sys.modules, "ray", changed)
    monkeypatch.setitem(sys.modules, "ray._raylet", ModuleType("ray._raylet"))
    with pytest.raises(ImportError, match=r"^Ray 9.9 is installed, but .*GcsClient"):
        await session("ray://127.0.0.1:1")


# ---- Members that come and go ----------------------------------------------------------------------------

Lose = Callable[[Callable[[], tuple[str, ...]]], None]
"""Stop the service of a client. It gets a function that returns the members that the client knows."""
Moved = Callable[[str, Lose], Awaitable[str]]
"""Connects to an address, loses the service, makes a call, and returns the address that then opened the session."""


async def moved_sync(target: str, lose: Lose) -> str:
    """Move with the synchronous client."""
    with nnhal.connect(target, timeout=60) as device:
        lose(lambda: device._connection.members)
        with pytest.raises(nnhal.HalError):  # the servers open sessions, and can do nothing else
            device.fence()
        return device._connection.session.decode()


async def moved_async(target: str, lose: Lose) -> str:
    """Move with the asyncio client."""
    async with nnhal.aio.connect(target, timeout=60) as device:
        await asyncio.to_thread(lose, lambda: device._connection.members)
        with pytest.raises(nnhal.HalError):
            await device.fence()
        return device._connection.session.decode()


both_movers = pytest.mark.parametrize("moved", [moved_sync, moved_async])


@both_movers
async def test_members_that_came_after_the_session_was_opened(moved: Moved, servers: list[RedirectingServer]) -> None:
    first, second, _ = servers
    first.member, first.members = "first", [unused_address()]

    def lose(members: Callable[[], tuple[str, ...]]) -> None:
        assert wait_until(lambda: bool(first.streams))
        first.tell(second.target)
        assert wait_until(lambda: members() == (second.target,))
        first.stop()

    assert await moved(first.target, lose) == second.target
    assert [request.watch_members for request in (*first.requests, *second.requests)] == [True, True]


@both_movers
async def test_cluster_is_asked_again_when_no_member_answers(
    moved: Moved, servers: list[RedirectingServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = servers
    found = [[first.target, second.target], [second.target, third.target]]
    monkeypatch.setattr(targets, "read_members", lambda target, timeout: found.pop(0))

    def lose(members: Callable[[], tuple[str, ...]]) -> None:
        second.stop()
        first.stop()

    assert await moved("ray://head", lose) == third.target
    assert not found
