"""Fenced and reusable executions against a real service, by raw stubs and by the clients."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import grpc
import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal.enums import FenceState
from nnhal.types import AnyArray, ErrorKind, ErrorStatus, Priority
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import (
    enums_pb2,
    error_pb2,
    execution_pb2,
    execution_pb2_grpc,
    fence_pb2,
    fence_pb2_grpc,
    memory_pb2,
    prepared_model_pb2,
    session_pb2,
    types_pb2,
)
from tests.driver.held import TWICE
from tests.driver.one_operation import int32, model_of, tensor
from tests.driver.test_control_flow import counts, less_than, loop
from tests.end_to_end.conftest import Service, start, stop
from tests.end_to_end.processes import Holdings, thread_names
from tests.end_to_end.raw import Raw, chain, detail, prepare_request, raw_session

INVALID, FAILED = enums_pb2.ERROR_STATUS_INVALID_ARGUMENT, enums_pb2.ERROR_STATUS_GENERAL_FAILURE
NONE = enums_pb2.ERROR_STATUS_NONE
ACTIVE, SIGNALED, ERROR = FenceState.ACTIVE, FenceState.SIGNALED, FenceState.ERROR

FOREVER = loop(less_than(), counts())
"""Counts up to its second input; never ends for infinity."""
ENDLESS = [np.zeros(1, np.float32), np.full(1, np.inf, np.float32)]
ONES = np.ones(2, np.float32)

MATRIX = tensor(T.TENSOR_FLOAT32, (2, 2))
DOT = model_of(
    Op.FULLY_CONNECTED,
    [(tensor(T.TENSOR_FLOAT32, (1, 2)), 0), (MATRIX, 0), (tensor(T.TENSOR_FLOAT32, (2,)), 0), int32(0)],
    [tensor(T.TENSOR_FLOAT32, (1, 2))],
    constants=False,
)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose holdings may be counted: nobody else uses it."""
    running = start(
        tmp_path_factory.mktemp("own"),
        "--limit=fences=500",
        "--limit=fenced_executions=300",
        "--limit=reusable_executions=3",
        NNHAL_SESSION_GRACE_S="0.1",
        NNHAL_IDLE_THREAD_S="0.3",
    )
    yield running
    assert stop(running) == 0
    assert not running.logged("Traceback"), running.log.read_text()


def until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


# ---- By raw stubs ---------------------------------------------------------------------------------------


class Fenced:
    """A session with a model of one ADD (input [2] plus one) and the calls of this file."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self.fences = fence_pb2_grpc.FenceStub(raw.channel)
        self.executions = execution_pb2_grpc.ExecutionStub(raw.channel)
        self.prepared = list(raw.device.PrepareModel(prepare_request(raw, chain(1))))[1].notify.prepared_model

    def memory(self, *values: float) -> bytes:
        """Handle of a Memory object with these floats."""
        data = np.array(values, np.float32).tobytes()
        made = self.raw.memory.Create(memory_pb2.CreateMemoryRequest(session=self.raw.session, size=len(data))).memory
        self.raw.memory.Upload(iter([memory_pb2.UploadRequest(session=self.raw.session, memory=made, data=data)]))
        return made

    def floats(self, memory: bytes) -> list[float]:
        """What a Memory object holds."""
        chunks = self.raw.memory.Read(memory_pb2.ReadRequest(session=self.raw.session, memory=memory))
        return list(map(float, np.frombuffer(b"".join(chunk.data for chunk in chunks), np.float32)))

    @staticmethod
    def request(given: bytes, out: bytes) -> types_pb2.Request:
        """From one Memory object to another."""
        request = types_pb2.Request()
        for handle in (given, out):
            request.pools.add(pool=types_pb2.Memory(mapped=types_pb2.MappedMemory(memory=handle)))
        request.inputs.add(location=types_pb2.DataLocation(pool_index=0, length=8))
        request.outputs.add(location=types_pb2.DataLocation(pool_index=1, length=8))
        return request

    def launch(self, request: types_pb2.Request, wait_for: list[bytes] | None = None, **how: Any) -> bytes:
        """ExecuteFenced; gives the fence."""
        return self.raw.prepared_model.ExecuteFenced(
            prepared_model_pb2.ExecuteFencedRequest(
                session=self.raw.session, prepared_model=self.prepared, request=request, wait_for=wait_for or [], **how
            )
        ).fence

    def create(self) -> bytes:
        """A fence of the client's own."""
        return self.fences.Create(fence_pb2.CreateFenceRequest(session=self.raw.session)).fence

    def signal(self, fence: bytes, error: bool = False) -> None:
        """Ends it."""
        self.fences.Signal(fence_pb2.SignalFenceRequest(session=self.raw.session, fence=fence, error=error))

    def wait(self, fence: bytes, timeout_ns: int | None = 10**10) -> int:
        """Fence.Wait."""
        return self.fences.Wait(
            fence_pb2.WaitRequest(session=self.raw.session, fence=fence, timeout_ns=timeout_ns), timeout=20
        ).state

    def info(self, fence: bytes) -> fence_pb2.GetExecutionInfoResponse:
        """Fence.GetExecutionInfo."""
        return self.fences.GetExecutionInfo(fence_pb2.GetExecutionInfoRequest(session=self.raw.session, fence=fence))


