"""The asyncio client against a real service. `tests/end_to_end/service/test_service.py` tests the synchronous one."""

import asyncio
from collections.abc import AsyncIterator
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
from tests.concurrency import wait_until
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.support.models import chain
from tests.end_to_end.support.raw_client import error_detail
from tests.end_to_end.support.service_process import Service, start_service, stop_running, stop_service

X = tensor(T.TENSOR_FLOAT32, (0, 3))
ADD = model_of(Op.ADD, [(X, 0), (X, 0), int32(0)], [X], constants=False)
ONES = np.ones((2, 3), np.float32)
BUSY_LENGTH = 500
"""Operations of a model that keeps a preparation thread busy."""


@pytest.fixture
async def device(service: Service) -> AsyncIterator[nnhal.aio.Device]:
    async with nnhal.aio.connect(service.target) as connected:
        yield connected


async def wait_for_log(service: Service, text: str) -> None:
    """Wait until the service logs a text."""
    assert await asyncio.to_thread(wait_until, lambda: service.logged(text)), f"the service has not logged {text!r}"


async def test_description_of_the_device(device: nnhal.aio.Device) -> None:
    assert ((await device.type()).name, await device.interface_version()) == ("CPU", 4)
    assert [extension.name for extension in await device.extensions()] == ["org.nnhal.litert"]
    assert "CpuRef" in await device.version()
    assert (await device.capabilities()).if_performance.exec_time > 0
    assert [backend.id for backend in await device.backends()] == ["CpuAcc", "CpuRef"]
    assert await device.supported_operations(ADD) == [True]


async def test_connect_can_be_awaited_or_used_as_context_manager(service: Service) -> None:
    device = await nnhal.aio.connect(service.target)
    async with device, await device.prepare(ADD) as prepared:
        np.testing.assert_array_equal((await prepared.execute([ONES, ONES]))[0], 2 * ONES)


async def test_unknown_device_is_rejected(service: Service) -> None:
    with pytest.raises(nnhal.HalError, match="no device 'other'"):
        await nnhal.aio.connect(service.target, device="other")


async def test_no_service_at_the_address() -> None:
    with pytest.raises(nnhal.DeadObjectError, match=r"no response from 127\.0\.0\.1:1: connection refused"):
        await nnhal.aio.connect("127.0.0.1:1", timeout=0.2)


async def test_names_and_timing(device: nnhal.aio.Device) -> None:
    prepared = await device.prepare(chain(3))
    assert (prepared.input_names, prepared.output_names) == (("x",), ("y",))
    assert [operation.backend for operation in prepared.placement.operations] == ["CpuAcc"] * 3
    outputs = await prepared.execute({"x": [1, 2]}, measure_timing=True)
    np.testing.assert_array_equal(outputs["y"], [8, 16])
    assert 0 < outputs.timing.time_on_device_ns <= outputs.timing.time_in_driver_ns
    outputs[0][0] = 1  # the caller owns the outputs


async def test_inputs_of_another_type_are_rejected(device: nnhal.aio.Device) -> None:
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


async def test_concurrent_preparations_and_executions(device: nnhal.aio.Device) -> None:
    async def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        prepared = await device.prepare(ADD)
        pairs = rng.standard_normal((8, 2, 5, 3)).astype(np.float32)
        outputs = await asyncio.gather(*(prepared.execute(list(pair)) for pair in pairs))
        np.testing.assert_array_equal([output[0] for output in outputs], pairs.sum(axis=1))

    await asyncio.gather(*map(work, range(25)))


