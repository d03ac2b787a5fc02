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
from collections.abc import Generator, Iterable, Sequence
from typing import Any, Unpack, overload

from nnhal import wire
from nnhal.aio_buffer import Buffer
from nnhal.aio_burst import Burst, Line, open_line
from nnhal.aio_connection import Connection
from nnhal.aio_fence import ExecutionFence, Fence, OwnFence, execute_fenced
from nnhal.aio_reusable import Execution
from nnhal.aio_warm import Lifeline, device_version, model_message, notified, prepare
from nnhal.buffer import Roles, allocation
from nnhal.buffered import BufferedExecution, BufferInputs, BufferOutputs, How, Targets, without_buffers
from nnhal.caching import Recipe, Until, check_request, is_lost
from nnhal.errors import HalError
from nnhal.fenced import FencedInputs, FencedLaunch
from nnhal.local import Transport
from nnhal.owned import AioOwned
from nnhal.prepared import (
    Names,
    Place,
    PreparedModelBase,
    execute_request,
    in_memory,
    names_of,
    new_execute_request,
    prepare_request,
    read_result,
    read_results,
    support_request,
)
from nnhal.profiling import Profile, profile_request
from nnhal.templates import pools_of
from nnhal.tensors import Inputs, Outputs
from nnhal.types import (
    CacheCounters,
    CacheOutcome,
    Capabilities,
    DeviceType,
    ExecutionPreference,
    Extension,
    Model,
    Placement,
    Priority,
)
from nnhal.v1 import cache_pb2, device_pb2

__all__ = ["Buffer", "Device", "Inputs", "Outputs", "PreparedModel", "connect"]


def connect(
    target: str | None = None, *, device: str = "", timeout: float = 10.0, transport: Transport = "auto"
) -> "Connecting":
    """As `nnhal.client.connect`: `device = await connect(...)`, or `async with connect(...) as device`."""
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
        lifeline = Lifeline(self._target, self._timeout, self._transport)
        await lifeline.open()
        return Device(lifeline, self._name)


