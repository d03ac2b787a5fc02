"""Session on the device under test, through the generated stubs. Nothing is retried or repaired."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import grpc
import numpy as np
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from nnhal.address import SECURE_SCHEME, Address
from nnhal.client.core.open_errors import open_error
from nnhal.client.security.options import NO_OPTIONS
from nnhal.client.security.security import secured
from nnhal.errors import HalError
from nnhal.probe import connection_problem
from nnhal.services import SERVICES
from nnhal.types import Bytes, ErrorStatus
from nnhal.v1 import device_pb2, device_pb2_grpc, memory_pb2, session_pb2, session_pb2_grpc, types_pb2
from nnhal_tools.conformance.check import ConnectionLost, NotServiceSpecific
from nnhal_tools.conformance.device.calls import WATCHDOG_S, collect_preparation, invoke, required_call_error
from nnhal_tools.conformance.device.control import NO_CONTROL, ServiceControl
from nnhal_tools.conformance.device.interposer import NO_FAULTS, Interposer
from nnhal_tools.conformance.device.ndk_library import NdkLibrary
from nnhal_tools.conformance.device.options import DEFAULT_RUN, PREPARE_MODEL, PreparationOptions, RunOptions
from nnhal_tools.conformance.device.results import CallOutcome, ExecutionOutcome, PreparationOutcome

CONNECT_S = 10.0
"""Timeout in seconds for connecting to the server."""

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", 16 * 2**20),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
"""Each session has a connection of its own, like the sessions of different clients, and soon finds a new service."""

METHODS = {
    f"{name}.{method.name}": method for name, service in SERVICES.items() for method in service.descriptor.methods
}
"""All methods of the contract, by their name with that of the service, for example "Device.Allocate"."""

INLINE_BYTES = 1_000_000
"""Larger pools become Memory objects, so that no message comes near 4 MiB."""


class Target:
    """Session on the device under test. Use it as a context manager.

    A service with several processes may redirect the session to one of them. The session then has a channel to that
    process, while the attribute `address`, new sessions and pings are those of the service.

    Attributes:
        opened: the first event of the session.
        device_name: the name of the device; "" for the first.
        control: the commands that end or restart the service.
        paths: the codes of the paths that vectors are executed on; () for the default paths.
        interposer: the faults of services that checks start themselves.
        ndk: the NNAPI C library that uses the service, if the path NDK is selected.

    Raises:
        NotServiceSpecific: the address is invalid, or there is no server of this contract at the address.
    """

    def __init__(
        self,
        address: str,
        device: str = "",
        control: ServiceControl = NO_CONTROL,
        paths: Sequence[str] = (),
        interposer: Interposer = NO_FAULTS,
        ndk: NdkLibrary | None = None,
    ) -> None:
        try:
            self._given, address = address, address.removeprefix(SECURE_SCHEME)
            Address.parse(address)
            _, self._security = secured(self._given, NO_OPTIONS)
        except (ValueError, HalError) as error:
            raise NotServiceSpecific(str(error)) from None
        self.address, self.device_name, self.control, self.paths = address, device, control, paths
        self.interposer, self.ndk = interposer, ndk
        self._service_channel = self._security.channel(address, [*CHANNEL_OPTIONS])
        self._use_channel(self._service_channel)
        self._connect()
        self.session = self.opened.session

    def _use_channel(self, channel: grpc.Channel) -> None:
        self.channel = channel
        self._stubs = {name: service.stub(channel) for name, service in SERVICES.items()}

    def _connect(self) -> None:
        """Open the session. An address that nothing listens at fails at once."""
        problem, failure = connection_problem(self.address), None
        try:
            if problem is None:
                grpc.channel_ready_future(self.channel).result(CONNECT_S)
                self._open()
                return
        except grpc.FutureTimeoutError:
            pass
        except grpc.RpcError as error:
            failure = error
        self.channel.close()
        self._service_channel.close()
        raise NotServiceSpecific(open_error(self.address, CONNECT_S, failure, problem).reason) from failure

    def _open(self) -> None:
        """Open the session, and follow a redirect. If the address of the redirect fails, do as without a redirect.

        Raises:
            grpc.RpcError: the service refuses.
        """
        first = self._open_stream(accept_redirect=True)
        if first.HasField("redirect"):
            first = self._follow(first.redirect) or self._open_stream()
        self.opened = first.opened

    def _follow(self, redirect: session_pb2.SessionRedirect) -> session_pb2.SessionEvent | None:
        """Open the session at the address of a redirect. Return its first event, or None if that fails."""
        address = self._redirected(redirect)
        if connection_problem(address) is not None:
            return None
        self._use_channel(self._security.channel(address, [*CHANNEL_OPTIONS]))
        try:
            return self._open_stream()
        except grpc.RpcError:
            self.channel.close()
            self._use_channel(self._service_channel)
            return None

    def open_at_service(self, request: session_pb2.OpenRequest) -> list[session_pb2.SessionEvent]:
        """Open or resume a session at the address of the service. Return the first event, or all after a redirect.

        Raises:
            grpc.RpcError: the service refuses.
        """
        stream = session_pb2_grpc.SessionStub(self._service_channel).Open(request, timeout=WATCHDOG_S)
        first = next(stream)
        others = list(stream) if first.HasField("redirect") else []
        stream.cancel()
        return [first, *others]

    def follow(self, redirect: session_pb2.SessionRedirect, session: bytes = b"") -> session_pb2.SessionEvent | None:
        """Open or resume a session at the address of a redirect. Return its first event; None if nothing listens there.

        Raises:
            grpc.RpcError: the service refuses.
        """
        address = self._redirected(redirect)
        if connection_problem(address) is not None:
            return None
        with self._security.channel(address, [*CHANNEL_OPTIONS]) as channel:
            request = session_pb2.OpenRequest(session=session, client_name="nnhal conformance")
            event: session_pb2.SessionEvent = next(
                session_pb2_grpc.SessionStub(channel).Open(request, timeout=WATCHDOG_S)
            )
            return event

    def _open_stream(self, *, accept_redirect: bool = False) -> session_pb2.SessionEvent:
        request = session_pb2.OpenRequest(client_name="nnhal conformance", accept_redirect=accept_redirect)
        self.stream = self.rpc("Session.Open")(request)
        event: session_pb2.SessionEvent = next(iter(self.stream))
        return event

    def _redirected(self, redirect: session_pb2.SessionRedirect) -> str:
        try:
            return Address.parse(self.address).redirected(redirect.address)
        except ValueError as error:
            raise NotServiceSpecific(f"an invalid redirect: {error}") from None

    def new_session(self) -> "Target":
        """Open another session on the same device."""
        return Target(self._given, self.device_name, self.control, self.paths, self.interposer, self.ndk)

    def __enter__(self) -> "Target":
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.cancel()
        self.channel.close()
        self._service_channel.close()

    # ---- Calls by name ----------------------------------------------------------------------------------

    def rpc(self, name: str) -> Any:
        """Return the function of a stub that calls a method, for example "Burst.Stream"."""
        service, _, method = name.partition(".")
        return getattr(self._stubs[service], method)

    def request(self, name: str, /, **fields: Any) -> Any:
        """Return the request of a method: in this session and on this device, unless `fields` say otherwise."""
        message = GetMessageClass(METHODS[name].input_type)
        own = {"session": self.session, "device": self.device_name}
        return message(**{key: own[key] for key in own.keys() & message.DESCRIPTOR.fields_by_name.keys()} | fields)

    def start(self, name: str, /, *, timeout: float = WATCHDOG_S, **fields: Any) -> Any:
        """Start a call with a stream of responses, and return the stream, which raises grpc.RpcError."""
        return self.rpc(name)(self.request(name, **fields), timeout=timeout)

    def call(self, name: str, /, **fields: Any) -> tuple[CallOutcome, Any]:
        """Make a call. Return its outcome, and its response or the list of its responses; None if it failed.

        Raises:
            Unsupported: the call failed with UNIMPLEMENTED.
            NotServiceSpecific: it failed without a service-specific error.
        """
        return invoke(partial(self.invoke_raw, name), self.request(name, **fields))

    def require(self, name: str, /, **fields: Any) -> Any:
        """Make a call that a check cannot do without, and return its response or responses.

        Raises:
            NotServiceSpecific: the call fails.
        """
        outcome, response = self.call(name, **fields)
        if outcome.status != ErrorStatus.NONE:
            raise required_call_error(name, outcome)
        return response

    def invoke_raw(self, name: str, request: Message, timeout: float = WATCHDOG_S) -> Any:
        """Make a call with one request. Return its response, or the list of its responses.

        Raises:
            grpc.RpcError: the call failed.
        """
        method = METHODS[name]
        response = self.rpc(name)(iter([request]) if method.client_streaming else request, timeout=timeout)
        return list(response) if method.server_streaming else response

    # ---- Devices ----------------------------------------------------------------------------------------

    def ping(self) -> None:
        """Check that the device responds at the address of the service.

        Raises:
            NotServiceSpecific: it does not respond.
        """
        device = device_pb2_grpc.DeviceStub(self._service_channel)
        outcome, _ = invoke(device.GetInterfaceVersion, device_pb2.DeviceRequest(device=self.device_name))
        if outcome.status != ErrorStatus.NONE:
            raise NotServiceSpecific(str(outcome))

    def supported_operations(self, model: types_pb2.Model) -> tuple[CallOutcome, list[bool]]:
        """Call IDevice.getSupportedOperations."""
        outcome, response = self.call("Device.GetSupportedOperations", model=model)
        return outcome, list(response.supported) if response else []

    def prepare(self, model: types_pb2.Model, options: PreparationOptions = PREPARE_MODEL) -> PreparationOutcome:
        """Call IDevice.prepareModel or prepareModelWithConfig, and wait for the end of the stream."""
        if options.with_config:
            return self.prepare_with_config(model, types_pb2.PrepareModelConfig(**options.fields()))
        return collect_preparation(self.launch_preparation(model, options))

    def launch_preparation(
        self,
        model: types_pb2.Model,
        options: PreparationOptions = PREPARE_MODEL,
        cache: types_pb2.CompilationCache | None = None,
        timeout: float = WATCHDOG_S,
    ) -> Iterator[device_pb2.PrepareModelEvent]:
        """Call IDevice.prepareModel, and return the stream of its events, which raises grpc.RpcError."""
        fields = {"model": model, "cache": cache, **options.fields()}
        stream: Iterator[device_pb2.PrepareModelEvent] = self.start("Device.PrepareModel", timeout=timeout, **fields)
        return stream

    def prepare_with_config(self, model: types_pb2.Model, config: types_pb2.PrepareModelConfig) -> PreparationOutcome:
        """Call IDevice.prepareModelWithConfig, and wait for the end of the stream."""
        return collect_preparation(self.start("Device.PrepareModelWithConfig", model=model, config=config))

    # ---- Executions -------------------------------------------------------------------------------------

    def execute(self, model: bytes, request: types_pb2.Request, options: RunOptions = DEFAULT_RUN) -> ExecutionOutcome:
        """Call IPreparedModel.executeSynchronously (path SYNC)."""
        name = "PreparedModel.ExecuteSynchronously"
        return self.execute_by(name, prepared_model=model, request=request, **options.plain_fields())

    def execute_with_config(
        self, model: bytes, request: types_pb2.Request, options: RunOptions = DEFAULT_RUN
    ) -> ExecutionOutcome:
        """Call IPreparedModel.executeSynchronouslyWithConfig (path SYNC-C)."""
        name = "PreparedModel.ExecuteSynchronouslyWithConfig"
        return self.execute_by(name, prepared_model=model, request=request, **options.config_fields())

    def execute_by(self, name: str, /, **fields: Any) -> ExecutionOutcome:
        """Make a call that executes synchronously."""
        return self.execution_outcome(*self.call(name, **fields))

    def execution_outcome(self, outcome: CallOutcome, result: types_pb2.ExecutionResult | None) -> ExecutionOutcome:
        """Return the outcome of a synchronous execution, and read its returned outputs."""
        if result is None:
            return ExecutionOutcome(outcome)
        status = ErrorStatus.NONE if result.output_sufficient_size else ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
        timing = (result.timing.time_on_device_ns, result.timing.time_in_driver_ns)
        outputs = [self.returned_bytes(output) for output in result.returned]
        return ExecutionOutcome(CallOutcome(status), result.output_shapes, timing, outputs)

    def returned_bytes(self, output: types_pb2.ReturnedOutput) -> Bytes | None:
        """Return the bytes of a returned output, or None if it has none. A Memory object is read and released."""
        match output.WhichOneof("data"):
            case "inline":
                return np.frombuffer(output.inline, np.uint8)
            case "memory":
                data = self.read_memory(output.memory)
                self.release(output.memory)
                return np.frombuffer(data, np.uint8)
            case _:
                return None

    # ---- Memory and objects -----------------------------------------------------------------------------

    def release(self, *handles: bytes) -> None:
        """Release objects. If the service or the session has ended, there is nothing to release."""
        with suppress(ConnectionLost):
            self.call("Session.Release", handles=handles)

    def create_memory(
        self, size: int, sha256: bytes = b""
    ) -> tuple[CallOutcome, memory_pb2.CreateMemoryResponse | None]:
        """Call MemoryService.Create."""
        return self.call("MemoryService.Create", size=size, sha256=sha256)

    def upload(self, memory: bytes, data: bytes, offset: int = 0) -> CallOutcome:
        """Call MemoryService.Upload with consecutive bytes, in chunks."""
        return invoke(self.rpc("MemoryService.Upload"), self._chunks(memory, data, offset))[0]

    def _chunks(self, memory: bytes, data: bytes, offset: int) -> Iterator[memory_pb2.UploadRequest]:
        for start in range(0, len(data), INLINE_BYTES):
            yield memory_pb2.UploadRequest(
                session=self.session, memory=memory, offset=offset + start, data=data[start : start + INLINE_BYTES]
            )

    def read_memory(self, memory: bytes, offset: int = 0, length: int | None = None) -> bytes:
        """Call MemoryService.Read for a window.

        Raises:
            NotServiceSpecific: the call fails.
        """
        chunks = self.require("MemoryService.Read", memory=memory, offset=offset, length=length)
        return b"".join(chunk.data for chunk in chunks)

    def memory_with(self, data: bytes) -> bytes:
        """Create a writable Memory object with these bytes and return its handle.

        Raises:
            NotServiceSpecific: a call fails.
        """
        memory: bytes = self.require("MemoryService.Create", size=len(data)).memory
        outcome = self.upload(memory, data)
        if outcome.status != ErrorStatus.NONE:
            raise required_call_error("MemoryService.Upload", outcome)
        return memory

    def pool_with(self, data: bytes) -> types_pb2.Memory:
        """Return a pool with these bytes: inline, or uploaded if it is large."""
        if len(data) <= INLINE_BYTES:
            return types_pb2.Memory(inline=data)
        return mapped_pool(self.memory_with(data))

    def release_pools(self, pools: Sequence[types_pb2.Memory]) -> None:
        """Release the Memory objects of pools that `pool_with` created."""
        if handles := [pool.mapped.memory for pool in pools if pool.WhichOneof("memory") == "mapped"]:
            self.release(*handles)

    def upload_large_pools(self, model: types_pb2.Model) -> types_pb2.Model:
        """Move the large inline pools of a model into Memory objects, in place, and return the model."""
        for pool in model.pools:
            if len(pool.inline) > INLINE_BYTES:
                pool.CopyFrom(self.pool_with(pool.inline))
        return model


def mapped_pool(memory: bytes, **window: int) -> types_pb2.Memory:
    """Return a pool over a Memory object. `window`: offset, length, prot."""
    return types_pb2.Memory(mapped=types_pb2.MappedMemory(memory=memory, **window))
