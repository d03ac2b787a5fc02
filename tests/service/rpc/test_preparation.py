"""Preparations over the contract that end early: at a deadline, at the limit, with their call or with their session."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from nnhal.v1 import enums_pb2, error_pb2
from nnhal_driver.backends.api import CompiledSubgraph, CompileOptions, SubgraphView
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.concurrency import wait_until
from tests.driver.blocking_backend import TIMEOUT_S
from tests.end_to_end.support.preparation_events import kinds, read_events
from tests.end_to_end.support.raw_client import RawSession, add_chain, error_detail, open_raw_session, prepare_request


@dataclass
class BlockedService:
    """Service whose compilations block.

    Attributes:
        server: the service.
        compiling: counts the compilations that have begun.
        go: set by the test to release them.
        calls: preparations that block; a call that nothing refers to is cancelled.
    """

    server: Server
    compiling: threading.Semaphore
    go: threading.Event
    calls: list[object] = field(default_factory=list)

    @property
    def target(self) -> str:
        """The address."""
        return self.server.addresses[0]

    @property
    def waiting(self) -> int:
        """Number of queued preparations."""
        device: Device = self.server._devices[0]
        return device._scheduler.preparations.waiting

    def occupy(self, raw: RawSession) -> None:
        """Occupy both preparation threads."""
        for _ in range(2):
            self.calls.append(raw.device.PrepareModel(prepare_request(raw, add_chain(1))))
            assert self.compiling.acquire(timeout=TIMEOUT_S)


@contextmanager
def blocked_service(
    monkeypatch: pytest.MonkeyPatch, stop_grace_s: float = 30, **limits: int
) -> Iterator[BlockedService]:
    """Run a service."""
    compile_, compiling, go = CpuRef.compile, threading.Semaphore(0), threading.Event()

    def block(self: CpuRef, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        compiling.release()
        assert go.wait(TIMEOUT_S)
        return compile_(self, subgraph, options)

    monkeypatch.setattr(CpuRef, "compile", block)
    settings = Settings(listen=("127.0.0.1:0",), backends=("CpuRef",), limits=limits, stop_grace_s=stop_grace_s)
    with Server(settings) as server:
        try:
            yield BlockedService(server, compiling, go)
        finally:
            go.set()


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Iterator[BlockedService]:
    with blocked_service(monkeypatch) as service:
        yield service


def test_deadline_of_a_queued_preparation_is_reported_when_it_passes(blocked: BlockedService) -> None:
    with open_raw_session(blocked.target) as raw:
        blocked.occupy(raw)
        request = prepare_request(raw, add_chain(1))
        request.deadline_ns = 10**9
        events, error = read_events(raw.device.PrepareModel(request))
        assert (kinds(events), error) == (["launched", "notify"], None)
        assert events[1].notify.status == enums_pb2.ERROR_STATUS_MISSED_DEADLINE_TRANSIENT
        assert (blocked.waiting, blocked.go.is_set()) == (0, False)


def test_limit_ends_a_preparation_whose_backend_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with blocked_service(monkeypatch, preparation_seconds=1) as blocked, open_raw_session(blocked.target) as raw:
        events, error = read_events(raw.device.PrepareModel(prepare_request(raw, add_chain(1))))
        assert (kinds(events), error) == (["launched", "notify"], None)
        notify = events[1].notify
        assert notify.status == enums_pb2.ERROR_STATUS_MISSED_DEADLINE_PERSISTENT
        assert notify.reason.endswith("(limit preparation_seconds)")
        assert not notify.prepared_model
        assert not blocked.go.is_set()


def test_queued_preparation_ends_with_its_call(blocked: BlockedService) -> None:
    with open_raw_session(blocked.target) as raw:
        blocked.occupy(raw)
        call = raw.device.PrepareModel(prepare_request(raw, add_chain(1)))
        assert next(iter(call)).WhichOneof("event") == "launched"
        assert blocked.waiting == 1
        call.cancel()
        wait_until(lambda: blocked.waiting == 0)
        assert blocked.waiting == 0


def test_preparations_end_with_their_session(blocked: BlockedService) -> None:
    with open_raw_session(blocked.target) as other, open_raw_session(blocked.target) as raw:
        blocked.occupy(other)
        call = raw.device.PrepareModel(prepare_request(raw, add_chain(1)))
        assert next(iter(call)).WhichOneof("event") == "launched"
        blocked.server.sessions.end(blocked.server.sessions.get(raw.session, None), "test")
        events, error = read_events(call)
        assert [event.notify.status for event in events] == [enums_pb2.ERROR_STATUS_DEVICE_UNAVAILABLE]
        assert error is not None and error_detail(error).kind == error_pb2.ERROR_KIND_SESSION_LOST
        assert (blocked.waiting, blocked.go.is_set()) == (0, False)


def test_stop_tells_preparations_why_it_cuts_them_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A running preparation and a queued one have the grace time, and are then told that the service is stopping."""
    with blocked_service(monkeypatch, stop_grace_s=0.2) as blocked, open_raw_session(blocked.target) as raw:
        calls = [raw.device.PrepareModel(prepare_request(raw, add_chain(1))) for _ in range(3)]
        for _ in range(2):
            assert blocked.compiling.acquire(timeout=TIMEOUT_S)
        assert wait_until(lambda: blocked.waiting == 1)
        stop = threading.Thread(target=blocked.server.stop)
        stop.start()
        for call in calls:
            events, error = read_events(call)
            assert kinds(events) == ["launched", "notify"]
            notify = events[1].notify
            assert (notify.status, notify.reason) == (
                enums_pb2.ERROR_STATUS_DEVICE_UNAVAILABLE,
                "the service is stopping",
            )
            assert error is not None and error_detail(error).kind == error_pb2.ERROR_KIND_STOPPING
        assert not blocked.go.is_set()
        blocked.go.set()
        stop.join(TIMEOUT_S)
        monkeypatch.setattr(blocked.server, "stop", lambda: None)
