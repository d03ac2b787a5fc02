"""The asyncio client against a real service: what tests/end_to_end/test_service.py holds for the synchronous one."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal import ModelBuilder
from nnhal.types import ErrorKind, ErrorStatus, Model, Operand, Priority
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import session_pb2, session_pb2_grpc
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.conftest import Service, start, stop
from tests.end_to_end.raw import detail

X = tensor(T.TENSOR_FLOAT32, (0, 3))
ADD = model_of(Op.ADD, [(X, 0), (X, 0), int32(0)], [X], constants=False)
ONES = np.ones((2, 3), np.float32)


def chain(length: int, operation: int = Op.ADD) -> Model:
    """x -> x + x, again and again."""
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [2], name="x")
    for _ in range(length):
        x = b.add(operation, x, x, 0, output=Operand(T.TENSOR_FLOAT32, (2,)))
    b.output(x, name="y")
    return b.build()


@pytest.fixture
async def device(service: Service) -> AsyncIterator[nnhal.aio.Device]:
    async with nnhal.aio.connect(service.target) as connected:
        yield connected


async def logs(service: Service, text: str) -> None:
    """Waits until the service logs a text."""
    until = time.monotonic() + 10
    while not service.logged(text):
        assert time.monotonic() < until, f"never logged: {text}"
        await asyncio.sleep(0.02)


async def test_what_a_device_says(device: nnhal.aio.Device) -> None:
    assert ((await device.type()).name, await device.interface_version(), await device.extensions()) == ("CPU", 4, ())
    assert "CpuRef" in await device.version()
    assert (await device.capabilities()).if_performance.exec_time > 0
    assert [backend.id for backend in await device.backends()] == ["CpuAcc", "CpuRef"]
    assert await device.supported_operations(ADD) == [True]


async def test_connect_is_awaited_or_entered(service: Service) -> None:
    device = await nnhal.aio.connect(service.target)
    async with device, await device.prepare(ADD) as prepared:
        np.testing.assert_array_equal((await prepared.execute([ONES, ONES]))[0], 2 * ONES)


async def test_an_unknown_device_is_refused(service: Service) -> None:
    async with nnhal.aio.connect(service.target, device="other") as device:
        with pytest.raises(nnhal.HalError, match="no device 'other'"):
            await device.version()


async def test_nobody_listens() -> None:
    with pytest.raises(nnhal.DeadObjectError, match=r"127\.0\.0\.1:1 did not answer within 0\.2 s"):
        await nnhal.aio.connect("127.0.0.1:1", timeout=0.2)


async def test_names_and_timing(device: nnhal.aio.Device) -> None:
    prepared = await device.prepare(chain(3))
    assert (prepared.input_names, prepared.output_names) == (("x",), ("y",))
    assert [operation.backend for operation in prepared.placement.operations] == ["CpuAcc"] * 3
    outputs = await prepared.execute({"x": [1, 2]}, measure_timing=True)
    np.testing.assert_array_equal(outputs["y"], [8, 16])
    assert 0 < outputs.timing.time_on_device_ns <= outputs.timing.time_in_driver_ns
    outputs[0][0] = 1  # outputs are the caller's own


async def test_inputs_that_do_not_fit_are_refused(device: nnhal.aio.Device) -> None:
    prepared = await device.prepare(ADD)
    with pytest.raises(nnhal.HalError, match="input 1 is float64; the model takes float32") as caught:
        await prepared.execute([ONES, ONES.astype(np.float64)])
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT


async def test_launch_and_callback_errors(device: nnhal.aio.Device) -> None:
    with pytest.raises(nnhal.HalError, match="operation 0 of main") as caught:
        await device.prepare(model_of(Op.RELU, [(X, 0), (X, 0)], [X], constants=False))
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, "V-OPERATION-04")
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [2])
    b.output(b.add(b.extension("org.example.test").operation_type(7), x, output=x.description))
    assert await device.supported_operations(b.build()) == [False]
    with pytest.raises(nnhal.HalError) as caught:
        await device.prepare(b.build())
    assert caught.value.status == ErrorStatus.GENERAL_FAILURE


async def test_deadlines(device: nnhal.aio.Device) -> None:
    with pytest.raises(nnhal.HalError) as caught:
        await device.prepare(chain(1), deadline=0)
    assert caught.value.status in (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT)
    prepared = await device.prepare(chain(1000))
    with pytest.raises(nnhal.HalError) as caught:
        await prepared.execute([[1, 2]], deadline=1e-9)
    assert caught.value.status in (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT)


async def test_many_tasks_prepare_and_execute_at_once(device: nnhal.aio.Device) -> None:
    async def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        prepared = await device.prepare(ADD)
        pairs = rng.standard_normal((8, 2, 5, 3)).astype(np.float32)
        outputs = await asyncio.gather(*(prepared.execute(list(pair)) for pair in pairs))
        np.testing.assert_array_equal([output[0] for output in outputs], pairs.sum(axis=1))

    await asyncio.gather(*map(work, range(25)))


def launches(device: nnhal.aio.Device, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Tells when a preparation of low priority has been launched."""
    launched = asyncio.Event()
    stream = device._connection.stream

    async def watched(method: Any, request: Any) -> AsyncIterator[Any]:
        async for event in stream(method, request):
            if request.priority == Priority.LOW and event.WhichOneof("event") == "launched":
                launched.set()
            yield event

    monkeypatch.setattr(device._connection, "stream", watched)
    return launched


