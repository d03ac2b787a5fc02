"""The device under test, through the generated stubs: nothing is repaired on the way."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import grpc
import numpy as np

from nnhal.types import Bytes, ErrorKind, ErrorStatus
from nnhal.v1 import (
    device_pb2,
    device_pb2_grpc,
    error_pb2,
    memory_pb2,
    memory_pb2_grpc,
    prepared_model_pb2,
    prepared_model_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    types_pb2,
)

WATCHDOG_S = 120.0
"""The vendor test suite waits for ever; here a call that takes this long has failed."""

INLINE_BYTES = 1_000_000
"""Larger pools become Memory objects, so that no message comes near 4 MiB."""


class Unsupported(Exception):
    """The device answers UNIMPLEMENTED."""


class NotServiceSpecific(Exception):
    """A call failed without saying why in the contract's way: always a failure of the test."""


@dataclass(frozen=True)
class Answer:
    """The status of a call, and its reason. `status` is an ErrorStatus."""

    status: int
    reason: str = ""

    def __str__(self) -> str:
        name = ErrorStatus(self.status).name
        return f"{name} ({self.reason})" if self.reason else name


OK = Answer(ErrorStatus.NONE)


@dataclass
class Prepared:
    """What a preparation brought.

    Attributes:
        launch: how the launch ended.
        callbacks: every notify, in order.
        order: the events, in order: "launched", "notify".
    """

    launch: Answer = OK
    callbacks: list[device_pb2.Notify] = field(default_factory=list)
    order: list[str] = field(default_factory=list)

    @property
    def callback(self) -> Answer:
        """The first notify counts."""
        if not self.callbacks:
            return Answer(ErrorStatus.GENERAL_FAILURE, "no callback")
        return Answer(self.callbacks[0].status, self.callbacks[0].reason)

    @property
    def model(self) -> bytes:
        """The handle of the prepared model; empty where there is none."""
        return self.callbacks[0].prepared_model if self.callbacks else b""

    @property
    def backends(self) -> list[str]:
        """The backend of each operation, as the placement says."""
        return [operation.backend for operation in self.callbacks[0].placement.operations] if self.callbacks else []


@dataclass(frozen=True)
class Executed:
    """What an execution brought. `outputs`: bytes of each output in a ReturnedPool, else None."""

    answer: Answer
    shapes: Sequence[types_pb2.OutputShape] = ()
    timing: tuple[int, int] = (-1, -1)
    outputs: Sequence[Bytes | None] = ()


