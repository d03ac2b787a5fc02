"""Fenced and reusable executions of a real service, through plain stubs and through the clients."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import grpc
import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal.types import AnyArray, ErrorKind, ErrorStatus, FenceState
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
from tests.concurrency import run_concurrently, wait_until
from tests.driver.blocking_backend import TWICE
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.support.endless_executions import start_endless_executions
from tests.end_to_end.support.process_usage import ProcessUsage, settled_usage, thread_names
from tests.end_to_end.support.raw_client import RawSession, add_chain, error_detail, open_raw_session, prepare_request
from tests.end_to_end.support.service_process import Service, start_service, stop_service

INVALID, FAILED = enums_pb2.ERROR_STATUS_INVALID_ARGUMENT, enums_pb2.ERROR_STATUS_GENERAL_FAILURE
NONE = enums_pb2.ERROR_STATUS_NONE
ACTIVE, SIGNALED, ERROR = FenceState.ACTIVE, FenceState.SIGNALED, FenceState.ERROR

ONES = np.ones(2, np.float32)

MATRIX = tensor(T.TENSOR_FLOAT32, (2, 2))
DOT = model_of(
    Op.FULLY_CONNECTED,
    [(tensor(T.TENSOR_FLOAT32, (1, 2)), 0), (MATRIX, 0), (tensor(T.TENSOR_FLOAT32, (2,)), 0), int32(0)],
    [tensor(T.TENSOR_FLOAT32, (1, 2))],
    constants=False,
)


@pytest.fixture(scope="module")
def own_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service that only this module uses, so that its threads and descriptors can be counted."""
    running = start_service(
        tmp_path_factory.mktemp("own"),
        "--limit=fences=500",
        "--limit=fenced_executions=300",
        "--limit=reusable_executions=3",
        NNHAL_SESSION_GRACE_S="0.1",
        NNHAL_IDLE_THREAD_S="0.3",
    )
    yield running
    assert stop_service(running) == 0
    assert not running.logged("Traceback"), running.log.read_text()


# ---- Stubs ----------------------------------------------------------------------------------------------


class FenceClient:
    """Session with a model that adds one to an input of shape [2], and the stubs for fences."""

    def __init__(self, raw: RawSession) -> None:
        self.raw = raw
        self.fences = fence_pb2_grpc.FenceStub(raw.channel)
        self.executions = execution_pb2_grpc.ExecutionStub(raw.channel)
        self.prepared = list(raw.device.PrepareModel(prepare_request(raw, add_chain(1))))[1].notify.prepared_model

    def memory(self, *values: float) -> bytes:
        """Create a memory object with float32 values, and return its handle."""
        data = np.array(values, np.float32).tobytes()
        handle = self.raw.memory.Create(memory_pb2.CreateMemoryRequest(session=self.raw.session, size=len(data))).memory
        self.raw.memory.Upload(iter([memory_pb2.UploadRequest(session=self.raw.session, memory=handle, data=data)]))
        return handle

    def floats(self, memory: bytes) -> list[float]:
        """Return the float32 values of a memory object."""
        chunks = self.raw.memory.Read(memory_pb2.ReadRequest(session=self.raw.session, memory=memory))
        return list(map(float, np.frombuffer(b"".join(chunk.data for chunk in chunks), np.float32)))

    @staticmethod
    def request(source: bytes, target: bytes) -> types_pb2.Request:
        """Return a request that reads one memory object and writes another."""
        request = types_pb2.Request()
        for handle in (source, target):
            request.pools.add(pool=types_pb2.Memory(mapped=types_pb2.MappedMemory(memory=handle)))
        request.inputs.add(location=types_pb2.DataLocation(pool_index=0, length=8))
        request.outputs.add(location=types_pb2.DataLocation(pool_index=1, length=8))
        return request

    def launch(self, request: types_pb2.Request, wait_for: list[bytes] | None = None, **how: Any) -> bytes:
        """Call ExecuteFenced, and return the fence."""
        return self.raw.prepared_model.ExecuteFenced(
            prepared_model_pb2.ExecuteFencedRequest(
                session=self.raw.session, prepared_model=self.prepared, request=request, wait_for=wait_for or [], **how
            )
        ).fence

    def create(self) -> bytes:
        """Create a fence that the client signals."""
        return self.fences.Create(fence_pb2.CreateFenceRequest(session=self.raw.session)).fence

    def signal(self, fence: bytes, error: bool = False) -> None:
        """Signal a fence."""
        self.fences.Signal(fence_pb2.SignalFenceRequest(session=self.raw.session, fence=fence, error=error))

    def wait(self, fence: bytes, timeout_ns: int | None = 60 * 10**9) -> int:
        """Wait for a fence, and return its state."""
        return self.fences.Wait(
            fence_pb2.WaitRequest(session=self.raw.session, fence=fence, timeout_ns=timeout_ns), timeout=120
        ).state

    def info(self, fence: bytes) -> fence_pb2.GetExecutionInfoResponse:
        """Return the execution info of a fence."""
        return self.fences.GetExecutionInfo(fence_pb2.GetExecutionInfoRequest(session=self.raw.session, fence=fence))


