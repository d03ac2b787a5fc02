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
from collections.abc import Generator

from nnhal import pools, wire
from nnhal.aio_connection import Connection
from nnhal.embedded import EmbeddedService
from nnhal.errors import HalError
from nnhal.prepared import (
    Names,
    PreparedModelBase,
    failure,
    names_of,
    never_notified,
    outputs_in_memory,
    prepare_request,
)
from nnhal.tensors import Inputs, Outputs
from nnhal.types import Capabilities, DeviceType, ExecutionPreference, Extension, Model, Placement, Priority
from nnhal.v1 import device_pb2, types_pb2

__all__ = ["Device", "Inputs", "Outputs", "PreparedModel", "connect"]


def connect(target: str | None = None, *, device: str = "", timeout: float = 10.0) -> "Connecting":
    """Opens a session on a service: `device = await connect(...)`, or `async with connect(...) as device`.

    Args:
        target: "HOST:PORT" or "unix:PATH"; None: a service of its own in a child process, which ends with the device.
        device: name of the device; the server's first by default.
        timeout: seconds to wait for the service.

    Raises:
        DeadObjectError: the service does not answer, or does not start.
    """
    return Connecting(target, device, timeout)


class Connecting:
    """A device that is to be connected: await it, or use it as an asynchronous context manager."""

    def __init__(self, target: str | None, name: str, timeout: float) -> None:
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
        connection = Connection(target)
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

    async def _message(self, model: Model, handles: list[bytes]) -> types_pb2.Model:
        model = pools.with_small_values(model)
        taken = memoryview(model.operand_values).nbytes
        send = await self._connection.place(model.pools, handles, lasting=True, taken=taken)
        return wire.model_message(model, send)

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

    async def execute(self, inputs: Inputs, *, deadline: float | None = None, measure_timing: bool = False) -> Outputs:
        """Runs the model. When the task is cancelled, the service abandons the work.

        Args:
            inputs: one array per input, by position or by name; None omits an optional one. An array has the dtype of
                its operand (lists and numbers are converted) and its shape.
            deadline: seconds from now.
            measure_timing: fill `timing` of the result.

        Returns:
            one array per output, as large as needed.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not fit; MISSED_DEADLINE_*; or the execution failed.
        """
        connection, request = self._connection, self._ends.request(inputs)
        handles: list[bytes] = []
        try:
            send = await connection.place(request.pools, handles, lasting=False)
            message = wire.request_message(request, send)
            response = await connection.call(
                connection.prepared_model.ExecuteSynchronously,
                self._execute_request(connection.session, message, deadline, measure_timing),
            )
            handles += (returned := outputs_in_memory(response))
            return self._results(response, {handle: await connection.read_memory(handle) for handle in returned})
        finally:
            connection.discard(*handles)

    async def close(self) -> None:
        """Lets the model go. Executions in progress finish."""
        self._finalizer()

    async def __aenter__(self) -> "PreparedModel":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
