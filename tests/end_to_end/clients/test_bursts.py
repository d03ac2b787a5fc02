"""Bursts against a real service: over a gRPC stream and over shared memory, with both clients and with plain stubs."""

import asyncio
import os
import queue
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal.client.core.arrays import Outputs
from nnhal.client.core.burst import PendingExecution
from nnhal.client.core.session import Transport
from nnhal.client.shm.pool import BURST_DEPTH
from nnhal.client.sync.burst import Burst, Submission
from nnhal.client.sync.result_queue import PendingResult, interrupted_error
from nnhal.types import ErrorKind, ErrorStatus, Model
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import burst_pb2, burst_pb2_grpc, prepared_model_pb2, session_pb2, types_pb2
from tests.concurrency import run_concurrently, wait_until
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.support.raw_client import (
    RawSession,
    add_chain,
    error_detail,
    execute_request,
    open_raw_session,
    prepare_request,
)
from tests.end_to_end.support.service_process import Service, start_service, stop_service, worker_pids

X = tensor(T.TENSOR_FLOAT32, (0,))
ADD = model_of(Op.ADD, [(X, 0), (X, 0), int32(0)], [X], constants=False)
FIXED = tensor(T.TENSOR_FLOAT32, (4,))
ADD_FIXED = model_of(Op.ADD, [(FIXED, 0), (FIXED, 0), int32(0)], [FIXED], constants=False)
ONES = np.ones(4, np.float32)


@pytest.fixture(params=["auto", "grpc"])
def device(request: pytest.FixtureRequest, service: Service) -> Iterator[nnhal.Device]:
    with nnhal.connect(service.target, transport=request.param) as connected:
        yield connected


@pytest.fixture(params=["auto", "grpc"])
def transport(request: pytest.FixtureRequest) -> Transport:
    transport: Transport = request.param
    return transport


# ---- The synchronous client -------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [ADD, ADD_FIXED])
def test_sequential_executions(device: nnhal.Device, model: Model) -> None:
    with device.prepare(model).result() as prepared, prepared.burst() as burst:
        for i in range(50):
            np.testing.assert_array_equal(burst.execute([ONES * i, ONES])[0], ONES * i + 1)
        assert burst.execute([ONES, ONES], measure_timing=True).timing.time_on_device_ns > 0
        assert burst.execute([ONES, ONES]).timing.time_on_device_ns == -1


def test_many_executions_in_flight(device: nnhal.Device) -> None:
    """More executions than the transport holds at once. Inputs may be modified as soon as `submit` returns."""
    with device.prepare(ADD_FIXED).result() as prepared, prepared.burst() as burst:
        futures, x = [], ONES.copy()
        for i in range(300):
            x[:] = i
            futures.append(burst.submit([x, ONES]))
        for i, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(30)[0], ONES * i + 1)
        # the reading thread has been idle meanwhile, or has ended
        assert burst.submit([ONES, ONES]).result(30)[0][0] == 2


def test_changing_shapes(device: nnhal.Device) -> None:
    rng = np.random.default_rng(1)
    with device.prepare(ADD).result() as prepared, prepared.burst() as burst:
        futures: list[tuple[int, Future[Outputs]]] = []
        for size in rng.integers(1, 3000, 100):
            futures.append((int(size), burst.submit([np.full(size, size, np.float32)] * 2)))
        for size, future in futures:
            np.testing.assert_array_equal(future.result(30)[0], np.full(size, 2 * size, np.float32))


def test_inputs_larger_than_a_message(device: nnhal.Device) -> None:
    large = np.arange(1_000_000, dtype=np.float32)
    with device.prepare(ADD).result() as prepared, prepared.burst() as burst:
        for i in range(3):
            np.testing.assert_array_equal(burst.execute([large, large + i])[0], large + large + i)
            np.testing.assert_array_equal(burst.execute([ONES, ONES])[0], 2 * ONES)