@pytest.fixture
def client(own_service: Service) -> Iterator[FenceClient]:
    with open_raw_session(own_service.target) as raw:
        yield FenceClient(raw)
        raw.sessions.Close(session_pb2.CloseRequest(session=raw.session))


def error_of(call: Callable[[], object]) -> error_pb2.ErrorDetail:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return error_detail(caught.value)


def test_fenced_execution_writes_its_output(client: FenceClient) -> None:
    source, target = client.memory(1, 2), client.memory(0, 0)
    fence = client.launch(client.request(source, target), measure_timing=True)
    assert client.wait(fence) == SIGNALED
    assert client.floats(target) == [2, 3]
    for _ in range(2):
        info = client.info(fence)
        assert (info.status, info.reason) == (NONE, "")
        assert 0 <= info.timing_fenced.time_on_device_ns <= info.timing_fenced.time_in_driver_ns
        assert info.timing_fenced.time_in_driver_ns <= info.timing_launched.time_in_driver_ns


def test_chain_waits_for_a_fence_of_the_client(client: FenceClient) -> None:
    start_fence, memories = client.create(), [client.memory(0, 0) for _ in range(11)]
    fences = [start_fence]
    for before, after in pairwise(memories):
        fences.append(client.launch(client.request(before, after), [fences[-1], start_fence]))
    assert client.wait(fences[-1], 30_000_000) == ACTIVE
    assert client.info(fences[-1]).status == FAILED, "it still runs"
    client.raw.memory.Upload(
        iter(
            [
                memory_pb2.UploadRequest(
                    session=client.raw.session, memory=memories[0], data=np.array([5, 6], np.float32).tobytes()
                )
            ]
        )
    )
    client.signal(start_fence)
    assert client.wait(fences[-1]) == SIGNALED
    assert client.floats(memories[-1]) == [15, 16]
    timing = client.info(fences[-1]).timing_launched
    assert (timing.time_on_device_ns, timing.time_in_driver_ns) == (-1, -1), "timing was not requested"


def test_invalid_launches_are_rejected(client: FenceClient) -> None:
    source, target = client.memory(1, 2), client.memory(0, 0)
    good = client.request(source, target)
    returned = client.request(source, target)
    returned.pools[1].CopyFrom(types_pb2.RequestMemoryPool(returned=types_pb2.ReturnedPool(size=8)))
    inline = client.request(source, target)
    inline.pools[1].CopyFrom(types_pb2.RequestMemoryPool(pool=types_pb2.Memory(inline=bytes(8))))
    bad = client.create()
    client.signal(bad, error=True)
    cases: list[tuple[Callable[[], object], int, str]] = [
        (lambda: client.launch(returned), INVALID, "returned pool"),
        (lambda: client.launch(inline), INVALID, "read-only"),
        (lambda: client.launch(good, [bad]), INVALID, "fence 0 of wait_for is in error"),
        (lambda: client.launch(good, [b"x" * 16]), INVALID, "no such object"),
        (lambda: client.launch(good, [source]), INVALID, "no such object"),
        (lambda: client.launch(good, deadline_ns=-2), INVALID, "the deadline is -2 ns"),
        (lambda: client.launch(good, duration_ns=-2), INVALID, "the duration is -2 ns"),
        (lambda: client.launch(good, loop_timeout_duration_ns=-2), INVALID, "the loop timeout is -2 ns"),
        (lambda: client.launch(good, deadline_ns=0), ErrorStatus.MISSED_DEADLINE_PERSISTENT, "had passed"),
        (lambda: client.wait(bad, -2), INVALID, "the timeout is -2 ns"),
        (lambda: client.wait(source), INVALID, "no such object"),
        (lambda: client.info(bad), INVALID, "client's own"),
        (lambda: client.signal(bad), INVALID, "ended already: ERROR"),
    ]
    for call, status, reason in cases:
        error = error_of(call)
        assert error.status == status
        assert reason in error.reason
    done = client.launch(good)
    assert client.wait(done) == SIGNALED
    assert "belongs to an execution" in error_of(lambda: client.signal(done)).reason