@pytest.fixture
def it(own: Service) -> Iterator[Fenced]:
    with raw_session(own.target) as raw:
        yield Fenced(raw)
        raw.sessions.Close(_close(raw))


def _close(raw: Raw) -> session_pb2.CloseRequest:
    return session_pb2.CloseRequest(session=raw.session)


def refusal(call: Callable[[], object]) -> error_pb2.ErrorDetail:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return detail(caught.value)


def test_a_fenced_execution_from_launch_to_output(it: Fenced) -> None:
    given, out = it.memory(1, 2), it.memory(0, 0)
    fence = it.launch(it.request(given, out), measure_timing=True)
    assert it.wait(fence) == SIGNALED
    assert it.floats(out) == [2, 3]
    for _ in range(2):
        info = it.info(fence)
        assert (info.status, info.reason) == (NONE, "")
        assert 0 <= info.timing_fenced.time_on_device_ns <= info.timing_fenced.time_in_driver_ns
        assert info.timing_fenced.time_in_driver_ns <= info.timing_launched.time_in_driver_ns


def test_a_chain_over_memory_that_waits_for_the_clients_own_fence(it: Fenced) -> None:
    start_fence, memories = it.create(), [it.memory(0, 0) for _ in range(11)]
    fences = [start_fence]
    for before, after in pairwise(memories):
        fences.append(it.launch(it.request(before, after), [fences[-1], start_fence]))
    assert it.wait(fences[-1], 30_000_000) == ACTIVE
    assert it.info(fences[-1]).status == FAILED, "still running"
    it.raw.memory.Upload(
        iter(
            [
                memory_pb2.UploadRequest(
                    session=it.raw.session, memory=memories[0], data=np.array([5, 6], np.float32).tobytes()
                )
            ]
        )
    )
    it.signal(start_fence)
    assert it.wait(fences[-1]) == SIGNALED
    assert it.floats(memories[-1]) == [15, 16]
    timing = it.info(fences[-1]).timing_launched
    assert (timing.time_on_device_ns, timing.time_in_driver_ns) == (-1, -1), "it was not asked for"


def test_launches_that_are_refused(it: Fenced) -> None:
    given, out = it.memory(1, 2), it.memory(0, 0)
    good = it.request(given, out)
    returned = it.request(given, out)
    returned.pools[1].CopyFrom(types_pb2.RequestMemoryPool(returned=types_pb2.ReturnedPool(size=8)))
    inline = it.request(given, out)
    inline.pools[1].CopyFrom(types_pb2.RequestMemoryPool(pool=types_pb2.Memory(inline=bytes(8))))
    bad = it.create()
    it.signal(bad, error=True)
    cases: list[tuple[Callable[[], object], int, str]] = [
        (lambda: it.launch(returned), INVALID, "returned pool"),
        (lambda: it.launch(inline), INVALID, "read-only"),
        (lambda: it.launch(good, [bad]), INVALID, "fence 0 of wait_for is in error"),
        (lambda: it.launch(good, [b"x" * 16]), INVALID, "no such object"),
        (lambda: it.launch(good, [given]), INVALID, "no such object"),
        (lambda: it.launch(good, deadline_ns=-2), INVALID, "the deadline is -2 ns"),
        (lambda: it.launch(good, duration_ns=-2), INVALID, "the duration is -2 ns"),
        (lambda: it.launch(good, loop_timeout_duration_ns=-2), INVALID, "the loop timeout is -2 ns"),
        (lambda: it.launch(good, deadline_ns=0), ErrorStatus.MISSED_DEADLINE_PERSISTENT, "had passed"),
        (lambda: it.wait(bad, -2), INVALID, "the timeout is -2 ns"),
        (lambda: it.wait(given), INVALID, "no such object"),
        (lambda: it.info(bad), INVALID, "client's own"),
        (lambda: it.signal(bad), INVALID, "ended already: ERROR"),
    ]
    for call, status, reason in cases:
        found = refusal(call)
        assert found.status == status
        assert reason in found.reason
    done = it.launch(good)
    assert it.wait(done) == SIGNALED
    assert "belongs to an execution" in refusal(lambda: it.signal(done)).reason


