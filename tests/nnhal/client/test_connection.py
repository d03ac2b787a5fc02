"""Retries, uploads and releases of both clients, against a service that fails."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import grpc
import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal import ModelBuilder
from nnhal.client.core.reconnect import MAX_RETRIES
from nnhal.client.sync.grpc_calls import _INTERRUPTED
from nnhal.types import DeviceType, Memory, Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import (
    device_pb2,
    device_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
    prepared_model_pb2,
    prepared_model_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    types_pb2,
)
from nnhal.v1.enums_pb2 import DEVICE_TYPE_GPU, OPERAND_TYPE_TENSOR_FLOAT32
from tests.concurrency import run_concurrently
from tests.other_server import listening

FLOATS = types_pb2.Operand(type=OPERAND_TYPE_TENSOR_FLOAT32, dimensions=[0])
LARGE = np.ones(20000, np.float32)
TOO_LARGE = np.ones(600_000, np.float32)
"""Too large for a message. LARGE is only too large for a constant in a message."""
READS = {"capabilities", "type", "version", "interface_version", "extensions", "backends"}


class FlakyService(
    device_pb2_grpc.DeviceServicer,
    memory_pb2_grpc.MemoryServiceServicer,
    prepared_model_pb2_grpc.PreparedModelServicer,
    session_pb2_grpc.SessionServicer,
):
    """Service that fails the first `failures` calls of each kind. Counts calls and tracks handles."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.failures = 0
        self.handles: set[bytes] = set()
        self.fails_uploads = False

    def _new_handle(self, name: str) -> bytes:
        handle = f"{name} {self.calls[name]}".encode()
        self.handles.add(handle)
        return handle

    def _count(self, name: str, context: grpc.ServicerContext) -> None:
        self.calls[name] += 1
        if self.calls[name] <= self.failures:
            context.abort(grpc.StatusCode.UNAVAILABLE, "the network is gone")

    def Open(
        self, request: session_pb2.OpenRequest, context: grpc.ServicerContext
    ) -> Iterator[session_pb2.SessionEvent]:
        yield session_pb2.SessionEvent(opened=session_pb2.SessionOpened(session=b"session"))

    def Close(self, request: session_pb2.CloseRequest, context: grpc.ServicerContext) -> session_pb2.CloseResponse:
        return session_pb2.CloseResponse()

    def Release(
        self, request: session_pb2.ReleaseRequest, context: grpc.ServicerContext
    ) -> session_pb2.ReleaseResponse:
        self._count("release", context)
        self.handles.difference_update(request.handles)
        return session_pb2.ReleaseResponse()

    def GetCapabilities(
        self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext
    ) -> types_pb2.Capabilities:
        self._count("capabilities", context)
        return types_pb2.Capabilities()

    def GetType(self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext) -> device_pb2.GetTypeResponse:
        self._count("type", context)
        return device_pb2.GetTypeResponse(type=DEVICE_TYPE_GPU)

    def GetVersionString(
        self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext
    ) -> device_pb2.GetVersionStringResponse:
        self._count("version", context)
        return device_pb2.GetVersionStringResponse()

    def GetInterfaceVersion(  # type: ignore[override]
        self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext
    ) -> device_pb2.GetInterfaceVersionResponse:
        self._count("interface_version", context)
        return device_pb2.GetInterfaceVersionResponse()

    def GetSupportedExtensions(
        self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext
    ) -> device_pb2.GetSupportedExtensionsResponse:
        self._count("extensions", context)
        return device_pb2.GetSupportedExtensionsResponse()

    def ListBackends(
        self, request: device_pb2.DeviceRequest, context: grpc.ServicerContext
    ) -> device_pb2.ListBackendsResponse:
        self._count("backends", context)
        return device_pb2.ListBackendsResponse()

    def GetSupportedOperations(
        self, request: device_pb2.GetSupportedOperationsRequest, context: grpc.ServicerContext
    ) -> device_pb2.GetSupportedOperationsResponse:
        self._count("supported_operations", context)
        return device_pb2.GetSupportedOperationsResponse()

    def PrepareModel(
        self, request: device_pb2.PrepareModelRequest, context: grpc.ServicerContext
    ) -> Iterator[device_pb2.PrepareModelEvent]:
        self._count("prepare", context)
        notify = device_pb2.Notify(prepared_model=self._new_handle("prepare"), inputs=[FLOATS], outputs=[FLOATS])
        yield device_pb2.PrepareModelEvent(notify=notify)

    def ExecuteSynchronously(
        self, request: prepared_model_pb2.ExecuteSynchronouslyRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        self._count("execute", context)
        shapes = [types_pb2.OutputShape(dimensions=[2], is_sufficient=True)]
        returned = [types_pb2.ReturnedOutput(memory=self._new_handle("execute"))]
        return types_pb2.ExecutionResult(output_sufficient_size=True, output_shapes=shapes, returned=returned)

    def Create(
        self, request: memory_pb2.CreateMemoryRequest, context: grpc.ServicerContext
    ) -> memory_pb2.CreateMemoryResponse:
        self._count("create", context)
        return memory_pb2.CreateMemoryResponse(memory=self._new_handle("create"))

    def Upload(
        self, request_iterator: Iterator[memory_pb2.UploadRequest], context: grpc.ServicerContext
    ) -> memory_pb2.UploadResponse:
        self._count("upload", context)
        if self.fails_uploads:
            context.abort(grpc.StatusCode.INTERNAL, "no room")
        return memory_pb2.UploadResponse(written=sum(len(request.data) for request in request_iterator))

    def Read(self, request: memory_pb2.ReadRequest, context: grpc.ServicerContext) -> Iterator[memory_pb2.ReadResponse]:
        assert request.memory in self.handles
        yield memory_pb2.ReadResponse(data=bytes(4))
        yield memory_pb2.ReadResponse(data=np.float32(1).tobytes())


@pytest.fixture
def flaky() -> Iterator[tuple[FlakyService, str]]:
    """Yield a service that fails, and its address."""
    servicer = FlakyService()  # type: ignore[abstract]
    server = grpc.server(ThreadPoolExecutor(8))
    for add in (
        device_pb2_grpc.add_DeviceServicer_to_server,
        memory_pb2_grpc.add_MemoryServiceServicer_to_server,
        prepared_model_pb2_grpc.add_PreparedModelServicer_to_server,
        session_pb2_grpc.add_SessionServicer_to_server,
    ):
        add(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield servicer, f"127.0.0.1:{port}"
    server.stop(0).wait()


def small_model() -> Model:
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [2])
    b.output(b.add(Op.RELU, x, output=Operand(T.TENSOR_FLOAT32, (2,))))
    return b.build()


def model_with_large_constant() -> Model:
    """Return a model with a constant that needs a Memory object."""
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [20000])
    b.output(b.add(Op.ADD, x, LARGE, 0, output=Operand(T.TENSOR_FLOAT32, (20000,))))
    model = b.build()
    assert isinstance(model.pools[0], Memory)
    return model


