"""The self-test: its proxy is transparent for every kind of call, and each fault is caught by its check."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from nnhal.embedded import EmbeddedService
from nnhal.errors import DETAILS_KEY
from nnhal.v1 import (
    burst_pb2,
    burst_pb2_grpc,
    error_pb2,
    fence_pb2,
    fence_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
)
from nnhal_tools.conformance.device.calls import detail_of
from nnhal_tools.conformance.runner import TargetConfig
from tests.tools.conformance.selftest import main
from tests.tools.conformance.selftest.command import select_faults
from tests.tools.conformance.selftest.fault import FAULTS, Fault, fault
from tests.tools.conformance.selftest.proxy import (
    Hook,
    InjectedError,
    Proxy,
    ProxyCall,
    pack_error,
    services,
)
from tests.tools.conformance.selftest.trial import run_clean_trial, run_trial

SOON_S = 20.0
DETAIL = error_pb2.ErrorDetail(status=4, reason="why", rule="V-1", kind=2, limit="one")  # type: ignore[arg-type]


class _Service(fence_pb2_grpc.FenceServicer, memory_pb2_grpc.MemoryServiceServicer, burst_pb2_grpc.BurstServicer):  # type: ignore[misc]
    """Answers one method of each kind, and remembers what it saw."""

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {}
        self.remaining_s = 0.0
        self.waits, self.ended = threading.Event(), threading.Event()

    def _wait(self, context: grpc.ServicerContext) -> None:
        context.add_callback(self.ended.set)
        self.waits.set()
        self.ended.wait(SOON_S)

    def Wait(self, request: fence_pb2.WaitRequest, context: grpc.ServicerContext) -> fence_pb2.WaitResponse:
        self.metadata = dict(context.invocation_metadata())
        self.remaining_s = context.time_remaining()
        context.send_initial_metadata((("first", "yes"),))
        if request.fence == b"wait":
            self._wait(context)
        if request.fence == b"fail":
            trailer = pack_error(grpc.StatusCode.NOT_FOUND, DETAIL)
            context.set_trailing_metadata(((DETAILS_KEY, trailer), ("more", "kept")))
            context.abort(grpc.StatusCode.NOT_FOUND, "words")
        context.set_trailing_metadata((("last", "yes"), ("raw-bin", b"\0\xff")))
        return fence_pb2.WaitResponse(state=fence_pb2.FENCE_STATE_SIGNALED)

    def Read(self, request: memory_pb2.ReadRequest, context: grpc.ServicerContext) -> Iterator[memory_pb2.ReadResponse]:
        context.send_initial_metadata((("first", "yes"),))
        for i in range(3):
            yield memory_pb2.ReadResponse(data=bytes([i]))
        if request.memory == b"wait":
            self._wait(context)
        context.set_trailing_metadata((("last", "yes"),))
        if request.memory == b"fail":
            context.set_trailing_metadata(((DETAILS_KEY, pack_error(grpc.StatusCode.NOT_FOUND, DETAIL)),))
            context.abort(grpc.StatusCode.NOT_FOUND, "words")

    def Upload(
        self, request_iterator: Iterator[memory_pb2.UploadRequest], context: grpc.ServicerContext
    ) -> memory_pb2.UploadResponse:
        return memory_pb2.UploadResponse(written=sum(len(request.data) for request in request_iterator))

    def Stream(
        self, request_iterator: Iterator[burst_pb2.BurstStreamRequest], context: grpc.ServicerContext
    ) -> Iterator[burst_pb2.BurstStreamResponse]:
        context.add_callback(self.ended.set)
        for request in request_iterator:
            number = request.release.memory_identifier_token
            yield burst_pb2.BurstStreamResponse(error=error_pb2.ErrorDetail(reason=str(number)))


@pytest.fixture
def service() -> _Service:
    return _Service()  # type: ignore[abstract]


@pytest.fixture
def target(service: _Service, tmp_path: Path) -> Iterator[str]:
    with ThreadPoolExecutor(8) as threads:
        server = grpc.server(threads)
        fence_pb2_grpc.add_FenceServicer_to_server(service, server)
        memory_pb2_grpc.add_MemoryServiceServicer_to_server(service, server)
        burst_pb2_grpc.add_BurstServicer_to_server(service, server)
        address = f"unix:{tmp_path}/target"
        server.add_insecure_port(address)
        server.start()
        yield address
        service.ended.set()
        server.stop(0).wait()


@contextmanager
def _through(target: str, hooks: dict[str, Hook] | None = None) -> Iterator[grpc.Channel]:
    with Proxy(target, hooks) as proxy, grpc.insecure_channel(proxy.address) as channel:
        yield channel


def _failure(call: Any, *arguments: Any) -> Any:
    with pytest.raises(grpc.RpcError) as caught:
        answer = call(*arguments, timeout=SOON_S)
        list(answer)
    return caught.value


class _SaysItsName(grpc.GenericRpcHandler):
    """Every method fails with its own path."""

    def service(self, handler_call_details: Any) -> Any:
        def fail(requests: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
            context.abort(grpc.StatusCode.ABORTED, handler_call_details.method)
            yield b""

        return grpc.stream_stream_rpc_method_handler(fail)


def _methods() -> list[str]:
    return [f"/{service.full_name}/{method.name}" for service in services() for method in service.methods]


def test_every_method_of_all_services_arrives_at_its_own(tmp_path: Path) -> None:
    assert len({method.split("/")[1] for method in _methods()}) == len(list(services()))
    address = f"unix:{tmp_path}/target"
    with ThreadPoolExecutor(8) as threads:
        server = grpc.server(threads, handlers=[_SaysItsName()])
        server.add_insecure_port(address)
        server.start()
        with _through(address) as channel:
            for method in _methods():
                error = _failure(_raw(channel, method), iter([b""]))
                assert (error.code(), error.details()) == (grpc.StatusCode.ABORTED, method)
        server.stop(0).wait()


def _raw(channel: grpc.Channel, method: str) -> Any:
    return channel.stream_stream(method)


def test_a_unary_call_passes_metadata_both_ways_and_its_deadline(target: str, service: _Service) -> None:
    with _through(target) as channel:
        stub = fence_pb2_grpc.FenceStub(channel)
        metadata = (("who", "me"), ("raw-bin", b"\1\xfe"))
        response, call = stub.Wait.with_call(fence_pb2.WaitRequest(), timeout=SOON_S, metadata=metadata)
    assert response.state == fence_pb2.FENCE_STATE_SIGNALED
    assert service.metadata["who"] == "me" and service.metadata["raw-bin"] == b"\1\xfe"
    assert SOON_S / 2 < service.remaining_s < SOON_S + 1  # grpc rounds timeouts up
    assert ("first", "yes") in call.initial_metadata()
    assert ("last", "yes") in call.trailing_metadata() and ("raw-bin", b"\0\xff") in call.trailing_metadata()


def test_without_a_deadline_there_is_none_behind_the_proxy(target: str, service: _Service) -> None:
    with _through(target) as channel:
        fence_pb2_grpc.FenceStub(channel).Wait(fence_pb2.WaitRequest())
    assert service.remaining_s > 1e9


def test_a_stream_of_responses_comes_in_order_with_metadata(target: str) -> None:
    with _through(target) as channel:
        call = memory_pb2_grpc.MemoryServiceStub(channel).Read(memory_pb2.ReadRequest(), timeout=SOON_S)
        assert [response.data for response in call] == [b"\0", b"\1", b"\2"]
        assert ("first", "yes") in call.initial_metadata()
        assert ("last", "yes") in call.trailing_metadata()


def test_a_stream_of_requests_arrives_whole(target: str) -> None:
    with _through(target) as channel:
        chunks = (memory_pb2.UploadRequest(data=bytes(i)) for i in range(5))
        assert memory_pb2_grpc.MemoryServiceStub(channel).Upload(chunks, timeout=SOON_S).written == 10


def test_streams_both_ways_run_in_step(target: str, service: _Service) -> None:
    turns: list[threading.Event] = [threading.Event() for _ in range(3)]

    def requests() -> Iterator[burst_pb2.BurstStreamRequest]:
        for number, turn in enumerate(turns):
            assert turn.wait(SOON_S)
            yield burst_pb2.BurstStreamRequest(
                release=burst_pb2.ReleaseMemoryResourceRequest(memory_identifier_token=number)
            )

    with _through(target) as channel:
        call = burst_pb2_grpc.BurstStub(channel).Stream(requests(), timeout=SOON_S)
        for number, turn in enumerate(turns):
            turn.set()
            assert next(call).error.reason == str(number)
        assert list(call) == []


@pytest.mark.parametrize("service_name", ["Fence", "MemoryService"])
def test_an_error_passes_with_code_words_details_and_other_trailers(target: str, service_name: str) -> None:
    with _through(target) as channel:
        if service_name == "Fence":
            error = _failure(fence_pb2_grpc.FenceStub(channel).Wait, fence_pb2.WaitRequest(fence=b"fail"))
            assert ("more", "kept") in error.trailing_metadata()
        else:
            error = _failure(memory_pb2_grpc.MemoryServiceStub(channel).Read, memory_pb2.ReadRequest(memory=b"fail"))
    assert (error.code(), error.details()) == (grpc.StatusCode.NOT_FOUND, "words")
    assert detail_of(error) == DETAIL


def test_an_error_without_details_stays_without(target: str) -> None:
    with _through(target) as channel:
        error = _failure(fence_pb2_grpc.FenceStub(channel).Create, fence_pb2.CreateFenceRequest())
    assert error.code() == grpc.StatusCode.UNIMPLEMENTED
    assert detail_of(error) is None


def test_the_end_of_the_device_is_told(tmp_path: Path) -> None:
    with _through(f"unix:{tmp_path}/missing") as channel:
        error = _failure(fence_pb2_grpc.FenceStub(channel).Wait, fence_pb2.WaitRequest())
    assert error.code() == grpc.StatusCode.UNAVAILABLE


def test_cancelling_a_unary_call_cancels_it_behind_the_proxy(target: str, service: _Service) -> None:
    with _through(target) as channel:
        call = fence_pb2_grpc.FenceStub(channel).Wait.future(fence_pb2.WaitRequest(fence=b"wait"))
        assert service.waits.wait(SOON_S) and not service.ended.is_set()
        call.cancel()
        assert service.ended.wait(SOON_S)


def test_cancelling_a_stream_cancels_it_behind_the_proxy(target: str, service: _Service) -> None:
    with _through(target) as channel:
        call = memory_pb2_grpc.MemoryServiceStub(channel).Read(memory_pb2.ReadRequest(memory=b"wait"))
        assert [next(call).data for _ in range(3)] == [b"\0", b"\1", b"\2"]
        assert service.waits.wait(SOON_S) and not service.ended.is_set()
        call.cancel()
        assert service.ended.wait(SOON_S)


def test_cancelling_streams_both_ways_cancels_them_behind_the_proxy(target: str, service: _Service) -> None:
    def requests() -> Iterator[burst_pb2.BurstStreamRequest]:
        yield burst_pb2.BurstStreamRequest()
        service.ended.wait(SOON_S)

    with _through(target) as channel:
        call = burst_pb2_grpc.BurstStub(channel).Stream(requests())
        next(call)
        assert not service.ended.is_set()
        call.cancel()
        assert service.ended.wait(SOON_S)


def test_a_deadline_ends_the_call_behind_the_proxy(target: str, service: _Service) -> None:
    with _through(target) as channel:
        stub = fence_pb2_grpc.FenceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Wait(fence_pb2.WaitRequest(fence=b"wait"), timeout=0.2)
        assert isinstance(caught.value, grpc.Call) and caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert service.ended.wait(SOON_S)


def test_a_hook_changes_its_method_alone_and_keeps_what_it_likes(target: str) -> None:
    def count(call: ProxyCall, request: fence_pb2.WaitRequest) -> fence_pb2.WaitResponse:
        call.state[call.method] = call.state.get(call.method, 0) + 1
        response = call.forward(request)
        assert isinstance(response, fence_pb2.WaitResponse)
        response.state = fence_pb2.FENCE_STATE_ERROR if call.state["Fence.Wait"] > 1 else response.state
        return response

    with _through(target, {"Fence.W*": count}) as channel:
        stub = fence_pb2_grpc.FenceStub(channel)
        states = [stub.Wait(fence_pb2.WaitRequest(), timeout=SOON_S).state for _ in range(2)]
        assert states == [fence_pb2.FENCE_STATE_SIGNALED, fence_pb2.FENCE_STATE_ERROR]
        chunks = memory_pb2_grpc.MemoryServiceStub(channel).Read(memory_pb2.ReadRequest(), timeout=SOON_S)
        assert len(list(chunks)) == 3


def test_a_hook_refuses_with_details_and_without(target: str) -> None:
    def refuse(call: ProxyCall, request: fence_pb2.WaitRequest) -> fence_pb2.WaitResponse:
        raise InjectedError(grpc.StatusCode.ABORTED, DETAIL if request.fence else None)

    with _through(target, {"Fence.Wait": refuse}) as channel:
        stub = fence_pb2_grpc.FenceStub(channel)
        with_detail = _failure(stub.Wait, fence_pb2.WaitRequest(fence=b"x"))
        without = _failure(stub.Wait, fence_pb2.WaitRequest())
    assert with_detail.code() == without.code() == grpc.StatusCode.ABORTED
    assert detail_of(with_detail) == DETAIL and detail_of(without) is None


# ---- Faults -------------------------------------------------------------------------------------------------

SAMPLE = (
    "same-padding-on-the-wrong-side",
    "dangling-operand-accepted",
    "launch-ok-after-an-error",
    "missing-input-accepted",
    "notify-twice",
    "slot-served-after-release",
    "roles-not-checked",
    "fence-signalled-before-the-outputs-are-there",
    "reusable-execution-keeps-old-inputs",
    "defined-request-runs-once",
    "unsealed-memory-accepted",
    "backend-never-closed",
    "every-device-is-a-cpu",
)
GROUPS = (
    *("COM", "PREP", "BASIC", "GEN", "VALMODEL", "VALREQ", "BURST", "CACHE", "CACHESEC"),
    *("MEMDOM", "QOS", "STATIC", "EXTRA", "NNHAL", "HOST", "RESIL"),
)


@pytest.fixture(scope="module")
def where() -> Iterator[TargetConfig]:
    service = EmbeddedService()
    yield TargetConfig(service.target)
    service.close()


@pytest.mark.parametrize("name", SAMPLE)
def test_a_fault_is_caught_by_each_of_its_ids(where: TargetConfig, name: str) -> None:
    (fault_,) = select_faults([name])
    verdict = run_trial(where, fault_)
    assert set(fault_.checks) <= verdict.failed.keys() and verdict.missed == ()


@pytest.mark.slow
def test_the_clean_proxy_trips_none(where: TargetConfig) -> None:
    assert run_clean_trial(where, select_faults(SAMPLE)).failed == {}


def test_each_group_has_two_faults_of_its_own() -> None:
    faults = select_faults()
    for group in GROUPS:
        attackers = [f.name for f in faults if any(check.rpartition("-")[0] == group for check in f.checks)]
        assert len(attackers) >= 2, group
    for fault_ in faults:
        assert fault_.description and fault_.checks


def test_the_table_tells_what_was_missed(where: TargetConfig, capsys: pytest.CaptureFixture[str]) -> None:
    def no_fault(call: ProxyCall, request: Any) -> Any:
        """Nothing is wrong."""
        return call.forward(request)

    fault("BASIC-06", on=("Device.GetCapabilities",))(no_fault)
    try:
        assert main(where.address, patterns=["no-fault", "performance-unsorted"]) == 1
    finally:
        del FAULTS["no-fault"]
    *rows, last = capsys.readouterr().out.splitlines()
    assert last == "1 caught, 1 missed"
    assert [row.split()[:3] for row in rows if row.startswith(("no-f", "perf"))] == [
        ["performance-unsorted", "BASIC-06", "yes"],
        ["no-fault", "BASIC-06", "NO"],
    ]
    assert any("Nothing is wrong." in row for row in rows)
    assert any("did not fail: BASIC-06; failed: none" in row for row in rows)


def test_all_caught_is_exit_status_0(where: TargetConfig, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(where.address, patterns=["performance-un*"]) == 0
    assert capsys.readouterr().out.endswith("\n1 caught, 0 missed\n")


def test_a_clean_proxy_that_trips_something_is_a_failure(
    where: TargetConfig, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (fault_,) = select_faults(["performance-unsorted"])
    hook = fault_.hooks["Device.GetCapabilities"]
    monkeypatch.setattr("tests.tools.conformance.selftest.trial.NO_HOOKS", {"Device.GetCapabilities": hook})
    assert main(where.address, patterns=["performance-unsorted"]) == 1
    out = capsys.readouterr().out
    assert "FAILED" in out and "BASIC-06 failed: " in out


def test_an_unknown_fault_is_told() -> None:
    with pytest.raises(ValueError, match=r"no fault matches 'nothing'; similar names of [0-9]+: "):
        main(patterns=["nothing"])


def test_a_fault_names_ids_that_exist() -> None:
    with pytest.raises(ValueError, match="GEN-99"):
        fault("GEN-99", on=("*",))(lambda call, request: None)
    assert isinstance(select_faults(["notify-twice"])[0], Fault)