class Device:
    """A device of a service, in a session of its own. Close it, or use it as an asynchronous context manager."""

    def __init__(self, lifeline: Lifeline, name: str) -> None:
        self.name = name
        self._lifeline = lifeline

    @property
    def _connection(self) -> Connection:
        return self._lifeline.connection

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
        """As `nnhal.client.Device.supported_operations`."""
        return list((await self._ask_support(model, explain=False)).supported)

    async def explain(self, model: Model) -> Placement:
        """As `nnhal.client.Device.explain`."""
        return wire.to_placement((await self._ask_support(model, explain=True)).placement)

    async def _ask_support(self, model: Model, *, explain: bool) -> device_pb2.GetSupportedOperationsResponse:
        connection = self._connection
        async with model_message(connection, model) as message:
            request = support_request(connection.session, self.name, message, explain=explain)
            return await connection.call(connection.device.GetSupportedOperations, request)

    async def prepare(
        self,
        model: Model,
        *,
        cache: bool = False,
        token: bytes | None = None,
        preference: int = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: int = Priority.MEDIUM,
        deadline: float | None = None,
    ) -> "PreparedModel":
        """As `nnhal.client.Device.prepare`. When the task is cancelled, the service abandons the work.

        Raises:
            HalError: what the launch or the callback brought.
        """
        if cache or token is not None:
            until = Until(deadline)
            # a digest of hundreds of megabytes takes too long for an event loop
            recipe = await asyncio.to_thread(Recipe.of, model, self.name, preference, priority, token)
            return await self._warm(recipe, until)
        connection = self._connection
        async with model_message(connection, model) as message:
            request = prepare_request(connection.session, self.name, message, preference, priority, deadline)
            notify = await notified(connection, connection.device.PrepareModel, request)
        return PreparedModel(connection, notify, names_of(model))

    async def _warm(self, recipe: Recipe, until: Until) -> "PreparedModel":
        connection = self._connection
        try:
            notify = await prepare(connection, recipe, until, again=False)
        except HalError as error:
            if not is_lost(error):
                raise
            renewed = await self._lifeline.renewed(connection, until)
            if renewed is connection:
                raise
            connection = renewed
            notify = await prepare(connection, recipe, until, again=False)
        return PreparedModel(connection, notify, recipe.names, (self._lifeline, recipe))

    async def cached(
        self,
        model: Model | bytes,
        *,
        preference: int = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: int = Priority.MEDIUM,
    ) -> CacheOutcome:
        """As `nnhal.client.Device.cached`."""
        connection = self._connection
        token = model
        if isinstance(token, Model):
            recipe = await asyncio.to_thread(Recipe.of, token, self.name, preference, priority, None)
            token = recipe.token_on(await device_version(connection, self.name))
        response = await connection.call(connection.cache.Check, check_request(connection.session, self.name, token))
        return wire.to_cache_outcome(response.outcome)

    async def cache_counters(self) -> CacheCounters:
        """As `nnhal.client.Device.cache_counters`."""
        connection = self._connection
        request = cache_pb2.ListCacheRequest(session=connection.session)
        return wire.to_cache_counters((await connection.call(connection.cache.List, request)).counters)

    async def fence(self) -> OwnFence:
        """As `nnhal.client.Device.fence`."""
        return await OwnFence.make(self._connection)

    async def allocate(self, *, inputs: Roles = (), outputs: Roles = (), dimensions: Sequence[int] = ()) -> Buffer:
        """As `nnhal.client.Device.allocate`."""
        connection = self._connection
        wanted = allocation(connection.session, self.name, inputs, outputs, dimensions)
        allocated = await connection.call(connection.device.Allocate, wanted.request)
        return Buffer(connection, allocated, wanted.operand)

    async def close(self) -> None:
        """Ends the session; what it owned is freed by the service. An embedded service ends too."""
        await self._lifeline.close()

    async def __aenter__(self) -> "Device":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class PreparedModel(PreparedModelBase, AioOwned):
    """A model that is ready to run, by any number of tasks at once.

    The service lets it go when this object is closed or collected.
    """

    def __init__(
        self,
        connection: Connection,
        notify: device_pb2.Notify,
        names: Names,
        warm: tuple[Lifeline, Recipe] | None = None,
    ) -> None:
        super().__init__(notify, names, connection.discard)
        self._place = Place(connection, notify.prepared_model)
        self._warm = warm
        self._moving = asyncio.Lock()

    @overload
    async def execute(self, inputs: BufferInputs, *, outputs: None = None, **how: Unpack[How]) -> Outputs: ...

    @overload
    async def execute(self, inputs: BufferInputs, *, outputs: Targets, **how: Unpack[How]) -> BufferOutputs: ...

    async def execute(
        self,
        inputs: BufferInputs,
        *,
        outputs: Targets | None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
    ) -> Outputs | BufferOutputs:
        """As `nnhal.client.PreparedModel.execute`. When the task is cancelled, the service abandons the work."""
        plain = without_buffers(inputs, outputs)
        if plain is None:  # never repeated: buffers go with their session
            execution = BufferedExecution(self._ends, inputs, outputs)
            return await self._execute_buffered(execution, deadline, measure_timing)
        if self._warm is None:
            return await self._execute_plain(self._place, plain, deadline, measure_timing)
        return await self._execute_repeatedly(*self._warm, plain, deadline, measure_timing)

    async def _execute_repeatedly(
        self, lifeline: Lifeline, recipe: Recipe, inputs: Inputs, deadline: float | None, measure_timing: bool
    ) -> Outputs:
        """As in `nnhal.client`."""
        until = Until(deadline)
        connection, repeats = self._place.connection, 0
        while True:
            try:
                place = await self._place_on(connection, recipe, until)
                return await self._execute_plain(place, inputs, until.left, measure_timing)
            except HalError as error:
                if not lifeline.repeats(error, connection, repeats):
                    raise
            connection, repeats = await lifeline.renewed(connection, until), repeats + 1

    async def _place_on(self, connection: Connection, recipe: Recipe, until: Until) -> Place[Connection]:
        """Where the model is on a connection; the first who asks prepares it there."""
        if self._place.connection is connection:
            return self._place
        async with self._moving:
            if self._place.connection is not connection:
                notify = await prepare(connection, recipe, until, again=True)
                self._move(notify, connection.discard)
                self._place = Place(connection, notify.prepared_model)
            return self._place

    async def _execute_plain(
        self, place: Place[Connection], inputs: Inputs, deadline: float | None, measure_timing: bool
    ) -> Outputs:
        local = place.connection.local
        if local is not None:
            done = await local.execute(place.handle, self._ends, inputs, deadline, measure_timing)
            if done is not None:
                return done
        connection, arrays = place.connection, self._ends.arrays(inputs)
        pools, handles = pools_of(arrays), list[bytes]()
        try:
            elsewhere = await connection.spill(pools, handles, lasting=False)
            message = new_execute_request(connection.session, place.handle, deadline, measure_timing)
            self._templates.fill(message.request, arrays, pools, elsewhere)
            response = await connection.call(connection.prepared_model.ExecuteSynchronously, message)
            return read_results(self._ends, response, await connection.fetch(in_memory(response.returned)))
        finally:
            connection.discard(*handles)

    async def _execute_buffered(
        self, execution: BufferedExecution, deadline: float | None, measure_timing: bool
    ) -> Outputs | BufferOutputs:
        connection, handle = self._place
        with execution.filling():
            async with connection.spilled(execution.request.pools) as send:
                request = wire.request_message(execution.request, send)
                message = execute_request(connection.session, handle, request, deadline, measure_timing)
                response = await connection.call(connection.prepared_model.ExecuteSynchronously, message)
            return execution.read(response, await connection.fetch(in_memory(response.returned)))

    async def profile(self, inputs: Inputs, *, deadline: float | None = None) -> Profile:
        """As `nnhal.client.PreparedModel.profile`."""
        request = self._ends.request(inputs)
        connection, handle = self._place
        async with connection.spilled(request.pools) as send:
            message = profile_request(connection.session, handle, wire.request_message(request, send), deadline)
            response = await connection.call(connection.prepared_model.ExecuteSynchronouslyWithConfig, message)
        result = read_result(response, await connection.fetch(in_memory(response.returned)))
        return Profile(self._ends.results(result), result.spans, result.dropped_spans)

    @overload
    async def execute_fenced(
        self,
        inputs: FencedInputs,
        *,
        outputs: None = None,
        wait_for: Iterable[Fence] = (),
        deadline: float | None = None,
        duration: float | None = None,
        measure_timing: bool = False,
    ) -> ExecutionFence[Outputs]: ...

    @overload
    async def execute_fenced(
        self,
        inputs: FencedInputs,
        *,
        outputs: Targets,
        wait_for: Iterable[Fence] = (),
        deadline: float | None = None,
        duration: float | None = None,
        measure_timing: bool = False,
    ) -> ExecutionFence[BufferOutputs]: ...

    async def execute_fenced(
        self,
        inputs: FencedInputs,
        *,
        outputs: Targets | None = None,
        wait_for: Iterable[Fence] = (),
        deadline: float | None = None,
        duration: float | None = None,
        measure_timing: bool = False,
    ) -> ExecutionFence[Any]:
        """As `nnhal.client.PreparedModel.execute_fenced`."""
        launch = FencedLaunch(self._ends, inputs, outputs, wait_for, deadline, duration, measure_timing)
        return await execute_fenced(*self._place, launch)

    @overload
    async def reusable(
        self, inputs: BufferInputs, *, outputs: None = None, measure_timing: bool = False
    ) -> Execution[Outputs]: ...

    @overload
    async def reusable(
        self, inputs: BufferInputs, *, outputs: Targets, measure_timing: bool = False
    ) -> Execution[BufferOutputs]: ...

    async def reusable(
        self, inputs: BufferInputs, *, outputs: Targets | None = None, measure_timing: bool = False
    ) -> Execution[Any]:
        """As `nnhal.client.PreparedModel.reusable`."""
        return await Execution(*self._place, self._ends, inputs, outputs, measure_timing).open()

    def burst(self) -> Burst:
        """A burst, to be opened by `async with` or `await`: many executions, with less work for each."""
        return Burst(self._open_line, self._ends)

    async def _open_line(self) -> Line:
        # a method, so that the burst keeps this model until it is open
        return await open_line(*self._place, self._ends)