def model_with_many_pools() -> Model:
    """Return a model with 1 MiB of operand values and 30 pools of 60 KiB; 17 of the pools fit into the message."""
    pools = tuple(Memory.of(np.zeros(60 * 1024, np.uint8)) for _ in range(30))
    return replace(small_model(), operand_values=bytes(2**20), pools=pools)


def finished(result: object) -> object:
    """Return the result of a preparation, or anything else as it is."""
    return result.result(10) if isinstance(result, nnhal.Preparation) else result


# ---- The synchronous client -----------------------------------------------------------------------------


def test_queries_are_retried_once(flaky: tuple[FlakyService, str]) -> None:
    servicer, target = flaky
    servicer.failures = 1
    with nnhal.connect(target) as device:
        assert device.type == DeviceType.GPU
        for name in READS - {"backends"}:
            getattr(device, name)
        device.backends()
        assert dict(servicer.calls) == dict.fromkeys(READS, 2)


def test_queries_are_not_retried_twice(flaky: tuple[FlakyService, str]) -> None:
    servicer, target = flaky
    servicer.failures = 2
    with nnhal.connect(target) as device:
        with pytest.raises(nnhal.DeadObjectError, match="the network is gone"):
            _ = device.type
        assert servicer.calls["type"] == 2


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("prepare", lambda device: device.prepare(small_model()).result(10)),
        ("supported_operations", lambda device: device.supported_operations(small_model())),
        ("create", lambda device: device.prepare(model_with_large_constant()).result(10)),
    ],
)
def test_work_is_repeated_when_its_call_is_lost(
    flaky: tuple[FlakyService, str], name: str, act: Callable[[nnhal.Device], object]
) -> None:
    servicer, target = flaky
    servicer.failures = 1
    with nnhal.connect(target) as device:
        act(device)
    assert servicer.calls[name] > 1