def watch_low_priority_launch(device: nnhal.aio.Device, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Return an event that is set when a preparation of low priority has been launched."""
    launched = asyncio.Event()
    stream = device._connection.stream

    async def watched(method: Any, request: Any) -> AsyncIterator[Any]:
        async for event in stream(method, request):
            if request.priority == Priority.LOW and event.WhichOneof("event") == "launched":
                launched.set()
            yield event

    monkeypatch.setattr(device._connection, "stream", watched)
    return launched


async def test_cancelling_a_waiting_preparation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    service = start_service(tmp_path)
    try:
        async with nnhal.aio.connect(service.target) as device:
            launched = watch_low_priority_launch(device, monkeypatch)
            # both preparation threads are busy, so the last preparation is still queued when it is cancelled
            busy = [asyncio.create_task(device.prepare(chain(BUSY_LENGTH))) for _ in range(6)]
            waiting = asyncio.create_task(device.prepare(chain(BUSY_LENGTH), priority=Priority.LOW))
            await launched.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            for prepared in await asyncio.gather(*busy):
                assert len(prepared.placement.operations) == BUSY_LENGTH
            await wait_for_log(service, "cancelled by the client")
    finally:
        stop_service(service)


def endless() -> Model:
    """Return a model with a loop that only ends by its timeout."""
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


async def test_cancelling_an_execution_leaves_the_device_usable(device: nnhal.aio.Device) -> None:
    prepared = await device.prepare(endless())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await prepared.execute([[1]])
    assert (await (await device.prepare(chain(1))).execute([[1, 2]]))[0].tolist() == [2, 4]


async def test_lost_session_is_replaced(service: Service, device: nnhal.aio.Device) -> None:
    prepared = await device.prepare(ADD)
    buffer = await device.allocate(outputs=[(prepared, 0)])
    async with grpc.aio.insecure_channel(service.target) as channel:
        sessions = session_pb2_grpc.SessionStub(channel)
        await sessions.Close(session_pb2.CloseRequest(session=device._connection.session))
    assert (await prepared.execute([ONES, ONES]))[0].tolist() == (2 * ONES).tolist()
    await (await device.prepare(ADD)).close()
    assert await device.supported_operations(ADD) == [True]
    with pytest.raises(nnhal.SessionLostError) as caught:
        await buffer.read()
    assert caught.value.kind == ErrorKind.SESSION_LOST


async def test_killed_service_raises_dead_object_error(tmp_path: Path) -> None:
    service = start_service(tmp_path)
    async with nnhal.aio.connect(service.target) as device:
        prepared = await device.prepare(ADD)
        stop_running(service.pid)
        running = asyncio.create_task(prepared.execute([ONES, ONES]))
        await asyncio.sleep(0.1)  # any time is right: the service is stopped
        device._session._timeout = 0.5  # only now: a busy service may need longer to respond
        service.process.kill()
        with pytest.raises(nnhal.DeadObjectError):
            await running
        for call in (lambda: prepared.execute([ONES, ONES]), lambda: device.prepare(ADD), device.version):
            with pytest.raises(nnhal.DeadObjectError):
                await call()
    assert service.process.wait(10) != 0
    assert service.process.stdout is not None
    service.process.stdout.close()


async def test_closed_device_raises_session_lost_error(service: Service) -> None:
    device = await nnhal.aio.connect(service.target)
    prepared = await device.prepare(endless())
    running = asyncio.create_task(prepared.execute([[1]]))
    await asyncio.sleep(0.1)
    await device.close()
    await device.close()
    # the session ended during the execution; this does not cancel the task
    with pytest.raises(nnhal.HalError):
        await running
    with pytest.raises(nnhal.SessionLostError, match="has been closed"):
        await prepared.execute([[1]])
    with pytest.raises(nnhal.SessionLostError, match="has been closed"):
        await device.prepare(ADD)


async def test_closing_a_model_releases_its_handle(service: Service, device: nnhal.aio.Device) -> None:
    prepared = await device.prepare(ADD)
    handle = prepared._handle
    await prepared.close()
    await device.version()
    with pytest.raises(nnhal.HalError) as caught:
        await prepared.execute([ONES, ONES])
    assert caught.value.kind == ErrorKind.UNKNOWN_HANDLE
    assert handle


async def test_error_details_survive_both_kinds_of_channels(service: Service) -> None:
    """The details are in the trailers of synchronous and asyncio channels."""
    async with grpc.aio.insecure_channel(service.target) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await session_pb2_grpc.SessionStub(channel).Close(session_pb2.CloseRequest(session=b"x"))
    from nnhal.client.core.rpc_errors import hal_error

    error = hal_error(caught.value)
    assert isinstance(error, nnhal.SessionLostError)
    with grpc.insecure_channel(service.target) as plain, pytest.raises(grpc.RpcError) as failed:
        session_pb2_grpc.SessionStub(plain).Close(session_pb2.CloseRequest(session=b"x"))
    assert error.reason == error_detail(failed.value).reason