def test_fences_of_other_sessions_look_unknown(client: FenceClient, own_service: Service) -> None:
    fence, good = client.create(), client.request(client.memory(1, 2), client.memory(0, 0))
    with open_raw_session(own_service.target) as raw:
        other = FenceClient(raw)
        valid = other.request(other.memory(1, 2), other.memory(0, 0))
        for call in (
            lambda: other.wait(fence),
            lambda: other.signal(fence),
            lambda: other.launch(valid, [fence]),
            lambda: other.wait(b"?" * 16),
        ):
            error = error_of(call)
            assert (error.kind, error.reason) == (
                ErrorKind.UNKNOWN_HANDLE,
                "no such object in this session; it was closed, or it belongs to another session",
            )
    assert client.wait(client.launch(good)) == SIGNALED


def test_error_of_a_fence_ends_the_whole_chain(client: FenceClient) -> None:
    fence = client.create()
    chain = [client.launch(client.request(client.memory(1, 2), client.memory(0, 0)), [fence])]
    for _ in range(5):
        chain.append(client.launch(client.request(client.memory(1, 2), client.memory(0, 0)), [chain[-1]]))
    client.signal(fence, error=True)
    assert [client.wait(execution) for execution in chain] == [ERROR] * 6
    assert {client.info(execution).status for execution in chain} == {FAILED}


def test_released_fence_ends_in_error(client: FenceClient) -> None:
    fence = client.create()
    execution = client.launch(client.request(client.memory(1, 2), client.memory(0, 0)), [fence])
    client.raw.sessions.Release(_release(client.raw, fence))
    assert client.wait(execution) == ERROR


def test_execution_continues_when_its_fence_is_released(client: FenceClient) -> None:
    fence, target = client.create(), client.memory(0, 0)
    execution = client.launch(client.request(client.memory(1, 2), target), [fence])
    client.raw.sessions.Release(_release(client.raw, execution))
    client.signal(fence)
    assert wait_until(lambda: client.floats(target) == [2, 3])


def _release(raw: RawSession, *handles: bytes) -> session_pb2.ReleaseRequest:
    return session_pb2.ReleaseRequest(session=raw.session, handles=handles)


@pytest.mark.slow
def test_hal_deadline_ends_a_fenced_execution_and_grpc_deadline_does_not(client: FenceClient) -> None:
    fence, target = client.create(), client.memory(0, 0)
    request = prepared_model_pb2.ExecuteFencedRequest(
        session=client.raw.session,
        prepared_model=client.prepared,
        request=client.request(client.memory(1, 2), target),
        wait_for=[fence],
    )
    timeout_s = 4
    launched = client.raw.prepared_model.ExecuteFenced(request, timeout=timeout_s).fence
    called_at = time.monotonic()
    missed = client.launch(client.request(client.memory(1, 2), client.memory(0, 0)), [fence], deadline_ns=10**9)
    assert client.wait(missed) == ERROR
    assert client.info(missed).status == ErrorStatus.MISSED_DEADLINE_TRANSIENT
    assert wait_until(lambda: time.monotonic() > called_at + timeout_s)
    client.signal(fence)
    assert client.wait(launched) == SIGNALED, "the gRPC deadline of the launch must not limit the execution"
    assert client.floats(target) == [2, 3]


