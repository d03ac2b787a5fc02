"""The client for asyncio: the names of `nnhal.client`, and what waits is awaited.

import nnhal.aio, nnhal.tflite

async with nnhal.aio.connect("localhost:50051") as device:
    prepared = await device.prepare(nnhal.tflite.load("model.tflite"))
    outputs = await prepared.execute([image])

A device, and what is prepared on it, belong to the event loop in which it was connected. Cancelling a task that waits
for a call cancels the call: the service abandons the preparation or the execution. What the synchronous device has as
properties are methods here. Calls are repeated as little as there: see `nnhal.connection`.
"""

import asyncio
import threading
from collections.abc import Generator, Iterable, Sequence
from typing import overload

from nnhal import pools, wire
from nnhal.aio_buffer import Buffer
from nnhal.aio_burst import Burst, Line, open_line
from nnhal.aio_connection import Connection
from nnhal.aio_fence import ExecutionFence, Fence, OwnFence, execute_fenced
from nnhal.aio_reusable import Execution
from nnhal.buffer import BufferedExecution, BufferInputs, BufferOutputs, Roles, Targets, allocation, without_buffers
from nnhal.embedded import EmbeddedService
from nnhal.errors import HalError
from nnhal.fenced import FencedInputs
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

__all__ = ["Buffer", "Device", "Inputs", "Outputs", "PreparedModel", "connect"]


def connect(
    target: str | None = None, *, device: str = "", timeout: float = 10.0, transport: Transport = "auto"
) -> "Connecting":
    """Opens a session on a service: `device = await connect(...)`, or `async with connect(...) as device`.

    Args:
        target: "HOST:PORT" or "unix:PATH"; None: a service of its own in a child process, which ends with the device.
        device: name of the device; the server's first by default.
        timeout: seconds to wait for the service.
        transport: "auto": tensors go through shared memory where the service is on this machine; "grpc": they never do.

    Raises:
        DeadObjectError: the service does not answer, or does not start.
    """
    return Connecting(target, device, timeout, transport)


class Connecting:
    """A device that is to be connected: await it, or use it as an asynchronous context manager."""

    def __init__(self, target: str | None, name: str, timeout: float, transport: Transport) -> None:
        self._transport = transport
        self._target = target
        self._name = name
        self._timeout = timeout
        self._device: Device | None = None

    def __await__(self) -> Generator[object, None, "Device"]:
        return self._connect().__await__()

    async def __aenter__(self) -> "Device":
        self._device = await self._connect()
        return self._device

    async def __aexit__(self, *_: object) -> None:
        assert self._device is not None
        await self._device.close()

    async def _connect(self) -> "Device":
        if self._target is not None:
            return await self._open(self._target, None)
        service = await _start_service()
        try:
            return await self._open(service.target, service)
        except BaseException:
            await asyncio.to_thread(service.close)
            raise

    async def _open(self, target: str, service: EmbeddedService | None) -> "Device":
        connection = Connection(target, self._transport)
        await connection.open(self._timeout)
        return Device(connection, self._name, service)


async def _start_service() -> EmbeddedService:
    """Starts a service without stopping the loop. A caller that is cancelled leaves no service behind."""
    starting = asyncio.ensure_future(asyncio.to_thread(EmbeddedService))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(_close_unwanted)
        raise


def _close_unwanted(started: "asyncio.Future[EmbeddedService]") -> None:
    if not started.cancelled() and started.exception() is None:
        threading.Thread(target=started.result().close, name="nnhal-unwanted-service").start()


