"""The device under test, through the generated stubs: nothing is repaired on the way."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
import numpy as np
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from nnhal.types import Bytes, ErrorKind, ErrorStatus
from nnhal.v1 import (
    buffer_pb2,
    buffer_pb2_grpc,
    burst_pb2,
    burst_pb2_grpc,
    cache_pb2,
    cache_pb2_grpc,
    device_pb2,
    device_pb2_grpc,
    error_pb2,
    execution_pb2,
    execution_pb2_grpc,
    fence_pb2,
    fence_pb2_grpc,
    memory_pb2,
    memory_pb2_grpc,
    prepared_model_pb2,
    prepared_model_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    types_pb2,
)
from tools.conformance.check import NotServiceSpecific, Unsupported

WATCHDOG_S = 120.0
"""The vendor test suite waits for ever; here a call that takes this long has failed."""

CONNECT_S = 10.0
"""Seconds that a server has to take a connection."""

INLINE_BYTES = 1_000_000
"""Larger pools become Memory objects, so that no message comes near 4 MiB."""

FAST_SINGLE_ANSWER = 1
MEDIUM = 1

SERVICES = {
    module.DESCRIPTOR.services_by_name[name].name: (module.DESCRIPTOR.services_by_name[name], stub)
    for module, name, stub in (
        (session_pb2, "Session", session_pb2_grpc.SessionStub),
        (device_pb2, "Device", device_pb2_grpc.DeviceStub),
        (prepared_model_pb2, "PreparedModel", prepared_model_pb2_grpc.PreparedModelStub),
        (execution_pb2, "Execution", execution_pb2_grpc.ExecutionStub),
        (burst_pb2, "Burst", burst_pb2_grpc.BurstStub),
        (buffer_pb2, "Buffer", buffer_pb2_grpc.BufferStub),
        (fence_pb2, "Fence", fence_pb2_grpc.FenceStub),
        (memory_pb2, "MemoryService", memory_pb2_grpc.MemoryServiceStub),
        (cache_pb2, "Cache", cache_pb2_grpc.CacheStub),
    )
}
"""Every service of the contract, by its short name: its descriptor and its stub."""

T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """How a call ended. `status` is an ErrorStatus, and `kind` an ErrorKind."""

    status: int
    reason: str = ""
    rule: str = ""
    kind: int = 0
    limit: str = ""
    code: str = "OK"

    @property
    def is_missed_deadline(self) -> bool:
        """Whether the deadline was missed, one way or the other."""
        return self.status in (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT)

    def __str__(self) -> str:
        name = ErrorStatus(self.status).name if self.status in list(ErrorStatus) else f"status {self.status}"
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
        first = self.callbacks[0]
        return Answer(first.status, first.reason, first.rule)

    @property
    def model(self) -> bytes:
        """The handle of the prepared model; empty where there is none."""
        return self.callbacks[0].prepared_model if self.callbacks else b""

    @property
    def backends(self) -> list[str]:
        """The backend of each operation, as the placement says."""
        return [operation.backend for operation in self.callbacks[0].placement.operations] if self.callbacks else []


@dataclass(frozen=True)
class Step:
    """A call beside the execution itself that a path makes. `check`: its id in the suite `generated`."""

    check: str
    holds: bool
    stimulus: str
    expected: str
    got: str


@dataclass(frozen=True)
class Executed:
    """What an execution brought.

    Attributes:
        outputs: bytes of each output in a ReturnedPool or in memory that the path put there, else None.
        steps: what the path did on the way.
        launched: a fenced execution was launched, so `answer` is what its callback says.
        before: the run before it on the same reusable execution.
    """

    answer: Answer
    shapes: Sequence[types_pb2.OutputShape] = ()
    timing: tuple[int, int] = (-1, -1)
    outputs: Sequence[Bytes | None] = ()
    steps: Sequence[Step] = ()
    launched: bool = False
    before: "Executed | None" = None


@dataclass(frozen=True)
class Run:
    """How an execution is to be done. Times in nanoseconds, None where they are left out.

    Attributes:
        keep: a burst keeps the memories, under identifiers from 0 on; else all identifiers are -1.
        chain: a fenced execution is launched twice; the second waits for the fence of the first, and counts.
        hints: where the path takes a configuration, the hints of this one are passed on.
    """

    measure: bool = False
    deadline_ns: int | None = None
    loop_timeout_ns: int | None = None
    keep: bool = False
    chain: bool = False
    hints: types_pb2.ExecutionConfig | None = None

    def plain_fields(self) -> dict[str, Any]:
        """The fields that say so of a call without a configuration."""
        return {
            "measure_timing": self.measure,
            "deadline_ns": self.deadline_ns,
            "loop_timeout_duration_ns": self.loop_timeout_ns,
        }

    def config_fields(self) -> dict[str, Any]:
        """The fields that say so of a call with a configuration."""
        return {"config": self.config, "deadline_ns": self.deadline_ns}

    @property
    def config(self) -> types_pb2.ExecutionConfig:
        """As a configuration."""
        config = types_pb2.ExecutionConfig()
        if self.hints is not None:
            config.CopyFrom(self.hints)
        config.measure_timing = self.measure
        if self.loop_timeout_ns is not None:
            config.loop_timeout_duration_ns = self.loop_timeout_ns
        return config


PLAIN = Run()


@dataclass(frozen=True)
class Preparing:
    """How a model is to be prepared. `with_config`: through prepareModelWithConfig."""

    with_config: bool = False
    preference: int = FAST_SINGLE_ANSWER
    priority: int = MEDIUM
    deadline_ns: int | None = None

    @property
    def call(self) -> str:
        """The HAL's name of the call."""
        return "prepareModelWithConfig" if self.with_config else "prepareModel"