def test_cached_inputs(device: nnhal.Device) -> None:
    with device.prepare(ADD).result() as prepared, prepared.burst() as burst:
        ten = ONES * 10
        kept = burst.keep(ten)
        ten[:] = 0
        assert not kept.flags.writeable
        for i in range(3):
            np.testing.assert_array_equal(burst.execute([ONES * i, kept])[0], ONES * i + 10)
        np.testing.assert_array_equal(burst.execute([kept, kept])[0], ONES * 20)
        other = burst.keep(ONES * 5)
        futures = [burst.submit([ONES, kept]), burst.submit([ONES, other]), burst.submit([kept, other])]
        assert [future.result(60)[0][0] for future in futures] == [11, 6, 15]
        burst.release(kept)
        burst.release(kept)
        np.testing.assert_array_equal(burst.execute([ONES, kept])[0], ONES * 11)
        np.testing.assert_array_equal(burst.execute([ONES, other])[0], ONES * 6)


def test_cached_input_after_a_failed_first_use(device: nnhal.Device) -> None:
    with device.prepare(ADD).result() as prepared, prepared.burst() as burst:
        kept = burst.keep(ONES)
        for _ in range(2):
            with pytest.raises(nnhal.HalError) as caught:
                burst.execute([ONES, kept], deadline=0)
            assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
        np.testing.assert_array_equal(burst.execute([ONES, kept])[0], ONES * 2)


def test_failed_executions_leave_the_burst_usable(device: nnhal.Device) -> None:
    with device.prepare(ADD).result() as prepared, prepared.burst() as burst:
        good = burst.submit([ONES, ONES])
        bad = burst.submit([ONES, np.ones(3, np.float32)])
        late = burst.submit([ONES, ONES], deadline=0)
        after = burst.submit([ONES, ONES])
        assert isinstance(bad.exception(10), nnhal.HalError)
        assert isinstance(late.exception(10), nnhal.HalError)
        np.testing.assert_array_equal(good.result(60)[0], after.result(60)[0])
        with pytest.raises(nnhal.HalError, match="1 inputs given"):
            burst.execute([ONES])


USES: dict[str, Callable[[Burst], object]] = {
    "send": lambda burst: burst.execute([ONES, ONES]),
    "receive": lambda burst: burst.execute([ONES, ONES]),
    "inputs": lambda burst: burst.inputs,
    "release": lambda burst: burst.release(burst.keep(ONES)),
}