def test_a_fence_of_another_session_is_as_one_that_never_was(it: Fenced, own: Service) -> None:
    fence, good = it.create(), it.request(it.memory(1, 2), it.memory(0, 0))
    with raw_session(own.target) as raw:
        other = Fenced(raw)
        memory = other.request(other.memory(1, 2), other.memory(0, 0))
        for call in (
            lambda: other.wait(fence),
            lambda: other.signal(fence),
            lambda: other.launch(memory, [fence]),
            lambda: other.wait(b"?" * 16),
        ):
            found = refusal(call)
            assert (found.kind, found.reason) == (ErrorKind.UNKNOWN_HANDLE, "no such object in this session")
    assert it.wait(it.launch(good)) == SIGNALED


def test_errors_run_down_the_chain(it: Fenced) -> None:
    fence = it.create()
    chain_of = [it.launch(it.request(it.memory(1, 2), it.memory(0, 0)), [fence])]
    for _ in range(5):
        chain_of.append(it.launch(it.request(it.memory(1, 2), it.memory(0, 0)), [chain_of[-1]]))
    it.signal(fence, error=True)
    assert [it.wait(one) for one in chain_of] == [ERROR] * 6
    assert {it.info(one).status for one in chain_of} == {FAILED}


def test_a_fence_that_is_let_go_unsignalled_ends_in_error(it: Fenced) -> None:
    fence = it.create()
    execution = it.launch(it.request(it.memory(1, 2), it.memory(0, 0)), [fence])
    it.raw.sessions.Release(_release(it.raw, fence))
    assert it.wait(execution) == ERROR


def test_an_execution_goes_on_when_its_fence_is_let_go(it: Fenced) -> None:
    fence, out = it.create(), it.memory(0, 0)
    execution = it.launch(it.request(it.memory(1, 2), out), [fence])
    it.raw.sessions.Release(_release(it.raw, execution))
    it.signal(fence)
    assert until(lambda: it.floats(out) == [2, 3])


def _release(raw: Raw, *handles: bytes) -> session_pb2.ReleaseRequest:
    return session_pb2.ReleaseRequest(session=raw.session, handles=handles)


def test_a_deadline_ends_a_wait_for_a_fence_and_a_grpc_deadline_does_not(it: Fenced) -> None:
    fence, out = it.create(), it.memory(0, 0)
    request = prepared_model_pb2.ExecuteFencedRequest(
        session=it.raw.session, prepared_model=it.prepared, request=it.request(it.memory(1, 2), out), wait_for=[fence]
    )
    brief = it.raw.prepared_model.ExecuteFenced(request, timeout=0.5).fence
    missed = it.launch(it.request(it.memory(1, 2), it.memory(0, 0)), [fence], deadline_ns=50_000_000)
    assert it.wait(missed) == ERROR
    assert it.info(missed).status == ErrorStatus.MISSED_DEADLINE_TRANSIENT
    time.sleep(0.6)
    it.signal(fence)
    assert it.wait(brief) == SIGNALED, "the call's own deadline is over with the call"
    assert it.floats(out) == [2, 3]