async def test_cancelling_a_preparation_abandons_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = start(tmp_path)
    try:
        async with nnhal.aio.connect(service.target) as device:
            launched = launches(device, monkeypatch)
            # both preparing threads are kept busy, so that the last preparation is still waiting when it is cancelled
            busy = [asyncio.create_task(device.prepare(chain(1500))) for _ in range(6)]
            waiting = asyncio.create_task(device.prepare(chain(1500), priority=Priority.LOW))
            await launched.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            for prepared in await asyncio.gather(*busy):
                assert len(prepared.placement.operations) == 1500
            await logs(service, "cancelled by the client")
    finally:
        stop(service)


def endless() -> Model:
    """A loop that ends by its timeout only."""
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [1])
    with b.subgraph() as condition:
        c = condition.input(T.TENSOR_FLOAT32, [1])
        condition.output(condition.add(Op.EQUAL, c, c, output=Operand(T.TENSOR_BOOL8, (1,))))
    with b.subgraph() as body:
        y = body.input(T.TENSOR_FLOAT32, [1])
        body.output(body.add(Op.ADD, y, np.zeros(1, np.float32), 0, output=y.description))
    b.output(b.add(Op.WHILE, condition, body, x, output=x.description))
    return b.build()


async def test_a_cancelled_execution_ends_and_the_device_goes_on(device: nnhal.aio.Device) -> None:
    prepared = await device.prepare(endless())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await prepared.execute([[1]])
    assert (await (await device.prepare(chain(1))).execute([[1, 2]]))[0].tolist() == [2, 4]


async def test_a_lost_session_says_so(service: Service, device: nnhal.aio.Device) -> None:
    prepared = await device.prepare(ADD)
    async with grpc.aio.insecure_channel(service.target) as channel:
        sessions = session_pb2_grpc.SessionStub(channel)
        await sessions.Close(session_pb2.CloseRequest(session=device._connection.session))
    acts: list[Callable[[], Awaitable[object]]] = [
        lambda: prepared.execute([ONES, ONES]),
        lambda: device.prepare(ADD),
        lambda: device.supported_operations(ADD),
    ]
    for act in acts:
        with pytest.raises(nnhal.SessionLostError) as caught:
            await act()
        assert caught.value.kind == ErrorKind.SESSION_LOST


async def test_a_dead_service_says_so(tmp_path: Path) -> None:
    service = start(tmp_path)
    async with nnhal.aio.connect(service.target) as device:
        prepared = await device.prepare(endless())
        running = asyncio.create_task(prepared.execute([[1]]))
        await asyncio.sleep(0.1)
        service.process.kill()
        with pytest.raises(nnhal.DeadObjectError):
            await running
        for act in (lambda: prepared.execute([[1]]), lambda: device.prepare(ADD), device.version):
            with pytest.raises(nnhal.DeadObjectError):
                await act()
    assert service.process.wait(10) != 0
    assert service.process.stdout is not None
    service.process.stdout.close()


async def test_a_closed_device_says_so(service: Service) -> None:
    device = await nnhal.aio.connect(service.target)
    prepared = await device.prepare(endless())
    running = asyncio.create_task(prepared.execute([[1]]))
    await asyncio.sleep(0.1)
    await device.close()
    await device.close()
    # the session ended while it ran: that is no cancellation of this task
    with pytest.raises(nnhal.HalError):
        await running
    with pytest.raises(nnhal.SessionLostError, match="has been closed"):
        await prepared.execute([[1]])
    with pytest.raises(nnhal.SessionLostError, match="has been closed"):
        await device.prepare(ADD)


async def test_what_is_closed_or_cancelled_is_released(service: Service, device: nnhal.aio.Device) -> None:
    prepared = await device.prepare(ADD)
    handle = prepared._handle
    await prepared.close()
    await device.version()
    with pytest.raises(nnhal.HalError) as caught:
        await prepared.execute([ONES, ONES])
    assert caught.value.kind == ErrorKind.UNKNOWN_HANDLE
    assert handle


async def test_an_error_of_the_service_keeps_its_details(service: Service) -> None:
    """The trailers of both kinds of channels are read."""
    async with grpc.aio.insecure_channel(service.target) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await session_pb2_grpc.SessionStub(channel).Close(session_pb2.CloseRequest(session=b"x"))
    from nnhal.failures import hal_error

    error = hal_error(caught.value)
    assert isinstance(error, nnhal.SessionLostError)
    with grpc.insecure_channel(service.target) as plain, pytest.raises(grpc.RpcError) as failed:
        session_pb2_grpc.SessionStub(plain).Close(session_pb2.CloseRequest(session=b"x"))
    assert error.reason == detail(failed.value).reason