@pytest.mark.parametrize("name", USES)
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupt_closes_the_burst(
    device: nnhal.Device, name: str, interrupt: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request may be half defined, or a result half read. Other bursts and calls go on."""

    def interrupted(*_: object) -> None:
        raise interrupt

    with device.prepare(ADD_FIXED).result() as prepared:
        burst, other = prepared.burst(), prepared.burst()
        pending = burst.submit([ONES, ONES])
        pending.result()
        monkeypatch.setattr(burst._burst.results.transport, name, interrupted)
        with pytest.raises(interrupt):
            USES[name](burst)
        for other_use in ("send", "inputs"):
            with pytest.raises(nnhal.HalError, match="an interrupt has closed the burst; open a new one"):
                USES[other_use](burst)
        burst.close()
        np.testing.assert_array_equal(other.execute([ONES, ONES])[0], ONES * 2)
        np.testing.assert_array_equal(prepared.execute([ONES, ONES])[0], ONES * 2)
        other.close()


def test_interrupt_between_a_result_and_its_removal(device: nnhal.Device) -> None:
    """The result that has arrived stays, and the others fail."""
    with device.prepare(ADD_FIXED).result() as prepared:
        burst = prepared.burst()
        results = burst._burst.results
        arrived, expected = PendingResult(), PendingResult()
        arrived.outputs = prepared.execute([ONES, ONES])
        results._in_progress.extend((PendingExecution((), arrived), PendingExecution((), expected)))

        results._fail(interrupted_error())
        assert arrived.error is None
        assert isinstance(expected.error, nnhal.HalError)
        assert not results._in_progress


def test_interrupt_between_the_outcome_of_a_submission_and_its_removal(device: nnhal.Device) -> None:
    """Its future keeps the outcome, and the next ones get theirs."""
    with device.prepare(ADD_FIXED).result() as prepared, prepared.burst() as burst:
        burst.submit([ONES, ONES]).result(30)
        settled = Submission(PendingExecution((), PendingResult()), burst._burst.results)
        settled.future.set_result(Outputs())
        burst._submissions.appendleft(settled)
        assert burst.submit([ONES, ONES]).result(30)[0][0] == 2
        assert not settled.future.result()


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupt_fails_what_was_submitted(
    device: nnhal.Device, interrupt: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise interrupt

    with device.prepare(ADD_FIXED).result() as prepared:
        burst = prepared.burst()
        monkeypatch.setattr(burst, "_read", lambda: None)  # so that this thread receives
        pending = [burst.submit([ONES, ONES]) for _ in range(3)]
        monkeypatch.setattr(burst._burst.results.transport, "receive", interrupted)
        with pytest.raises(interrupt):
            burst.close()
        burst.close()
        for future in pending:
            with pytest.raises(nnhal.HalError, match="an interrupt has closed the burst"):
                future.result(0)


def test_callback_closes_the_burst(device: nnhal.Device) -> None:
    with device.prepare(ADD_FIXED).result() as prepared:
        burst = prepared.burst()
        pending = [burst.submit([ONES * i, ONES]) for i in range(3)]
        pending[1].add_done_callback(lambda _: burst.close())
        for i, future in enumerate(pending):
            assert future.result(30)[0][0] == i + 1
        assert wait_until(lambda: burst._burst.closed, 30)


def test_threads_share_a_burst(device: nnhal.Device) -> None:
    with device.prepare(ADD_FIXED).result() as prepared, prepared.burst() as burst:

        def work(number: int) -> None:
            for i in range(40):
                x = ONES * (100 * number + i)
                run = burst.execute if i % 2 else (lambda inputs: burst.submit(inputs).result(30))
                np.testing.assert_array_equal(run([x, ONES])[0], x + 1)

        run_concurrently(6, work)


def test_closing_finishes_pending_executions(device: nnhal.Device) -> None:
    prepared = device.prepare(ADD).result()
    with prepared.burst() as burst:
        pending = [burst.submit([ONES, ONES]) for _ in range(10)]
    assert all(future.done() for future in pending)
    burst.close()
    with pytest.raises(nnhal.HalError, match="closed"):
        burst.execute([ONES, ONES])
    prepared.close()
    _ = device.version  # sends the pending release of the model
    with pytest.raises(nnhal.HalError) as caught:
        prepared.burst()
    assert caught.value.kind == ErrorKind.UNKNOWN_HANDLE


def test_burst_outlives_its_model(device: nnhal.Device) -> None:
    prepared = device.prepare(ADD).result()
    with prepared.burst() as burst:
        prepared.close()
        _ = device.backends()
        np.testing.assert_array_equal(burst.execute([ONES, ONES])[0], 2 * ONES)


def test_killed_service(tmp_path: Path, transport: Transport) -> None:
    service = start_service(tmp_path)
    device = nnhal.connect(service.target, transport=transport)
    burst = device.prepare(ADD).result().burst()
    burst.execute([ONES, ONES])
    service.process.kill()
    stop_service(service)
    device._session._timeout = 0.5  # only now: a busy service may need longer to respond
    for _ in range(2):
        with pytest.raises(nnhal.HalError) as caught:
            burst.execute([ONES, ONES])
        assert caught.value.status == ErrorStatus.DEVICE_UNAVAILABLE
    device.close()


def test_submissions_while_the_service_dies(tmp_path: Path, transport: Transport) -> None:
    """All of them fail, after waiting for the service once, not once for each."""
    service = start_service(tmp_path)
    device = nnhal.connect(service.target, transport=transport)
    with device.prepare(ADD_FIXED).result().burst() as burst:
        for _ in range(3):  # then the request is defined, and `submit` makes no call
            burst.execute([ONES, ONES])
        pids = [service.process.pid, *worker_pids(service.process.pid)]  # the first one replaces the others
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
            assert wait_until(partial(is_stopped, pid), 60)
        futures = [burst.submit([ONES, ONES]) for _ in range(BURST_DEPTH)]
        attempts = Counter[str]()
        reconnect = device._session.reconnect

        def counted(*args: Any, **options: Any) -> Any:
            attempts["reconnect"] += 1
            return reconnect(*args, **options)

        device._session.reconnect = counted  # type: ignore[method-assign]
        device._session._timeout = 0.5
        for pid in reversed(pids):
            os.kill(pid, signal.SIGKILL)
        stop_service(service)
        for future in futures:
            error = future.exception(60)
            assert isinstance(error, nnhal.HalError) and error.status == ErrorStatus.DEVICE_UNAVAILABLE
        assert attempts["reconnect"] == 1
    device.close()


# ---- asyncio ----------------------------------------------------------------------------------------------


async def test_asyncio(service: Service, transport: Transport) -> None:
    async with nnhal.aio.connect(service.target, transport=transport) as device:
        prepared = await device.prepare(ADD)
        async with prepared.burst() as burst:
            tasks = [burst.submit([ONES * i, ONES]) for i in range(100)]
            for i, task in enumerate(tasks):
                np.testing.assert_array_equal((await task)[0], ONES * i + 1)
            kept = burst.keep(ONES * 10)
            for i in range(3):
                np.testing.assert_array_equal((await burst.execute([ONES * i, kept]))[0], ONES * i + 10)
            await burst.release(kept)
            np.testing.assert_array_equal((await burst.execute([ONES, kept]))[0], ONES * 11)
            large = np.arange(1_000_000, dtype=np.float32)
            np.testing.assert_array_equal((await burst.execute([large, large]))[0], large + large)
            results = await asyncio.gather(
                burst.execute([ONES, ONES], deadline=0), burst.execute([ONES, ONES]), return_exceptions=True
            )
            assert isinstance(results[0], nnhal.HalError)
            assert not isinstance(results[1], BaseException)
        with pytest.raises(nnhal.HalError, match="closed"):
            await burst.execute([ONES, ONES])


async def test_asyncio_with_cancelled_tasks(service: Service, transport: Transport) -> None:
    """The other tasks get their own results."""
    async with nnhal.aio.connect(service.target, transport=transport) as device:
        prepared = await device.prepare(ADD_FIXED)
        async with prepared.burst() as burst:
            for round_ in range(20):
                tasks = [burst.submit([ONES * i, ONES * round_]) for i in range(8)]
                await asyncio.sleep(0.0005 * (round_ % 4))
                for task in tasks[::2]:
                    task.cancel()
                for i, task in enumerate(tasks):
                    if i % 2:
                        np.testing.assert_array_equal((await task)[0], ONES * (i + round_))


async def test_asyncio_with_a_killed_service(tmp_path: Path, transport: Transport) -> None:
    service = start_service(tmp_path)
    device = await nnhal.aio.connect(service.target, transport=transport)
    async with (await device.prepare(ADD)).burst() as burst:
        await burst.execute([ONES, ONES])
        service.process.kill()
        stop_service(service)
        device._session._timeout = 0.5  # only now: a busy service may need longer to respond
        for _ in range(2):
            with pytest.raises(nnhal.HalError) as caught:
                await asyncio.wait_for(burst.execute([ONES, ONES]), 20)
            assert caught.value.status == ErrorStatus.DEVICE_UNAVAILABLE
    await device.close()


def is_stopped(pid: int) -> bool:
    """Return whether SIGSTOP has reached all threads of a process."""
    return all(" (stopped)" in (task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir())


async def test_asyncio_executions_that_wait_while_the_service_dies(tmp_path: Path, transport: Transport) -> None:
    """Some are in progress, and more wait until they may be sent. All of them end."""
    service = start_service(tmp_path)
    device = await nnhal.aio.connect(service.target, transport=transport)
    burst = (await device.prepare(ADD_FIXED)).burst()
    async with burst:
        await burst.execute([ONES, ONES])
        for pid in worker_pids(service.process.pid):
            os.kill(pid, signal.SIGSTOP)
            assert wait_until(partial(is_stopped, pid), 60)
        tasks = [burst.submit([ONES, ONES]) for _ in range(3 * BURST_DEPTH)]
        await asyncio.sleep(0.1)
        assert not any(task.done() for task in tasks)
        device._session._timeout = 0.5
        service.process.kill()
        stop_service(service)
        for result in await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60):
            assert isinstance(result, nnhal.HalError) and result.status == ErrorStatus.DEVICE_UNAVAILABLE
    await device.close()


# ---- The contract -----------------------------------------------------------------------------------------


class RawStream:
    """An open Burst.Stream call."""

    def __init__(self, raw: RawSession) -> None:
        self._outbox: queue.SimpleQueue[burst_pb2.BurstStreamRequest | None] = queue.SimpleQueue()
        self.responses = burst_pb2_grpc.BurstStub(raw.channel).Stream(iter(self._outbox.get, None), timeout=60)

    def call(self, request: burst_pb2.BurstStreamRequest) -> burst_pb2.BurstStreamResponse:
        self.send(request)
        return next(self.responses)

    def send(self, request: burst_pb2.BurstStreamRequest | None) -> None:
        self._outbox.put(request)


@contextmanager
def open_burst(service: Service) -> Iterator[tuple[RawSession, bytes]]:
    """Configure a burst for a model that adds one. Yield its session and handle."""
    with open_raw_session(service.target) as raw:
        handle = list(raw.device.PrepareModel(prepare_request(raw, add_chain(1))))[1].notify.prepared_model
        request = prepared_model_pb2.PreparedModelRequest(session=raw.session, prepared_model=handle)
        yield raw, raw.prepared_model.ConfigureExecutionBurst(request).burst


def execution(
    raw: RawSession, burst: bytes, identifiers: list[int], value: float = 1.0
) -> burst_pb2.BurstExecuteRequest:
    request = execute_request(raw, b"", [np.full(2, value, np.float32)]).request
    return burst_pb2.BurstExecuteRequest(
        session=raw.session, burst=burst, request=request, memory_identifier_tokens=identifiers
    )


def value_of(result: types_pb2.ExecutionResult) -> float:
    return float(np.frombuffer(result.returned[0].inline, np.float32)[0])


def test_calls_without_a_stream(service: Service) -> None:
    with open_burst(service) as (raw, burst):
        stub = burst_pb2_grpc.BurstStub(raw.channel)
        assert value_of(stub.ExecuteSynchronously(execution(raw, burst, [5, -1]))) == 2
        later = execution(raw, burst, [5, -1])
        later.request.pools[0].Clear()
        assert value_of(stub.ExecuteSynchronously(later)) == 2
        with_config = burst_pb2.BurstExecuteWithConfigRequest(
            session=raw.session,
            burst=burst,
            request=later.request,
            memory_identifier_tokens=[5, -1],
            config=types_pb2.ExecutionConfig(measure_timing=True),
        )
        result = stub.ExecuteSynchronouslyWithConfig(with_config)
        assert value_of(result) == 2
        assert result.timing.time_on_device_ns > 0
        release = burst_pb2.ReleaseMemoryResourceRequest(session=raw.session, burst=burst, memory_identifier_token=5)
        stub.ReleaseMemoryResource(release)
        release.memory_identifier_token = -2
        for call in (
            lambda: stub.ExecuteSynchronously(later),
            lambda: stub.ReleaseMemoryResource(release),
            lambda: stub.ExecuteSynchronously(execution(raw, burst, [-2, -1])),
            lambda: stub.ExecuteSynchronously(execution(raw, burst, [-1])),
            lambda: stub.ExecuteSynchronously(execution(raw, burst, [-1] * 3)),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                call()
            assert error_detail(caught.value).status == ErrorStatus.INVALID_ARGUMENT


def test_stream(service: Service) -> None:
    with open_burst(service) as (raw, burst):
        stream = RawStream(raw)
        for value in range(20):  # several in flight
            stream.send(burst_pb2.BurstStreamRequest(execute=execution(raw, burst, [-1, -1], value)))
        assert [value_of(next(stream.responses).result) for _ in range(20)] == [value + 1 for value in range(20)]
        unnamed = execution(raw, burst, [3, -1], 7)
        unnamed.ClearField("session")
        unnamed.ClearField("burst")
        assert value_of(stream.call(burst_pb2.BurstStreamRequest(execute=unnamed)).result) == 8
        bad = stream.call(burst_pb2.BurstStreamRequest(execute=execution(raw, b"x" * 16, [-1, -1])))
        assert bad.error.kind == ErrorKind.UNKNOWN_HANDLE
        assert stream.call(burst_pb2.BurstStreamRequest()).error.status == ErrorStatus.INVALID_ARGUMENT
        release = burst_pb2.ReleaseMemoryResourceRequest(session=raw.session, burst=burst, memory_identifier_token=3)
        assert stream.call(burst_pb2.BurstStreamRequest(release=release)).HasField("released")
        unnamed.request.pools[0].Clear()
        assert stream.call(burst_pb2.BurstStreamRequest(execute=unnamed)).error.rule == "V-WIRE-07"
        stream.send(None)
        assert next(stream.responses, None) is None


def test_first_message_of_a_stream_must_name_its_session(service: Service) -> None:
    with open_burst(service) as (raw, _):
        stream = RawStream(raw)
        response = stream.call(burst_pb2.BurstStreamRequest(execute=burst_pb2.BurstExecuteRequest()))
        assert "must name its session" in response.error.reason
        stream.responses.cancel()


def test_stream_ends_with_its_session(service: Service) -> None:
    with open_burst(service) as (raw, burst):
        stream = RawStream(raw)
        stream.call(burst_pb2.BurstStreamRequest(execute=execution(raw, burst, [-1, -1])))
        raw.sessions.Close(session_pb2.CloseRequest(session=raw.session))
        with pytest.raises(grpc.RpcError) as caught:
            next(stream.responses)
        assert isinstance(caught.value, grpc.Call)
        assert caught.value.code() == grpc.StatusCode.CANCELLED
        other = RawStream(raw)
        with pytest.raises(grpc.RpcError) as caught:
            other.call(burst_pb2.BurstStreamRequest(execute=execution(raw, burst, [-1, -1])))
        assert error_detail(caught.value).kind == ErrorKind.SESSION_LOST


def test_limits(tmp_path: Path) -> None:
    limits = ("bursts=2", "burst_streams=2", "memory_bytes=1000", "burst_memories=3")
    service = start_service(tmp_path, *(f"--limit={limit}" for limit in limits))
    try:
        with open_burst(service) as (raw, burst):
            stub = burst_pb2_grpc.BurstStub(raw.channel)
            streams = [RawStream(raw) for _ in range(2)]
            message = burst_pb2.BurstStreamRequest(execute=execution(raw, burst, [-1, -1]))
            for stream in streams:
                stream.call(message)
            with pytest.raises(grpc.RpcError) as caught:
                RawStream(raw).call(message)
            assert error_detail(caught.value).limit == "burst_streams"
            streams[0].send(None)
            assert next(streams[0].responses, None) is None
            assert value_of(RawStream(raw).call(message).result) == 2
            # cached inputs count as memory of the client
            for number in range(3):
                stub.ExecuteSynchronously(execution(raw, burst, [number, -1]))
            with pytest.raises(grpc.RpcError) as caught:
                stub.ExecuteSynchronously(execution(raw, burst, [3, -1]))
            assert error_detail(caught.value).limit == "burst_memories"
            streams[1].responses.cancel()
    finally:
        assert stop_service(service) == 0


def test_cached_inputs_count_against_the_memory_limit(tmp_path: Path) -> None:
    service = start_service(tmp_path, "--limit=memory_bytes=20")
    try:
        with open_burst(service) as (raw, burst):
            stub = burst_pb2_grpc.BurstStub(raw.channel)
            for number in range(2):
                stub.ExecuteSynchronously(execution(raw, burst, [number, -1]))
            for _ in range(3):  # an input that is cached already is not counted again
                stub.ExecuteSynchronously(execution(raw, burst, [1, -1]))
            with pytest.raises(grpc.RpcError) as caught:
                stub.ExecuteSynchronously(execution(raw, burst, [2, -1]))
            assert error_detail(caught.value).limit == "memory_bytes"
            stub.ReleaseMemoryResource(
                burst_pb2.ReleaseMemoryResourceRequest(session=raw.session, burst=burst, memory_identifier_token=0)
            )
            stub.ExecuteSynchronously(execution(raw, burst, [2, -1]))
    finally:
        assert stop_service(service) == 0


# ---- Without copies -------------------------------------------------------------------------------------


def test_outputs_that_are_not_copied(service: Service, transport: Transport) -> None:
    with (
        nnhal.connect(service.target, transport=transport) as device,
        device.prepare(ADD).result() as prepared,
        prepared.burst() as burst,
    ):
        for size in (4, 100_000, 4):  # the shape of the output is not fixed, and large ones do not fit at first
            for value in range(4):
                x = np.full(size, value, np.float32)
                np.testing.assert_array_equal(burst.execute([x, x], copy=False)[0], 2 * x)
                kept = burst.execute([x, x])[0]
                burst.execute([x + 1, x], copy=False)
                np.testing.assert_array_equal(kept, 2 * x)


def test_inputs_that_are_written_in_place(service: Service, transport: Transport) -> None:
    with (
        nnhal.connect(service.target, transport=transport) as device,
        device.prepare(ADD_FIXED).result() as prepared,
        prepared.burst() as burst,
    ):
        waiting = []
        for value in range(40):  # more than may be in progress
            a, b = inputs = burst.inputs
            a[:], b[:] = value, 1
            if value % 3:
                np.testing.assert_array_equal(burst.execute(inputs, copy=False)[0], np.full(4, value + 1))
            else:
                waiting.append((value, burst.submit(inputs)))
        other = np.full(4, 7, np.float32)
        burst.inputs[0][:] = 1000  # not executed
        np.testing.assert_array_equal(burst.execute([other, other])[0], other * 2)
        for value, future in waiting:
            np.testing.assert_array_equal(future.result()[0], np.full(4, value + 1))


def test_inputs_in_place_are_in_shared_memory(service: Service) -> None:
    with nnhal.connect(service.target) as device, device.prepare(ADD_FIXED).result() as prepared:
        with prepared.burst() as burst:
            inputs = burst.inputs
            outputs = burst.execute(inputs, copy=False)
            first, last = sorted([inputs[0].ctypes.data, outputs[0].ctypes.data])
            assert last - first < 2**16
        inputs[0][:] = 1  # the memory stays as long as its arrays
        np.testing.assert_array_equal(outputs[0], np.zeros(4))


def test_executions_one_after_another_share_their_memory(service: Service) -> None:
    """Each further slot costs both processes the size of the tensors."""
    with (
        nnhal.connect(service.target) as device,
        device.prepare(ADD_FIXED).result() as prepared,
        prepared.burst() as burst,
    ):
        addresses = set()
        for value in range(6):
            inputs = burst.inputs
            inputs[0][:] = inputs[1][:] = value
            np.testing.assert_array_equal(burst.execute(inputs, copy=False)[0], np.full(4, 2 * value))
            addresses.add(inputs[0].ctypes.data)
            with pytest.raises(nnhal.HalError):  # a failure frees its slot, too
                burst.execute(inputs, deadline=1e-9)
        assert len(addresses) == 1


def test_inputs_in_place_need_fixed_shapes(service: Service) -> None:
    with (
        nnhal.connect(service.target) as device,
        device.prepare(ADD).result() as prepared,
        prepared.burst() as burst,
        pytest.raises(nnhal.HalError, match="does not fix the shape of input 0"),
    ):
        _ = burst.inputs
