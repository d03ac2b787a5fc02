"""The synchronous client; `nnhal.aio` is the same for asyncio.

import nnhal, nnhal.tflite

with nnhal.connect("localhost:50051") as device:
    prepared = device.prepare(nnhal.tflite.load("model.tflite")).result()
    outputs = prepared.execute([image])
"""

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from functools import cached_property
from typing import overload

import grpc

from nnhal import pools, wire
from nnhal.buffer import (
    Buffer,
    BufferedExecution,
    BufferInputs,
    BufferOutputs,
    Roles,
    Targets,
    allocation,
    without_buffers,
)
from nnhal.burst import Burst
from nnhal.connection import Connection
from nnhal.embedded import EmbeddedService
from nnhal.errors import HalError
from nnhal.failures import hal_error
from nnhal.fence import ExecutionFence, Fence, OwnFence, execute_fenced
from nnhal.fenced import FencedInputs
from nnhal.lines import open_line
from nnhal.local import Transport
from nnhal.prepared import (
    Names,
    PreparedModelBase,
    failure,
    names_of,
    never_notified,
    outputs_in_memory,
    prepare_request,
    read_result,
)
from nnhal.reusable import Execution
from nnhal.tensors import Inputs, Outputs
from nnhal.types import (
    Capabilities,
    DeviceType,
    ExecutionPreference,
    ExecutionResult,
    Extension,
    Model,
    Placement,
    Priority,
    Request,
)
from nnhal.v1 import device_pb2, types_pb2

__all__ = ["Buffer", "Device", "Inputs", "Outputs", "Preparation", "PreparedModel", "connect"]


def connect(
    target: str | None = None, *, device: str = "", timeout: float = 10.0, transport: Transport = "auto"
) -> "Device":
    """Opens a session on a service.

    Args:
        target: "HOST:PORT" or "unix:PATH"; None: a service of its own in a child process, which ends with the device.
        device: name of the device; the server's first by default.
        timeout: seconds to wait for the service.
        transport: "auto": tensors go through shared memory where the service is on this machine; "grpc": they never do.

    Raises:
        DeadObjectError: the service does not answer, or does not start.
    """
    if target is not None:
        return Device(Connection(target, timeout, transport), device)
    service = EmbeddedService()
    try:
        return Device(Connection(service.target, timeout, transport), device, service)
    except BaseException:
        service.close()
        raise