def test_with_config_takes_hints_timing_and_loop_timeout(it: Fenced) -> None:
    out = it.memory(0, 0)
    config = types_pb2.ExecutionConfig(
        measure_timing=True,
        loop_timeout_duration_ns=10**9,
        execution_hints=[types_pb2.TokenValuePair(token=7 << 16, value=b"fast")],
        extension_name_to_prefix=[types_pb2.ExtensionNameAndPrefix(name="com.example", prefix=7)],
    )

    def launch() -> bytes:
        return it.raw.prepared_model.ExecuteFencedWithConfig(
            prepared_model_pb2.ExecuteFencedWithConfigRequest(
                session=it.raw.session,
                prepared_model=it.prepared,
                request=it.request(it.memory(1, 2), out),
                config=config,
            )
        ).fence

    fence = launch()
    assert it.wait(fence) == SIGNALED
    assert it.info(fence).timing_fenced.time_in_driver_ns > 0
    assert it.floats(out) == [2, 3]
    config.execution_hints.append(config.execution_hints[0])
    assert refusal(launch).rule == "V-EXECARG-05"


def test_hundreds_of_waits_hold_no_threads(it: Fenced, own: Service) -> None:
    fence, pid = it.create(), own.process.pid
    execution = it.launch(it.request(it.memory(1, 2), it.memory(0, 0)), [fence])
    assert it.wait(execution, 1_000_000) == ACTIVE
    request = fence_pb2.WaitRequest(session=it.raw.session, fence=execution)
    late = fence_pb2.WaitRequest(session=it.raw.session, fence=execution, timeout_ns=10**12)
    waits = [it.fences.Wait.future(one) for one in (request, late) for _ in range(150)]
    with raw_session(own.target) as raw:
        Fenced(raw)  # so that all calls before it have come to the service
    assert until(lambda: Holdings.of(pid).threads < 30), thread_names(pid)
    for wait in waits[::3]:
        wait.cancel()
    assert not any(wait.done() for wait in waits[1::3])
    it.signal(fence)
    assert {wait.result(20).state for i, wait in enumerate(waits) if i % 3} == {SIGNALED}


def test_a_reusable_execution_by_hand(it: Fenced) -> None:
    given, out = it.memory(1, 2), it.memory(0, 0)
    create = prepared_model_pb2.CreateReusableExecutionRequest(
        session=it.raw.session, prepared_model=it.prepared, request=it.request(given, out)
    )
    execution = it.raw.prepared_model.CreateReusableExecution(create).execution
    for i in range(3):
        data = np.array([i, 10 * i], np.float32).tobytes()
        it.raw.memory.Upload(iter([memory_pb2.UploadRequest(session=it.raw.session, memory=given, data=data)]))
        run = execution_pb2.RunExecutionRequest(session=it.raw.session, execution=execution)
        assert it.executions.ExecuteSynchronously(run).output_sufficient_size
        assert it.floats(out) == [i + 1, 10 * i + 1]
    fence = it.create()
    fenced = execution_pb2.RunExecutionFencedRequest(session=it.raw.session, execution=execution, wait_for=[fence])
    running = it.executions.ExecuteFenced(fenced).fence
    for call in (lambda: it.executions.ExecuteFenced(fenced), lambda: it.executions.ExecuteSynchronously(run)):
        found = refusal(call)
        assert (found.status, "in progress" in found.reason) == (FAILED, True)
    it.signal(fence)
    assert it.wait(running) == SIGNALED
    assert it.executions.ExecuteSynchronously(run).output_sufficient_size
    run.deadline_ns = 0
    assert refusal(lambda: it.executions.ExecuteSynchronously(run)).status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
    create.request.inputs[0].location.length = 4
    assert refusal(lambda: it.raw.prepared_model.CreateReusableExecution(create)).rule == "V-REQMODEL-07"


def test_limits(it: Fenced) -> None:
    request = it.request(it.memory(1, 2), it.memory(0, 0))
    create = prepared_model_pb2.CreateReusableExecutionRequest(
        session=it.raw.session, prepared_model=it.prepared, request=request
    )
    for _ in range(3):
        it.raw.prepared_model.CreateReusableExecution(create)
    assert refusal(lambda: it.raw.prepared_model.CreateReusableExecution(create)).limit == "reusable_executions"
    fence = it.create()
    for _ in range(300):
        it.raw.sessions.Release(_release(it.raw, it.launch(request, [fence])))
    assert refusal(lambda: it.launch(request, [fence])).limit == "fenced_executions"
    fences = [it.create() for _ in range(499)]
    assert refusal(it.create).limit == "fences"
    it.signal(fence)
    it.raw.sessions.Release(_release(it.raw, *fences))

    def launches() -> bool:
        try:
            return it.wait(it.launch(request)) == SIGNALED
        except grpc.RpcError as error:
            assert detail(error).limit == "fenced_executions"
            return False

    assert until(launches), "what is over counts no more"