def test_execution_config_has_hints_timing_and_loop_timeout(client: FenceClient) -> None:
    target = client.memory(0, 0)
    config = types_pb2.ExecutionConfig(
        measure_timing=True,
        loop_timeout_duration_ns=10**9,
        execution_hints=[types_pb2.TokenValuePair(token=7 << 16, value=b"fast")],
        extension_name_to_prefix=[types_pb2.ExtensionNameAndPrefix(name="com.example", prefix=7)],
    )

    def launch() -> bytes:
        return client.raw.prepared_model.ExecuteFencedWithConfig(
            prepared_model_pb2.ExecuteFencedWithConfigRequest(
                session=client.raw.session,
                prepared_model=client.prepared,
                request=client.request(client.memory(1, 2), target),
                config=config,
            )
        ).fence

    fence = launch()
    assert client.wait(fence) == SIGNALED
    assert client.info(fence).timing_fenced.time_in_driver_ns > 0
    assert client.floats(target) == [2, 3]
    config.execution_hints.append(config.execution_hints[0])
    assert error_of(launch).rule == "V-EXECARG-05"


def test_waits_do_not_occupy_threads(client: FenceClient, own_service: Service) -> None:
    fence, pid = client.create(), own_service.pid
    execution = client.launch(client.request(client.memory(1, 2), client.memory(0, 0)), [fence])
    assert client.wait(execution, 1_000_000) == ACTIVE
    request = fence_pb2.WaitRequest(session=client.raw.session, fence=execution)
    late = fence_pb2.WaitRequest(session=client.raw.session, fence=execution, timeout_ns=10**12)
    waits = [client.fences.Wait.future(message) for message in (request, late) for _ in range(150)]
    with open_raw_session(own_service.target) as raw:
        FenceClient(raw)  # its calls return after the service has received all calls before them
    assert wait_until(lambda: ProcessUsage.read(pid).threads < 30), thread_names(pid)
    for wait in waits[::3]:
        wait.cancel()
    assert not any(wait.done() for wait in waits[1::3])
    client.signal(fence)
    assert {wait.result(120).state for i, wait in enumerate(waits) if i % 3} == {SIGNALED}


def test_reusable_execution_through_stubs(client: FenceClient) -> None:
    source, target = client.memory(1, 2), client.memory(0, 0)
    create = prepared_model_pb2.CreateReusableExecutionRequest(
        session=client.raw.session, prepared_model=client.prepared, request=client.request(source, target)
    )
    execution = client.raw.prepared_model.CreateReusableExecution(create).execution
    for i in range(3):
        data = np.array([i, 10 * i], np.float32).tobytes()
        client.raw.memory.Upload(iter([memory_pb2.UploadRequest(session=client.raw.session, memory=source, data=data)]))
        run = execution_pb2.RunExecutionRequest(session=client.raw.session, execution=execution)
        assert client.executions.ExecuteSynchronously(run).output_sufficient_size
        assert client.floats(target) == [i + 1, 10 * i + 1]
    fence = client.create()
    fenced = execution_pb2.RunExecutionFencedRequest(session=client.raw.session, execution=execution, wait_for=[fence])
    running = client.executions.ExecuteFenced(fenced).fence
    for call in (lambda: client.executions.ExecuteFenced(fenced), lambda: client.executions.ExecuteSynchronously(run)):
        error = error_of(call)
        assert (error.status, "in progress" in error.reason) == (FAILED, True)
    client.signal(fence)
    assert client.wait(running) == SIGNALED
    assert client.executions.ExecuteSynchronously(run).output_sufficient_size
    run.deadline_ns = 0
    assert (
        error_of(lambda: client.executions.ExecuteSynchronously(run)).status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
    )
    create.request.inputs[0].location.length = 4
    assert error_of(lambda: client.raw.prepared_model.CreateReusableExecution(create)).rule == "V-REQMODEL-07"