class Device:
    """A device of a service, in a session of its own. Close it, or use it as a context manager."""

    def __init__(self, connection: Connection, name: str, service: EmbeddedService | None = None) -> None:
        self.name = name
        self._connection = connection
        self._service = service

    @cached_property
    def capabilities(self) -> Capabilities:
        """Performance figures."""
        return wire.to_capabilities(self._connection.ask(self._connection.device.GetCapabilities, self._request))

    @cached_property
    def type(self) -> DeviceType:
        """What the device is."""
        return DeviceType(self._connection.ask(self._connection.device.GetType, self._request).type)

    @cached_property
    def version(self) -> str:
        """Version of driver and backends."""
        return self._connection.ask(self._connection.device.GetVersionString, self._request).version

    @cached_property
    def interface_version(self) -> int:
        """Version of the HAL interface."""
        return self._connection.ask(self._connection.device.GetInterfaceVersion, self._request).version

    @cached_property
    def interface_hash(self) -> str:
        """The HAL's hash of that version."""
        return self._connection.ask(self._connection.device.GetInterfaceVersion, self._request).hash

    @cached_property
    def extensions(self) -> tuple[Extension, ...]:
        """Extensions that the device supports."""
        response = self._connection.ask(self._connection.device.GetSupportedExtensions, self._request)
        return tuple(map(wire.to_extension, response.extensions))

    @property
    def _request(self) -> device_pb2.DeviceRequest:
        return device_pb2.DeviceRequest(device=self.name)

    def backends(self) -> list[device_pb2.BackendInfo]:
        """The device's backends: ready, skipped or failed, and why."""
        return list(self._connection.ask(self._connection.device.ListBackends, self._request).backends)

    def supported_operations(self, model: Model) -> list[bool]:
        """For each operation of model.main whether the device would run it.

        Raises:
            HalError: INVALID_ARGUMENT: the model is invalid.
        """
        return list(self._ask_support(model, explain=False).supported)

    def explain(self, model: Model) -> Placement:
        """Where each operation of a model would run, and why not elsewhere; nothing is prepared.

        Raises:
            HalError: INVALID_ARGUMENT: the model is invalid.
        """
        return wire.to_placement(self._ask_support(model, explain=True).placement)

    def _ask_support(self, model: Model, *, explain: bool) -> device_pb2.GetSupportedOperationsResponse:
        handles: list[bytes] = []
        try:
            request = device_pb2.GetSupportedOperationsRequest(
                session=self._connection.session,
                device=self.name,
                model=self._message(model, handles),
                explain=explain,
            )
            return self._connection.call(self._connection.device.GetSupportedOperations, request)
        finally:
            self._connection.discard(*handles)

    def prepare(
        self,
        model: Model,
        *,
        preference: int = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: int = Priority.MEDIUM,
        deadline: float | None = None,
    ) -> "Preparation":
        """Starts to prepare a model.

        Args:
            preference: an ExecutionPreference.
            priority: a Priority, among this client's own models.
            deadline: seconds from now; the preparation ends with MISSED_DEADLINE_* when it is not met.

        Returns:
            a future of the prepared model. Errors come from its `result()`.

        Raises:
            HalError: constants that are too large for a message could not be uploaded.
        """
        handles: list[bytes] = []
        try:
            request = prepare_request(self._message(model, handles), preference, priority, deadline)
            request.session, request.device = self._connection.session, self.name
            return Preparation(self._connection, request, handles, names_of(model))
        except BaseException:
            self._connection.discard(*handles)
            raise

    def fence(self) -> OwnFence:
        """A fence of this client's own, for `wait_for`; `signal` it.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT: the session has all the fences that it may have.
        """
        return OwnFence(self._connection)

    def _message(self, model: Model, handles: list[bytes]) -> types_pb2.Model:
        model = pools.with_small_values(model)
        taken = memoryview(model.operand_values).nbytes
        return wire.model_message(model, self._connection.place(model.pools, handles, lasting=True, taken=taken))

    def allocate(self, *, inputs: Roles = (), outputs: Roles = (), dimensions: Sequence[int] = ()) -> Buffer:
        """Makes a driver-managed buffer: a tensor that stays on the device.

        Args:
            inputs, outputs: what it may be used for: (prepared model, number or name of its input or output).
            dimensions: its shape, where the roles leave it open; 0 is an unknown dimension.

        Raises:
            HalError: INVALID_ARGUMENT: roles and dimensions do not go together; RESOURCE_EXHAUSTED_*.
        """
        wanted = allocation(inputs, outputs, dimensions)
        wanted.request.session, wanted.request.device = self._connection.session, self.name
        allocated = self._connection.call(self._connection.device.Allocate, wanted.request)
        return Buffer(self._connection, allocated, wanted.operand)

    def close(self) -> None:
        """Ends the session; what it owned is freed by the service. An embedded service ends too."""
        try:
            self._connection.close()
        finally:
            if self._service is not None:
                self._service.close()

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Preparation(Future["PreparedModel"]):
    """A preparation in progress: a `concurrent.futures.Future` of the prepared model.

    `result()` raises the HalError that the callback brought. `cancel()` abandons the work on the service.
    """

    def __init__(
        self, connection: Connection, request: device_pb2.PrepareModelRequest, handles: Sequence[bytes], names: Names
    ) -> None:
        super().__init__()
        self._connection = connection
        self._handles = handles
        self._names = names
        self._stream = connection.start(connection.device.PrepareModel, request)
        threading.Thread(target=self._read, name="nnhal-preparation", daemon=True).start()

    def cancel(self) -> bool:
        """Abandons the work, unless it has finished."""
        cancelled = super().cancel()
        if cancelled:
            self._stream.cancel()
        return cancelled

    def _read(self) -> None:
        prepared: PreparedModel | None = None
        failed: HalError | None = None
        try:
            for event in self._stream:
                if event.WhichOneof("event") == "notify" and (failed := failure(event.notify)) is None:
                    prepared = PreparedModel(self._connection, event.notify, self._names)
        except grpc.RpcError as error:
            failed = failed or hal_error(error)
        self._connection.discard(*self._handles)
        if not self.set_running_or_notify_cancel():
            return
        if prepared is not None:
            self.set_result(prepared)
        else:
            self.set_exception(failed or never_notified())