# ---- The clients ----------------------------------------------------------------------------------------


def test_a_chain_across_models(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        twice, dot = device.prepare(TWICE).result(), device.prepare(DOT).result()
        go = device.fence()
        weights = np.array([[1, 2], [3, 4]], np.float32)
        first = twice.execute_fenced([ONES, 2 * ONES], wait_for=[go])
        bias = twice.execute_fenced([first.outputs[0], ONES])
        second = dot.execute_fenced([[[1, 1]], weights, bias.outputs[0]], measure_timing=True)
        assert second.wait(0.05) == ACTIVE
        with pytest.raises(TimeoutError):
            second.result(0.01)
        with pytest.raises(nnhal.HalError, match="still running"):
            _ = second.timing
        go.signal()
        result = second.result(20)
        np.testing.assert_array_equal(result[0], [[3 + 4, 7 + 4]])
        assert result.timing == second.timing.launched
        assert second.timing.fenced.time_in_driver_ns > 0
        np.testing.assert_array_equal(first.result()[0], 3 * ONES)


def test_outputs_outlive_their_fence_while_they_are_needed(service: Service) -> None:
    with nnhal.connect(service.target) as device, device.prepare(TWICE).result() as twice:
        output = twice.execute_fenced([ONES, ONES]).outputs[0]
        for _ in range(20):
            output = twice.execute_fenced([output, ONES]).outputs[0]
        np.testing.assert_array_equal(output.fence.result()[0], 22 * ONES)


def test_a_buffer_is_an_input_of_a_fenced_execution(service: Service) -> None:
    with nnhal.connect(service.target) as device, device.prepare(TWICE).result() as twice:
        buffer = device.allocate(inputs=[(twice, 0)])
        buffer.write(5 * ONES)
        np.testing.assert_array_equal(twice.execute_fenced([buffer, ONES]).result()[0], 6 * ONES)


def test_what_the_client_refuses(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        open_shape = tensor(T.TENSOR_FLOAT32, (0,))
        grown = model_of(Op.ADD, [(open_shape, 0), (open_shape, 0), int32(0)], [open_shape], constants=False)
        twice, dot, grows = (device.prepare(model).result() for model in (TWICE, DOT, grown))
        with pytest.raises(nnhal.HalError, match="fenced executions need outputs of fixed shape"):
            grows.execute_fenced([ONES, ONES])
        output = twice.execute_fenced([ONES, ONES]).outputs[0]
        with pytest.raises(nnhal.HalError, match=r"input 1 is float32 \[2\] on the device; the model takes"):
            dot.execute_fenced([[[1, 1]], output, ONES])
        go = device.fence()
        failed = twice.execute_fenced([ONES, ONES], wait_for=[go])
        go.signal(error=True)
        with pytest.raises(nnhal.HalError, match="a fence of wait_for ended in error"):
            failed.result()
        with pytest.raises(nnhal.HalError, match="ended already"):
            go.signal()


def test_reusing_an_execution(service: Service) -> None:
    with (
        nnhal.connect(service.target) as device,
        device.prepare(TWICE).result() as twice,
        twice.reusable([ONES, ONES], measure_timing=True) as execution,
    ):
        assert execution.run().timing.time_on_device_ns > 0
        for value in range(5):
            execution.write({0: value * ONES})
            np.testing.assert_array_equal(execution.run()[0], (value + 1) * ONES)
            run = execution.run_fenced()
            np.testing.assert_array_equal(run.result()[0], (value + 1) * ONES)
        execution.write({1: 6 * ONES})
        following = execution.run_fenced()
        with pytest.raises(nnhal.HalError, match="written over"):
            run.result()
        np.testing.assert_array_equal(following.result()[0], 10 * ONES)
        for change in ({2: ONES}, {"x": ONES}, {0: np.ones(3, np.float32)}):
            with pytest.raises(nnhal.HalError) as caught:
                execution.write(change)  # type: ignore[arg-type]
            assert caught.value.status == ErrorStatus.INVALID_ARGUMENT
        go = device.fence()
        waiting = execution.run_fenced(wait_for=[go])
        with pytest.raises(nnhal.HalError, match="in progress"):
            execution.run_fenced()
        go.signal()
        np.testing.assert_array_equal(waiting.result()[0], 10 * ONES)


async def test_the_asyncio_client(service: Service) -> None:
    async with nnhal.aio.connect(service.target) as device, await device.prepare(TWICE) as twice:
        go = await device.fence()
        first = await twice.execute_fenced([ONES, ONES], wait_for=[go])
        second = await twice.execute_fenced([first.outputs[0], ONES], measure_timing=True)
        assert await second.wait(0.02) == ACTIVE
        with pytest.raises(TimeoutError):
            await second.result(0.01)
        await go.signal()
        np.testing.assert_array_equal((await second.result())[0], 3 * ONES)
        assert (await second.timing()).fenced.time_in_driver_ns > 0
        async with await twice.reusable([ONES, ONES]) as execution:
            await execution.write({1: 4 * ONES})
            np.testing.assert_array_equal((await execution.run())[0], 5 * ONES)
            run = await execution.run_fenced()
            np.testing.assert_array_equal((await run.result())[0], 5 * ONES)
            await (await execution.run_fenced()).result()
            with pytest.raises(nnhal.HalError, match="written over"):
                await run.result()


# ---- Ends of sessions -----------------------------------------------------------------------------------


def occupy(device: "nnhal.Device", count: int) -> list[Any]:
    """Executions that never end by themselves, before 15 s are over."""
    endless = device.prepare(FOREVER, priority=Priority.HIGH).result()
    request = [endless.execute_fenced(ENDLESS) for _ in range(count)]
    return [endless, *request]


def quick(target: str) -> AnyArray:
    """An execution of another client, which must come to its turn soon."""
    with nnhal.connect(target) as device, device.prepare(TWICE).result() as twice:
        return twice.execute([ONES, ONES], deadline=1.5)[0]


def test_the_end_of_a_session_ends_what_runs_and_waits_for_it(own: Service) -> None:
    with nnhal.connect(own.target) as device:
        occupy(device, 2 * (os.cpu_count() or 1))
        never = device.fence()
        twice = device.prepare(TWICE).result()
        for _ in range(20):
            twice.execute_fenced([ONES, ONES], wait_for=[never])
    np.testing.assert_array_equal(quick(own.target), 2 * ONES)


CLIENT = """
import sys, numpy as np, nnhal
from tests.end_to_end.test_fences import ONES, TWICE, occupy
device = nnhal.connect(sys.argv[1], transport="grpc")
kept = occupy(device, 3)
never, twice = device.fence(), device.prepare(TWICE).result()
for _ in range(20):
    kept.append(twice.execute_fenced([ONES, ONES], wait_for=[never]))
print("waiting", flush=True)
kept[-1].wait()
"""


def die_waiting(target: str) -> None:
    client = subprocess.Popen([sys.executable, "-c", CLIENT, target], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    try:
        assert client.stdout.readline() == "waiting\n"
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait()
        client.stdout.close()


def test_a_client_that_dies_leaves_nothing_behind(own: Service) -> None:
    pid = own.process.pid

    def settled() -> Holdings:
        before, now = None, Holdings.of(pid)
        while before != now:
            time.sleep(0.5)
            before, now = now, Holdings.of(pid)
        return now

    die_waiting(own.target)
    np.testing.assert_array_equal(quick(own.target), 2 * ONES)
    before = settled()
    for _ in range(3):
        die_waiting(own.target)
        np.testing.assert_array_equal(quick(own.target), 2 * ONES)
    assert until(lambda: Holdings.of(pid).threads <= before.threads), thread_names(pid)
    assert until(lambda: Holdings.of(pid).descriptors <= before.descriptors)


def test_many_threads_of_one_client(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        twice = device.prepare(TWICE).result()
        done: list[AnyArray] = []
        threads = [
            threading.Thread(target=lambda: done.append(twice.execute_fenced([ONES, ONES]).result()[0]))
            for _ in range(16)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(done) == 16
        assert all((one == 2).all() for one in done)