PREPARE_MODEL = Preparing()
PREPARE_MODEL_WITH_CONFIG = Preparing(with_config=True)
BOTH_PREPARATIONS = (PREPARE_MODEL, PREPARE_MODEL_WITH_CONFIG)


class Target:
    """A session on the device under test. Use it as a context manager.

    Attributes:
        session: the session's token.
        opened: what the service said when it was opened.
        sessions, device, prepared_model, memories, bursts, fences, executions, buffers: the stubs.
        name: the device's name, "" for the first.
        restart_command: for the shell, restarts the server; "" where there is none.
        paths: codes of the paths that vectors are executed on; () for those that are tried unless others are named.

    Raises:
        NotServiceSpecific: nobody answers at the address.
    """

    def __init__(self, address: str, device: str = "", restart_command: str = "", paths: Sequence[str] = ()) -> None:
        self.address, self.name, self.restart_command, self.paths = address, device, restart_command, paths
        self.channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", 16 * 2**20)])
        self.sessions = session_pb2_grpc.SessionStub(self.channel)
        self.device = device_pb2_grpc.DeviceStub(self.channel)
        self.prepared_model = prepared_model_pb2_grpc.PreparedModelStub(self.channel)
        self.memories = memory_pb2_grpc.MemoryServiceStub(self.channel)
        self.bursts = burst_pb2_grpc.BurstStub(self.channel)
        self.fences = fence_pb2_grpc.FenceStub(self.channel)
        self.executions = execution_pb2_grpc.ExecutionStub(self.channel)
        self.buffers = buffer_pb2_grpc.BufferStub(self.channel)
        self._connect()
        self.stream = self.sessions.Open(session_pb2.OpenRequest(client_name="nnhal conformance"))
        self.opened = next(iter(self.stream)).opened
        self.session = self.opened.session

    def _connect(self) -> None:
        try:
            grpc.channel_ready_future(self.channel).result(CONNECT_S)
        except grpc.FutureTimeoutError:
            self.channel.close()
            raise NotServiceSpecific(f"nobody answers at {self.address}") from None

    def another(self) -> "Target":
        """A session of its own on the same device."""
        return Target(self.address, self.name, self.restart_command, self.paths)

    def __enter__(self) -> "Target":
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.cancel()
        self.channel.close()

    # ---- Devices ----------------------------------------------------------------------------------------

    def ping(self) -> None:
        """Asks whether the device answers.

        Raises:
            NotServiceSpecific: it does not.
        """
        answer, _ = called(self.device.GetInterfaceVersion, device_pb2.DeviceRequest(device=self.name))
        if answer.status != ErrorStatus.NONE:
            raise NotServiceSpecific(str(answer))

    def supported_operations(self, model: types_pb2.Model) -> tuple[Answer, list[bool]]:
        """IDevice.getSupportedOperations."""
        request = device_pb2.GetSupportedOperationsRequest(session=self.session, device=self.name, model=model)
        answer, response = called(self.device.GetSupportedOperations, request)
        return answer, list(response.supported) if response else []

    def prepare(self, model: types_pb2.Model, how: Preparing = PREPARE_MODEL) -> Prepared:
        """IDevice.prepareModel or prepareModelWithConfig, to the end of its callback."""
        if how.with_config:
            config = types_pb2.PrepareModelConfig(
                preference=how.preference,  # type: ignore[arg-type]
                priority=how.priority,  # type: ignore[arg-type]
                deadline_ns=how.deadline_ns,
            )
            return self.prepare_with_config(model, config)
        request = device_pb2.PrepareModelRequest(
            session=self.session,
            device=self.name,
            model=model,
            preference=how.preference,  # type: ignore[arg-type]
            priority=how.priority,  # type: ignore[arg-type]
            deadline_ns=how.deadline_ns,
        )
        return collect(self.device.PrepareModel(request, timeout=WATCHDOG_S))

    def prepare_with_config(self, model: types_pb2.Model, config: types_pb2.PrepareModelConfig) -> Prepared:
        """IDevice.prepareModelWithConfig, to the end of its callback."""
        request = device_pb2.PrepareModelWithConfigRequest(
            session=self.session, device=self.name, model=model, config=config
        )
        return collect(self.device.PrepareModelWithConfig(request, timeout=WATCHDOG_S))

    # ---- Executions -------------------------------------------------------------------------------------

    def execute(self, model: bytes, request: types_pb2.Request, run: Run = PLAIN) -> Executed:
        """IPreparedModel.executeSynchronously (path SYNC)."""
        message = prepared_model_pb2.ExecuteSynchronouslyRequest(
            session=self.session, prepared_model=model, request=request, **run.plain_fields()
        )
        return self.executed(*called(self.prepared_model.ExecuteSynchronously, message))

    def execute_with_config(self, model: bytes, request: types_pb2.Request, run: Run = PLAIN) -> Executed:
        """IPreparedModel.executeSynchronouslyWithConfig (path SYNC-C)."""
        return self.execute_configured(model, request, run.config, run.deadline_ns)

    def execute_configured(
        self,
        model: bytes,
        request: types_pb2.Request,
        config: types_pb2.ExecutionConfig,
        deadline_ns: int | None = None,
    ) -> Executed:
        """IPreparedModel.executeSynchronouslyWithConfig with a configuration of the caller's."""
        message = prepared_model_pb2.ExecuteSynchronouslyWithConfigRequest(
            session=self.session, prepared_model=model, request=request, config=config, deadline_ns=deadline_ns
        )
        return self.executed(*called(self.prepared_model.ExecuteSynchronouslyWithConfig, message))

    def executed(self, answer: Answer, result: types_pb2.ExecutionResult | None) -> Executed:
        """What a synchronous execution brought, with the bytes that came back."""
        if result is None:
            return Executed(answer)
        status = ErrorStatus.NONE if result.output_sufficient_size else ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
        timing = (result.timing.time_on_device_ns, result.timing.time_in_driver_ns)
        return Executed(Answer(status), result.output_shapes, timing, [self.returned(r) for r in result.returned])

    def returned(self, output: types_pb2.ReturnedOutput) -> Bytes | None:
        """The bytes that came back, or None where there are none."""
        match output.WhichOneof("data"):
            case "inline":
                return np.frombuffer(output.inline, np.uint8)
            case "memory":
                data = self.read(output.memory)
                self.release(output.memory)
                return np.frombuffer(data, np.uint8)
            case _:
                return None

    # ---- Memory and objects -----------------------------------------------------------------------------

    def release(self, *handles: bytes) -> None:
        """Drops objects."""
        self.sessions.Release(session_pb2.ReleaseRequest(session=self.session, handles=handles), timeout=WATCHDOG_S)

    def create(self, size: int, sha256: bytes = b"") -> tuple[Answer, memory_pb2.CreateMemoryResponse | None]:
        """MemoryService.Create."""
        return called(
            self.memories.Create, memory_pb2.CreateMemoryRequest(session=self.session, size=size, sha256=sha256)
        )

    def upload(self, memory: bytes, data: bytes, offset: int = 0) -> Answer:
        """MemoryService.Upload of one run of bytes, in chunks."""
        return called(self.memories.Upload, self._chunks(memory, data, offset))[0]

    def _chunks(self, memory: bytes, data: bytes, offset: int) -> Iterator[memory_pb2.UploadRequest]:
        for start in range(0, len(data), INLINE_BYTES):
            yield memory_pb2.UploadRequest(
                session=self.session, memory=memory, offset=offset + start, data=data[start : start + INLINE_BYTES]
            )

    def read(self, memory: bytes, offset: int = 0, length: int | None = None) -> bytes:
        """MemoryService.Read of a window.

        Raises:
            NotServiceSpecific: it fails.
        """
        request = memory_pb2.ReadRequest(session=self.session, memory=memory, offset=offset, length=length)
        answer, chunks = called(lambda r, timeout: list(self.memories.Read(r, timeout=timeout)), request)
        if chunks is None:
            raise NotServiceSpecific(f"MemoryService.Read: {answer}")
        return b"".join(chunk.data for chunk in chunks)

    def filled(self, data: bytes) -> bytes:
        """Handle of a new Memory object with these bytes, which outputs may lie in.

        Raises:
            NotServiceSpecific: it cannot be made.
        """
        answer, created = self.create(len(data))
        if created is None:
            raise NotServiceSpecific(f"MemoryService.Create: {answer}")
        answer = self.upload(created.memory, data)
        if answer.status != ErrorStatus.NONE:
            raise NotServiceSpecific(f"MemoryService.Upload: {answer}")
        return created.memory

    def memory(self, data: bytes) -> types_pb2.Memory:
        """A pool with these bytes: inline, or uploaded when it is large."""
        if len(data) <= INLINE_BYTES:
            return types_pb2.Memory(inline=data)
        return mapped(self.filled(data))

    def release_pools(self, pools: Sequence[types_pb2.Memory]) -> None:
        """Drops the Memory objects of pools that `memory` made."""
        if handles := [pool.mapped.memory for pool in pools if pool.WhichOneof("memory") == "mapped"]:
            self.release(*handles)

    def own_pools(self, model: types_pb2.Model) -> types_pb2.Model:
        """The model with its large inline pools moved into Memory objects."""
        for pool in model.pools:
            if len(pool.inline) > INLINE_BYTES:
                pool.CopyFrom(self.memory(pool.inline))
        return model

    # ---- What the device offers -------------------------------------------------------------------------

    def call(self, service: str, method: str, request: Message | None = None) -> Answer:
        """Any call of the contract, e.g. ("Burst", "Stream"). Without a request: an empty one.

        Raises:
            Unsupported: the device does not offer it.
            NotServiceSpecific: it fails without a service-specific error.
        """
        return called(lambda _, timeout: self.attempt(service, method, request, timeout), None)[0]

    def attempt(self, service: str, method: str, request: Message | None = None, timeout: float = WATCHDOG_S) -> Any:
        """The same, but gives the response, or all of them, and raises the error of gRPC."""
        descriptor, stub = SERVICES[service]
        found = descriptor.methods_by_name[method]
        message: Any = GetMessageClass(found.input_type)() if request is None else request
        if found.client_streaming:
            message = iter([message])
        response = getattr(stub(self.channel), method)(message, timeout=timeout)
        return list(response) if found.server_streaming else response