class Device:
    """A device of a service, in a session of its own. Close it, or use it as an asynchronous context manager."""

    def __init__(self, connection: Connection, name: str, service: EmbeddedService | None = None) -> None:
        self.name = name
        self._connection = connection
        self._service = service

    async def capabilities(self) -> Capabilities:
        """Performance figures."""
        return wire.to_capabilities(await self._connection.ask(self._connection.device.GetCapabilities, self._request))

    async def type(self) -> DeviceType:
        """What the device is."""
        return DeviceType((await self._connection.ask(self._connection.device.GetType, self._request)).type)

    async def version(self) -> str:
        """Version of driver and backends."""
        return (await self._connection.ask(self._connection.device.GetVersionString, self._request)).version

    async def interface_version(self) -> int:
        """Version of the HAL interface."""
        return (await self._connection.ask(self._connection.device.GetInterfaceVersion, self._request)).version

    async def interface_hash(self) -> str:
        """The HAL's hash of that version."""
        return (await self._connection.ask(self._connection.device.GetInterfaceVersion, self._request)).hash

    async def extensions(self) -> tuple[Extension, ...]:
        """Extensions that the device supports."""
        response = await self._connection.ask(self._connection.device.GetSupportedExtensions, self._request)
        return tuple(map(wire.to_extension, response.extensions))

    async def backends(self) -> list[device_pb2.BackendInfo]:
        """The device's backends: ready, skipped or failed, and why."""
        return list((await self._connection.ask(self._connection.device.ListBackends, self._request)).backends)

    @property
    def _request(self) -> device_pb2.DeviceRequest:
        return device_pb2.DeviceRequest(device=self.name)

    async def supported_operations(self, model: Model) -> list[bool]:
        """For each operation of model.main whether the device would run it.

        Raises:
            HalError: INVALID_ARGUMENT: the model is invalid.
        """
        return list((await self._ask_support(model, explain=False)).supported)

    async def explain(self, model: Model) -> Placement:
        """Where each operation of a model would run, and why not elsewhere; nothing is prepared.

        Raises:
            HalError: INVALID_ARGUMENT: the model is invalid.
        """
        return wire.to_placement((await self._ask_support(model, explain=True)).placement)

    async def _ask_support(self, model: Model, *, explain: bool) -> device_pb2.GetSupportedOperationsResponse:
        connection = self._connection
        handles: list[bytes] = []
        try:
            request = device_pb2.GetSupportedOperationsRequest(
                session=connection.session,
                device=self.name,
                model=await self._message(model, handles),
                explain=explain,
            )
            return await connection.call(connection.device.GetSupportedOperations, request)
        finally:
            connection.discard(*handles)

    async def prepare(
        self,
        model: Model,
        *,
        preference: int = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: int = Priority.MEDIUM,
        deadline: float | None = None,
    ) -> "PreparedModel":
        """Prepares a model. When the task is cancelled, the service abandons the work.

        Args:
            preference: an ExecutionPreference.
            priority: a Priority, among this client's own models.
            deadline: seconds from now; the preparation ends with MISSED_DEADLINE_* when it is not met.

        Raises:
            HalError: what the launch or the callback brought.
        """
        handles: list[bytes] = []
        try:
            request = prepare_request(await self._message(model, handles), preference, priority, deadline)
            request.session, request.device = self._connection.session, self.name
            return await self._prepared(request, names_of(model))
        finally:
            self._connection.discard(*handles)

    async def _prepared(self, request: device_pb2.PrepareModelRequest, names: Names) -> "PreparedModel":
        prepared: PreparedModel | None = None
        failed: HalError | None = None
        try:
            async for event in self._connection.stream(self._connection.device.PrepareModel, request):
                if event.WhichOneof("event") == "notify" and (failed := failure(event.notify)) is None:
                    prepared = PreparedModel(self._connection, event.notify, names)
        except HalError as error:
            failed = failed or error
        if prepared is None:
            raise failed or never_notified()
        return prepared

    async def fence(self) -> OwnFence:
        """A fence of this client's own, for `wait_for`; `signal` it.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT: the session has all the fences that it may have.
        """
        return await OwnFence.make(self._connection)

    async def _message(self, model: Model, handles: list[bytes]) -> types_pb2.Model:
        model = pools.with_small_values(model)
        taken = memoryview(model.operand_values).nbytes
        send = await self._connection.place(model.pools, handles, lasting=True, taken=taken)
        return wire.model_message(model, send)

    async def allocate(self, *, inputs: Roles = (), outputs: Roles = (), dimensions: Sequence[int] = ()) -> Buffer:
        """Makes a driver-managed buffer: a tensor that stays on the device.

        Args:
            inputs, outputs: what it may be used for: (prepared model, number or name of its input or output).
            dimensions: its shape, where the roles leave it open; 0 is an unknown dimension.

        Raises:
            HalError: INVALID_ARGUMENT: roles and dimensions do not go together; RESOURCE_EXHAUSTED_*.
        """
        wanted = allocation(inputs, outputs, dimensions)
        wanted.request.session, wanted.request.device = self._connection.session, self.name
        allocated = await self._connection.call(self._connection.device.Allocate, wanted.request)
        return Buffer(self._connection, allocated, wanted.operand)

    async def close(self) -> None:
        """Ends the session; what it owned is freed by the service. An embedded service ends too."""
        try:
            await self._connection.close()
        finally:
            if self._service is not None:
                await asyncio.to_thread(self._service.close)

    async def __aenter__(self) -> "Device":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class PreparedModel(PreparedModelBase):
    """A model that is ready to run, by any number of tasks at once.

    The service lets it go when this object is closed or collected.
    """

    def __init__(self, connection: Connection, notify: device_pb2.Notify, names: Names) -> None:
        super().__init__(notify, names, connection.discard)
        self._connection = connection

    @overload
    async def execute(
        self,
        inputs: BufferInputs,
        *,
        outputs: None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
    ) -> Outputs: ...

    @overload
    async def execute(
        self,
        inputs: BufferInputs,
        *,
        outputs: Targets,
        deadline: float | None = None,
        measure_timing: bool = False,
    ) -> BufferOutputs: ...

    async def execute(
        self,
        inputs: BufferInputs,
        *,
        outputs: Targets | None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
    ) -> Outputs | BufferOutputs:
        """Runs the model. When the task is cancelled, the service abandons the work.

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
                return execution.results(await self._execute(execution.request, deadline, measure_timing))
        local = self._connection.local
        if local is not None:
            done = await local.execute(self._handle, self._ends, plain, deadline, measure_timing)
            if done is not None:
                return done
        return self._ends.results(await self._execute(self._ends.request(plain), deadline, measure_timing))

    async def _execute(self, request: Request, deadline: float | None, measure_timing: bool) -> ExecutionResult:
        connection = self._connection
        handles: list[bytes] = []
        try:
            send = await connection.place(request.pools, handles, lasting=False)
            message = wire.request_message(request, send)
            response = await connection.call(
                connection.prepared_model.ExecuteSynchronously,
                self._execute_request(connection.session, message, deadline, measure_timing),
            )
            handles += (returned := outputs_in_memory(response))
            return read_result(response, {handle: await connection.read_memory(handle) for handle in returned})
        finally:
            connection.discard(*handles)

    async def execute_fenced(
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
        return await execute_fenced(self._connection, self._handle, self._ends, inputs, *how)

    async def reusable(self, inputs: Inputs, *, measure_timing: bool = False) -> Execution:
        """Freezes an execution, to be run many times; its inputs stay on the service and can be changed in place.

        Args:
            inputs: as for `execute`. Their shapes stay what they are.
            measure_timing: fill the timings of all runs.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not fit; RESOURCE_EXHAUSTED_*.
        """
        return await Execution(self._connection, self._handle, self._ends, inputs, measure_timing).open()

    def burst(self) -> Burst:
        """A burst, to be opened by `async with` or `await`: many executions, with less work for each."""
        return Burst(self._open_line)

    async def _open_line(self) -> Line:
        # a method, so that the burst keeps this model until it is open
        return await open_line(self._connection, self._handle, self._ends)

    async def close(self) -> None:
        """Lets the model go. Executions in progress finish."""
        self._finalizer()

    async def __aenter__(self) -> "PreparedModel":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