def test_limits(client: FenceClient) -> None:
    request = client.request(client.memory(1, 2), client.memory(0, 0))
    create = prepared_model_pb2.CreateReusableExecutionRequest(
        session=client.raw.session, prepared_model=client.prepared, request=request
    )
    for _ in range(3):
        client.raw.prepared_model.CreateReusableExecution(create)
    assert error_of(lambda: client.raw.prepared_model.CreateReusableExecution(create)).limit == "reusable_executions"
    fence = client.create()
    for _ in range(300):
        client.raw.sessions.Release(_release(client.raw, client.launch(request, [fence])))
    assert error_of(lambda: client.launch(request, [fence])).limit == "fenced_executions"
    fences = [client.create() for _ in range(499)]
    assert error_of(client.create).limit == "fences"
    client.signal(fence)
    client.raw.sessions.Release(_release(client.raw, *fences))

    def launches() -> bool:
        try:
            return client.wait(client.launch(request)) == SIGNALED
        except grpc.RpcError as error:
            assert error_detail(error).limit == "fenced_executions"
            return False

    assert wait_until(launches), "executions that have ended must not count"


# ---- The clients ----------------------------------------------------------------------------------------


def test_chain_across_models(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        twice, dot = device.prepare(TWICE).result(), device.prepare(DOT).result()
        start_fence = device.fence()
        weights = np.array([[1, 2], [3, 4]], np.float32)
        first = twice.execute_fenced([ONES, 2 * ONES], wait_for=[start_fence])
        bias = twice.execute_fenced([first.outputs[0], ONES])
        second = dot.execute_fenced([[[1, 1]], weights, bias.outputs[0]], measure_timing=True)
        assert second.wait(0.05) == ACTIVE
        with pytest.raises(TimeoutError):
            second.result(0.01)
        with pytest.raises(nnhal.HalError, match="still running"):
            _ = second.timing
        start_fence.signal()
        result = second.result(60)
        np.testing.assert_array_equal(result[0], [[3 + 4, 7 + 4]])
        assert result.timing == second.timing.launched
        assert second.timing.fenced.time_in_driver_ns > 0
        np.testing.assert_array_equal(first.result()[0], 3 * ONES)


def test_outputs_of_freed_fences_stay_valid_while_used(service: Service) -> None:
    with nnhal.connect(service.target) as device, device.prepare(TWICE).result() as twice:
        output = twice.execute_fenced([ONES, ONES]).outputs[0]
        for _ in range(20):
            output = twice.execute_fenced([output, ONES]).outputs[0]
        np.testing.assert_array_equal(output.fence.result()[0], 22 * ONES)


def test_buffer_as_input_of_a_fenced_execution(service: Service) -> None:
    with nnhal.connect(service.target) as device, device.prepare(TWICE).result() as twice:
        buffer = device.allocate(inputs=[(twice, 0)])
        buffer.write(5 * ONES)
        np.testing.assert_array_equal(twice.execute_fenced([buffer, ONES]).result()[0], 6 * ONES)


def test_client_rejects_invalid_fenced_executions(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        open_shape = tensor(T.TENSOR_FLOAT32, (0,))
        unknown_shape = model_of(Op.ADD, [(open_shape, 0), (open_shape, 0), int32(0)], [open_shape], constants=False)
        twice, dot, dynamic = (device.prepare(model).result() for model in (TWICE, DOT, unknown_shape))
        with pytest.raises(nnhal.HalError, match="fenced executions need outputs of fixed shape"):
            dynamic.execute_fenced([ONES, ONES])
        output = twice.execute_fenced([ONES, ONES]).outputs[0]
        with pytest.raises(nnhal.HalError, match=r"input 1 is float32 \[2\] on the device; the model takes"):
            dot.execute_fenced([[[1, 1]], output, ONES])
        start_fence = device.fence()
        failed = twice.execute_fenced([ONES, ONES], wait_for=[start_fence])
        start_fence.signal(error=True)
        with pytest.raises(nnhal.HalError, match="a fence of wait_for ended in error"):
            failed.result()
        with pytest.raises(nnhal.HalError, match="ended already"):
            start_fence.signal()


def test_reusable_execution_of_the_client(service: Service) -> None:
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
        with pytest.raises(nnhal.HalError, match="overwritten"):
            run.result()
        np.testing.assert_array_equal(following.result()[0], 10 * ONES)
        for change in ({2: ONES}, {"x": ONES}, {0: np.ones(3, np.float32)}):
            with pytest.raises(nnhal.HalError) as caught:
                execution.write(change)  # type: ignore[arg-type]
            assert caught.value.status == ErrorStatus.INVALID_ARGUMENT
        start_fence = device.fence()
        waiting = execution.run_fenced(wait_for=[start_fence])
        with pytest.raises(nnhal.HalError, match="in progress"):
            execution.run_fenced()
        start_fence.signal()
        np.testing.assert_array_equal(waiting.result()[0], 10 * ONES)


async def test_asyncio_client(service: Service) -> None:
    async with nnhal.aio.connect(service.target) as device, await device.prepare(TWICE) as twice:
        start_fence = await device.fence()
        first = await twice.execute_fenced([ONES, ONES], wait_for=[start_fence])
        second = await twice.execute_fenced([first.outputs[0], ONES], measure_timing=True)
        assert await second.wait(0.02) == ACTIVE
        with pytest.raises(TimeoutError):
            await second.result(0.01)
        await start_fence.signal()
        np.testing.assert_array_equal((await second.result())[0], 3 * ONES)
        assert (await second.timing()).fenced.time_in_driver_ns > 0
        async with await twice.reusable([ONES, ONES]) as execution:
            await execution.write({1: 4 * ONES})
            np.testing.assert_array_equal((await execution.run())[0], 5 * ONES)
            run = await execution.run_fenced()
            np.testing.assert_array_equal((await run.result())[0], 5 * ONES)
            await (await execution.run_fenced()).result()
            with pytest.raises(nnhal.HalError, match="overwritten"):
                await run.result()


# ---- End of a session -----------------------------------------------------------------------------------


def execute_from_another_session(target: str) -> AnyArray:
    """Execute long before the loop timeouts of the endless executions free all slots."""
    with nnhal.connect(target) as device, device.prepare(TWICE).result() as twice:
        return twice.execute([ONES, ONES], deadline=20)[0]


def test_end_of_a_session_cancels_its_executions(own_service: Service) -> None:
    with nnhal.connect(own_service.target) as device:
        start_endless_executions(device)
        never = device.fence()
        twice = device.prepare(TWICE).result()
        for _ in range(20):
            twice.execute_fenced([ONES, ONES], wait_for=[never])
    np.testing.assert_array_equal(execute_from_another_session(own_service.target), 2 * ONES)


CLIENT = """
import sys, numpy as np, nnhal
from tests.driver.blocking_backend import TWICE
from tests.end_to_end.support.endless_executions import start_endless_executions
ONES = np.ones(2, np.float32)
device = nnhal.connect(sys.argv[1], transport="grpc")
kept = start_endless_executions(device)
never, twice = device.fence(), device.prepare(TWICE).result()
for _ in range(20):
    kept.append(twice.execute_fenced([ONES, ONES], wait_for=[never]))
print("waiting", flush=True)
kept[-1].wait()
"""


def kill_waiting_client(target: str) -> None:
    client = subprocess.Popen([sys.executable, "-c", CLIENT, target], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    try:
        assert client.stdout.readline() == "waiting\n"
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait()
        client.stdout.close()


@pytest.mark.slow
def test_killed_client_leaves_no_threads_and_descriptors(own_service: Service) -> None:
    pid = own_service.pid

    kill_waiting_client(own_service.target)
    np.testing.assert_array_equal(execute_from_another_session(own_service.target), 2 * ONES)
    before = settled_usage(pid)
    for _ in range(3):
        kill_waiting_client(own_service.target)
        np.testing.assert_array_equal(execute_from_another_session(own_service.target), 2 * ONES)
    assert wait_until(lambda: ProcessUsage.read(pid).threads <= before.threads), thread_names(pid)
    assert wait_until(lambda: ProcessUsage.read(pid).descriptors <= before.descriptors)


def test_threads_share_one_client(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        twice = device.prepare(TWICE).result()
        outputs: list[AnyArray] = []
        run_concurrently(16, lambda _: outputs.append(twice.execute_fenced([ONES, ONES]).result()[0]))
        assert len(outputs) == 16
        assert all((output == 2).all() for output in outputs)