def mapped(memory: bytes, **window: int) -> types_pb2.Memory:
    """A pool over a Memory object. `window`: offset, length, prot."""
    return types_pb2.Memory(mapped=types_pb2.MappedMemory(memory=memory, **window))


def called(method: Any, request: Any) -> tuple[Answer, Any]:
    """How a call ended, and its response or None.

    Raises:
        Unsupported: UNIMPLEMENTED.
        NotServiceSpecific: it failed without saying why in the contract's way.
    """
    try:
        return OK, method(request, timeout=WATCHDOG_S)
    except grpc.RpcError as error:
        return answer_of(error), None


def collect(stream: Iterator[device_pb2.PrepareModelEvent]) -> Prepared:
    """The whole stream of a preparation."""
    prepared = Prepared()
    try:
        for event in stream:
            kind = event.WhichOneof("event")
            prepared.order.append(kind or "nothing")
            if kind == "notify":
                prepared.callbacks.append(event.notify)
    except grpc.RpcError as error:
        prepared.launch = answer_of(error)
    return prepared


def answer_of(error: grpc.RpcError) -> Answer:
    """The service-specific error of a failed call.

    Raises:
        Unsupported: UNIMPLEMENTED.
        NotServiceSpecific: it carries none.
    """
    answer = told(error)
    assert isinstance(error, grpc.Call)
    if error.code() == grpc.StatusCode.UNIMPLEMENTED or (answer and answer.kind == ErrorKind.UNIMPLEMENTED):
        raise Unsupported((answer.reason if answer else error.details()) or "UNIMPLEMENTED")
    if answer is None or answer.status == ErrorStatus.NONE:
        raise NotServiceSpecific(f"{error.code().name}: {error.details()}")
    return answer


def told(error: grpc.RpcError) -> Answer | None:
    """What a failed call says in the contract's way, also of what is not offered; None where it says nothing."""
    assert isinstance(error, grpc.Call)
    detail = detail_of(error)
    if detail is None:
        return None
    return answer_from(detail, error.code().name)


def answer_from(detail: error_pb2.ErrorDetail, code: str = "OK") -> Answer:
    """What a detail says. `code`: of gRPC, which it came with."""
    return Answer(detail.status, detail.reason, detail.rule, detail.kind, detail.limit, code)


def detail_of(error: grpc.RpcError) -> error_pb2.ErrorDetail | None:
    """What a failed call carries in its trailer."""
    assert isinstance(error, grpc.Call)
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            assert isinstance(value, bytes)
            for packed in error_pb2.RpcStatus.FromString(value).details:
                detail = error_pb2.ErrorDetail()
                if packed.Unpack(detail):
                    return detail
    return None