class Target:
    """A session on the device under test. Use it as a context manager."""

    def __init__(self, address: str, device: str = "") -> None:
        self._channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", 16 * 2**20)])
        self._sessions = session_pb2_grpc.SessionStub(self._channel)
        self._device = device_pb2_grpc.DeviceStub(self._channel)
        self._prepared_model = prepared_model_pb2_grpc.PreparedModelStub(self._channel)
        self._memory = memory_pb2_grpc.MemoryServiceStub(self._channel)
        self._name = device
        self._stream = self._sessions.Open(session_pb2.OpenRequest(client_name="nnhal conformance"))
        self._session = next(iter(self._stream)).opened.session

    def __enter__(self) -> "Target":
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.cancel()
        self._channel.close()

    def release(self, *handles: bytes) -> None:
        """Drops objects."""
        self._sessions.Release(session_pb2.ReleaseRequest(session=self._session, handles=handles), timeout=WATCHDOG_S)

    def supported_operations(self, model: types_pb2.Model) -> tuple[Answer, list[bool]]:
        """IDevice.getSupportedOperations."""
        request = device_pb2.GetSupportedOperationsRequest(session=self._session, device=self._name, model=model)
        try:
            return OK, list(self._device.GetSupportedOperations(request, timeout=WATCHDOG_S).supported)
        except grpc.RpcError as error:
            return _answer(error), []

    def prepare(self, model: types_pb2.Model, preference: int = 1, priority: int = 1) -> Prepared:
        """IDevice.prepareModel, to the end of its callback."""
        request = device_pb2.PrepareModelRequest(
            session=self._session,
            device=self._name,
            model=model,
            preference=preference,  # type: ignore[arg-type]
            priority=priority,  # type: ignore[arg-type]
        )
        return _collect(self._device.PrepareModel(request, timeout=WATCHDOG_S))

    def execute(
        self, model: bytes, request: types_pb2.Request, *, measure: bool = False, loop_timeout_ns: int | None = None
    ) -> Executed:
        """IPreparedModel.executeSynchronously (path SYNC)."""
        message = prepared_model_pb2.ExecuteSynchronouslyRequest(
            session=self._session,
            prepared_model=model,
            request=request,
            measure_timing=measure,
            loop_timeout_duration_ns=loop_timeout_ns,
        )
        try:
            return self._executed(self._prepared_model.ExecuteSynchronously(message, timeout=WATCHDOG_S))
        except grpc.RpcError as error:
            return Executed(_answer(error))

    def _executed(self, result: types_pb2.ExecutionResult) -> Executed:
        status = ErrorStatus.NONE if result.output_sufficient_size else ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
        timing = (result.timing.time_on_device_ns, result.timing.time_in_driver_ns)
        return Executed(Answer(status), result.output_shapes, timing, [self._returned(r) for r in result.returned])

    def _returned(self, output: types_pb2.ReturnedOutput) -> Bytes | None:
        match output.WhichOneof("data"):
            case "inline":
                return np.frombuffer(output.inline, np.uint8)
            case "memory":
                chunks = self._memory.Read(memory_pb2.ReadRequest(session=self._session, memory=output.memory))
                data = np.frombuffer(b"".join(chunk.data for chunk in chunks), np.uint8)
                self.release(output.memory)
                return data
            case _:
                return None

    def memory(self, data: bytes) -> types_pb2.Memory:
        """A pool with these bytes: inline, or uploaded when it is large."""
        if len(data) <= INLINE_BYTES:
            return types_pb2.Memory(inline=data)
        created = self._memory.Create(memory_pb2.CreateMemoryRequest(session=self._session, size=len(data)))
        self._memory.Upload(self._chunks(created.memory, data), timeout=WATCHDOG_S)
        return types_pb2.Memory(mapped=types_pb2.MappedMemory(memory=created.memory))

    def _chunks(self, memory: bytes, data: bytes) -> Iterator[memory_pb2.UploadRequest]:
        for start in range(0, len(data), INLINE_BYTES):
            yield memory_pb2.UploadRequest(
                session=self._session, memory=memory, offset=start, data=data[start : start + INLINE_BYTES]
            )

    def own_pools(self, model: types_pb2.Model) -> types_pb2.Model:
        """The model with its large inline pools moved into Memory objects."""
        for pool in model.pools:
            if len(pool.inline) > INLINE_BYTES:
                pool.CopyFrom(self.memory(pool.inline))
        return model


def _collect(stream: Iterator[device_pb2.PrepareModelEvent]) -> Prepared:
    prepared = Prepared()
    try:
        for event in stream:
            kind = event.WhichOneof("event")
            prepared.order.append(kind or "nothing")
            if kind == "notify":
                prepared.callbacks.append(event.notify)
    except grpc.RpcError as error:
        prepared.launch = _answer(error)
    return prepared


def _answer(error: grpc.RpcError) -> Answer:
    """The service-specific error of a failed call.

    Raises:
        Unsupported: UNIMPLEMENTED.
        NotServiceSpecific: it carries none.
    """
    assert isinstance(error, grpc.Call)
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            assert isinstance(value, bytes)
            for packed in error_pb2.RpcStatus.FromString(value).details:
                detail = error_pb2.ErrorDetail()
                if packed.Unpack(detail):
                    if int(detail.kind) == ErrorKind.UNIMPLEMENTED:
                        raise Unsupported(detail.reason)
                    return Answer(detail.status, detail.reason)
    if error.code() == grpc.StatusCode.UNIMPLEMENTED:
        raise Unsupported(error.details() or "")
    raise NotServiceSpecific(f"{error.code().name}: {error.details()}")