class PreparedModel(PreparedModelBase):
    """A model that is ready to run. Thread safe. The service lets it go when this object is closed or collected."""

    def __init__(self, connection: Connection, notify: device_pb2.Notify, names: Names) -> None:
        super().__init__(notify, names, connection.discard)
        self._connection = connection

    @overload
    def execute(
        self,
        inputs: BufferInputs,
        *,
        outputs: None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
    ) -> Outputs: ...

    @overload
    def execute(
        self,
        inputs: BufferInputs,
        *,
        outputs: Targets,
        deadline: float | None = None,
        measure_timing: bool = False,
    ) -> BufferOutputs: ...

    def execute(
        self,
        inputs: BufferInputs,
        *,
        outputs: Targets | None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
    ) -> Outputs | BufferOutputs:
        """Runs the model.

        Args:
            inputs: one array per input, by position or by name; None omits an optional one. An array has the dtype of
                its operand (lists and numbers are converted) and its shape. A buffer may stand in place of an array.
            outputs: buffers that are to take outputs, by position or by name; the other outputs come back.
            deadline: seconds from now.
            measure_timing: fill `timing` of the result.

        Returns:
            one array per output, as large as needed; in place of those that went to buffers, the buffers.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not fit; MISSED_DEADLINE_*; or the execution failed.
        """
        plain = without_buffers(inputs, outputs)
        if plain is None:
            execution = BufferedExecution(self._ends, inputs, outputs)
            with execution.filling():
                return execution.results(self._execute(execution.request, deadline, measure_timing))
        local = self._connection.local
        if (
            local is not None
            and (done := local.execute(self._handle, self._ends, plain, deadline, measure_timing)) is not None
        ):
            return done
        return self._ends.results(self._execute(self._ends.request(plain), deadline, measure_timing))

    def _execute(self, request: Request, deadline: float | None, measure_timing: bool) -> ExecutionResult:
        connection = self._connection
        handles: list[bytes] = []
        try:
            send = connection.place(request.pools, handles, lasting=False)
            message = wire.request_message(request, send)
            response = connection.call(
                connection.prepared_model.ExecuteSynchronously,
                self._execute_request(connection.session, message, deadline, measure_timing),
            )
            handles += (returned := outputs_in_memory(response))
            return read_result(response, {handle: connection.read_memory(handle) for handle in returned})
        finally:
            connection.discard(*handles)

    def execute_fenced(
        self,
        inputs: FencedInputs,
        *,
        wait_for: Iterable[Fence] = (),
        deadline: float | None = None,
        duration: float | None = None,
        measure_timing: bool = False,
    ) -> ExecutionFence:
        """Launches an execution and returns; it begins when all fences have signalled.

        Args:
            inputs: as for `execute`; also outputs of other fenced executions, which it then waits for.
            wait_for: fences. If one of them ends in error, so does this execution.
            deadline: seconds from now.
            duration: seconds from the moment when all fences have signalled.
            measure_timing: fill `timing`.

        Returns:
            a fence. Its `result` waits for the outputs and fetches them.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not fit, a fence is in error, or the shape of an output is not
                fixed; MISSED_DEADLINE_*; RESOURCE_EXHAUSTED_*: a limit of the session.
        """
        how = (wait_for, deadline, duration, measure_timing)
        return execute_fenced(self._connection, self._handle, self._ends, inputs, *how)

    def reusable(self, inputs: Inputs, *, measure_timing: bool = False) -> Execution:
        """Freezes an execution, to be run many times; its inputs stay on the service and can be changed in place.

        Args:
            inputs: as for `execute`. Their shapes stay what they are.
            measure_timing: fill the timings of all runs.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not fit; RESOURCE_EXHAUSTED_*.
        """
        return Execution(self._connection, self._handle, self._ends, inputs, measure_timing)

    def burst(self) -> Burst:
        """Opens a burst: many executions, with less work for each.

        Raises:
            HalError: the model has been closed, or the session has all the bursts that it may have.
        """
        return Burst(open_line(self._connection, self._handle, self._ends), self._ends)

    def close(self) -> None:
        """Lets the model go. Executions in progress finish."""
        self._finalizer()

    def __enter__(self) -> "PreparedModel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