@pytest.mark.parametrize("name", ["prepare", "execute"])
def test_work_is_repeated_a_limited_number_of_times(flaky: tuple[FlakyService, str], name: str) -> None:
    servicer, target = flaky
    with nnhal.connect(target) as device:
        prepared = device.prepare(small_model()).result(10)
        before, servicer.failures = servicer.calls[name], 100
        servicer.calls["release"] = 100
        with pytest.raises(nnhal.DeadObjectError):
            prepared.execute([[1]]) if name == "execute" else device.prepare(small_model()).result(10)
    assert servicer.calls[name] - before == 1 + MAX_RETRIES


def test_execution_is_repeated_when_its_call_is_lost(flaky: tuple[FlakyService, str]) -> None:
    servicer, target = flaky
    with nnhal.connect(target) as device:
        prepared = device.prepare(small_model()).result(10)
        servicer.failures = 1
        prepared.execute([[1]])
    assert servicer.calls["execute"] == 2


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_session_goes_on_after_an_interrupt(flaky: tuple[FlakyService, str], interrupt: type[BaseException]) -> None:
    """An interrupt may leave gRPC's channel locked, so that no call on it ever ends. So it is not used again."""
    servicer, target = flaky

    def interrupted(_: object) -> Iterator[object]:
        raise interrupt

    with nnhal.connect(target) as device:
        prepared = device.prepare(small_model()).result(10)
        connection = device._connection
        used, stub, session = connection._channel, connection.device, connection.session
        with pytest.raises(interrupt):
            connection.call(interrupted, None)
        assert connection._channel is not used and connection.device is not stub and connection.session == session
        assert prepared.execute([[1]])[0].shape == (2,)
        assert device.prepare(small_model()).result(10).inputs[0].shape == (0,)
        with pytest.raises(interrupt):
            list(connection.stream(interrupted, None))
        assert device.type == DeviceType.GPU
    assert servicer.calls["execute"] == 1


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupted_release_is_retried_on_another_channel(
    flaky: tuple[FlakyService, str], interrupt: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    servicer, target = flaky

    def interrupted(*_: object) -> None:
        raise interrupt

    with nnhal.connect(target) as device:
        device.prepare(small_model()).result(10).close()
        used = device._connection._channel
        monkeypatch.setattr(device._connection._sessions, "Release", interrupted)
        with pytest.raises(interrupt):
            _ = device.type
        assert device._connection._channel is not used
        assert device.type == DeviceType.GPU
    assert servicer.calls["release"] == 1


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupted_connect(interrupt: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    """The interrupt may come before the stream of the session is known."""

    def interrupted(*_: object, **__: object) -> None:
        raise interrupt

    monkeypatch.setattr(grpc.UnaryStreamMultiCallable, "__call__", interrupted)
    for multi_callable in grpc.UnaryStreamMultiCallable.__subclasses__():
        monkeypatch.setattr(multi_callable, "__call__", interrupted)
    with pytest.raises(interrupt):
        nnhal.connect("127.0.0.1:1")


def test_waiting_for_the_sockets_of_a_killed_service_holds_no_lock(
    flaky: tuple[FlakyService, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads may close the connection meanwhile."""
    _, target = flaky
    device = nnhal.connect(target)
    connection = device._connection
    waits = iter([1.0])

    def close_in_another_thread(_: float) -> None:
        run_concurrently(1, lambda _: connection.close())

    monkeypatch.setattr(connection._user, "settling_s", lambda *_: next(waits, 0.0))
    monkeypatch.setattr("nnhal.client.sync.connection.sleep", close_in_another_thread)
    connection._resume(connection._stream, grpc.StatusCode.UNAVAILABLE)
    with pytest.raises(nnhal.SessionLostError):
        connection.flush_releases()
    device.close()


def test_call_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client gives it up after its timeout, and does not close its channel, which would wait for the call."""
    released = threading.Event()

    class LostCall:
        def __iter__(self) -> "LostCall":
            return self

        def __next__(self) -> object:
            released.wait()
            raise StopIteration

        def cancel(self) -> None:
            pass

    def close(_: object) -> None:
        raise AssertionError

    lost = LostCall()
    for multi_callable in grpc.UnaryStreamMultiCallable.__subclasses__():
        monkeypatch.setattr(multi_callable, "__call__", lambda *_, **__: lost)
    monkeypatch.setattr("grpc._channel.Channel.close", close)
    monkeypatch.setattr("nnhal.client.sync.grpc_calls._CANCEL_S", 0.01)
    with (
        listening(b"") as target,
        pytest.raises(nnhal.DeadObjectError, match=f"no response from {target} within 0.1 s, though a connection"),
    ):
        nnhal.connect(target, timeout=0.1)
    assert any(kept is lost for kept in _INTERRUPTED)
    released.set()


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupted_close_makes_no_other_call(
    flaky: tuple[FlakyService, str], interrupt: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The channel stays open, because a call that closes it may never end."""
    _, target = flaky

    def interrupted(*_: object, **__: object) -> None:
        raise interrupt

    device = nnhal.connect(target)
    channel = device._connection._channel
    monkeypatch.setattr(device._connection._sessions, "Close", interrupted)
    monkeypatch.setattr(channel, "close", interrupted)
    with pytest.raises(interrupt):
        device.close()
    assert any(kept is channel for kept in _INTERRUPTED)
    device.close()


def test_failed_release_is_retried_later(flaky: tuple[FlakyService, str]) -> None:
    servicer, target = flaky
    with nnhal.connect(target) as device:
        device.prepare(small_model()).result(10).close()
        servicer.failures = 1
        _ = device.type
        assert servicer.calls["release"] == 2
        _ = device.version
        assert servicer.calls["release"] == 2


def test_uploads_and_outputs_are_released(flaky: tuple[FlakyService, str]) -> None:
    servicer, target = flaky
    with nnhal.connect(target) as device:
        prepared = device.prepare(model_with_large_constant()).result(10)
        _ = device.type
        assert servicer.handles == {b"prepare 1"}
        np.testing.assert_array_equal(prepared.execute([TOO_LARGE])[0], [0, 1])
        device.supported_operations(model_with_large_constant())
        servicer.failures = 9
        with pytest.raises(nnhal.DeadObjectError):
            prepared.execute([[1]])
        servicer.failures = 0
        _ = device.version
        assert servicer.calls["create"] == 3
        assert servicer.handles == {b"prepare 1"}
        del prepared
        _ = device.interface_version
        assert servicer.handles == set()


def test_failed_upload_is_released(flaky: tuple[FlakyService, str]) -> None:
    servicer, target = flaky
    with nnhal.connect(target) as device:
        servicer.fails_uploads = True
        for act in (device.prepare, device.supported_operations):
            with pytest.raises(nnhal.HalError, match="no room"):
                finished(act(model_with_large_constant()))
        assert servicer.handles
        _ = device.type
        assert servicer.handles == set()


def test_operand_values_count_towards_the_message_limit(flaky: tuple[FlakyService, str]) -> None:
    servicer, target = flaky
    with nnhal.connect(target) as device:
        device.supported_operations(model_with_many_pools())
    assert servicer.calls["create"] == 13


# ---- The asyncio client ---------------------------------------------------------------------------------


async def test_async_queries_are_retried_once(flaky: tuple[FlakyService, str]) -> None:
    servicer, target = flaky
    servicer.failures = 1
    async with nnhal.aio.connect(target) as device:
        assert await device.type() == DeviceType.GPU
        for name in READS - {"type"}:
            await getattr(device, name)()
        assert dict(servicer.calls) == dict.fromkeys(READS, 2)


async def test_async_queries_are_not_retried_twice(flaky: tuple[FlakyService, str]) -> None:
    servicer, target = flaky
    servicer.failures = 2
    async with nnhal.aio.connect(target) as device:
        with pytest.raises(nnhal.DeadObjectError, match="the network is gone"):
            await device.type()
        assert servicer.calls["type"] == 2


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("prepare", lambda device: device.prepare(small_model())),
        ("supported_operations", lambda device: device.supported_operations(small_model())),
        ("create", lambda device: device.prepare(model_with_large_constant())),
    ],
)
async def test_async_work_is_repeated_when_its_call_is_lost(
    flaky: tuple[FlakyService, str], name: str, act: Callable[[nnhal.aio.Device], object]
) -> None:
    servicer, target = flaky
    servicer.failures = 1
    async with nnhal.aio.connect(target) as device:
        await act(device)  # type: ignore[misc]
    assert servicer.calls[name] > 1


async def test_async_execution_is_repeated_when_its_call_is_lost(flaky: tuple[FlakyService, str]) -> None:
    servicer, target = flaky
    async with nnhal.aio.connect(target) as device:
        prepared = await device.prepare(small_model())
        servicer.failures = 1
        await prepared.execute([[1]])
    assert servicer.calls["execute"] == 2


async def test_async_failed_release_is_retried_later(flaky: tuple[FlakyService, str]) -> None:
    servicer, target = flaky
    async with nnhal.aio.connect(target) as device:
        await (await device.prepare(small_model())).close()
        servicer.failures = 1
        await device.type()
        assert servicer.calls["release"] == 2
        await device.version()
        assert servicer.calls["release"] == 2


async def test_async_uploads_and_outputs_are_released(flaky: tuple[FlakyService, str]) -> None:
    servicer, target = flaky
    async with nnhal.aio.connect(target) as device:
        prepared = await device.prepare(model_with_large_constant())
        await device.type()
        assert servicer.handles == {b"prepare 1"}
        np.testing.assert_array_equal((await prepared.execute([TOO_LARGE]))[0], [0, 1])
        await device.supported_operations(model_with_large_constant())
        servicer.failures = 9
        with pytest.raises(nnhal.DeadObjectError):
            await prepared.execute([[1]])
        servicer.failures = 0
        await device.version()
        assert servicer.calls["create"] == 3
        assert servicer.handles == {b"prepare 1"}
        del prepared
        await device.version()
        assert servicer.handles == set()


async def test_async_failed_upload_is_released(flaky: tuple[FlakyService, str]) -> None:
    servicer, target = flaky
    async with nnhal.aio.connect(target) as device:
        servicer.fails_uploads = True
        with pytest.raises(nnhal.HalError, match="no room"):
            await device.prepare(model_with_large_constant())
        with pytest.raises(nnhal.HalError, match="no room"):
            await device.supported_operations(model_with_large_constant())
        assert servicer.handles
        await device.type()
        assert servicer.handles == set()


async def test_async_operand_values_count_towards_the_message_limit(flaky: tuple[FlakyService, str]) -> None:
    servicer, target = flaky
    async with nnhal.aio.connect(target) as device:
        await device.supported_operations(model_with_many_pools())
    assert servicer.calls["create"] == 13
