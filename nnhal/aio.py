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
from typing import overload

from nnhal import wire
from nnhal.aio_buffer import Buffer
from nnhal.aio_burst import Burst, Line, open_line
from nnhal.aio_connection import Connection
from nnhal.aio_fence import ExecutionFence, Fence, OwnFence, execute_fenced
from nnhal.aio_reusable import Execution
from nnhal.aio_warm import Lifeline, Place, device_version, model_message, notified, prepare
from nnhal.buffer import BufferedExecution, BufferInputs, BufferOutputs, Roles, Targets, allocation, without_buffers
from nnhal.caching import Recipe, Until, check_request, is_lost
from nnhal.errors import HalError
from nnhal.fenced import FencedInputs
from nnhal.local import Transport
from nnhal.prepared import (
    Names,
    PreparedModelBase,
    execute_request,
    failure,
    names_of,
    new_execute_request,
    outputs_in_memory,
    prepare_request,
    read_result,
    read_results,
)
from nnhal.profiling import Profile, profile_request
from nnhal.templates import pools_of
from nnhal.tensors import Inputs, Outputs
from nnhal.types import (
    CacheOutcome,
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
from nnhal.v1 import device_pb2
from nnhal.warm import REPEATS

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
                model=await model_message(connection, model, handles),
                explain=explain,
            )
            return await connection.call(connection.device.GetSupportedOperations, request)
        finally:
            connection.discard(*handles)

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
        """Prepares a model. When the task is cancelled, the service abandons the work.

        Args:
            cache: use the cache, with a token derived from the model and the device; see `nnhal.client.Device.prepare`.
            token: use the cache, with these 32 bytes, which stand for this model, preference and priority.
            preference: an ExecutionPreference.
            priority: a Priority, among this client's own models.
            deadline: seconds from now; the preparation ends with MISSED_DEADLINE_* when it is not met.

        Raises:
            HalError: what the launch or the callback brought.
        """
        if cache or token is not None:
            until = Until(deadline)
            # a digest of hundreds of megabytes takes too long for an event loop
            recipe = await asyncio.to_thread(Recipe.of, model, self.name, preference, priority, token)
            return await self._warm(recipe, until)
        connection = self._connection
        handles: list[bytes] = []
        try:
            message = await model_message(connection, model, handles)
            request = prepare_request(message, preference, priority, deadline)
            request.session, request.device = connection.session, self.name
            notify = await notified(connection, connection.device.PrepareModel, request)
            return PreparedModel(connection, notify, names_of(model))
        finally:
            connection.discard(*handles)

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

    async def fence(self) -> OwnFence:
        """A fence of this client's own, for `wait_for`; `signal` it.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT: the session has all the fences that it may have.
        """
        return await OwnFence.make(self._connection)

    async def allocate(self, *, inputs: Roles = (), outputs: Roles = (), dimensions: Sequence[int] = ()) -> Buffer:
        """Makes a driver-managed buffer: a tensor that stays on the device.

        Args:
            inputs, outputs: what it may be used for: (prepared model, number or name of its input or output).
            dimensions: its shape, where the roles leave it open; 0 is an unknown dimension.

        Raises:
            HalError: INVALID_ARGUMENT: roles and dimensions do not go together; RESOURCE_EXHAUSTED_*.
        """
        wanted = allocation(inputs, outputs, dimensions)
        connection = self._connection
        wanted.request.session, wanted.request.device = connection.session, self.name
        allocated = await connection.call(connection.device.Allocate, wanted.request)
        return Buffer(connection, allocated, wanted.operand)

    async def close(self) -> None:
        """Ends the session; what it owned is freed by the service. An embedded service ends too."""
        await self._lifeline.close()

    async def __aenter__(self) -> "Device":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class PreparedModel(PreparedModelBase):
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
        if (failed := failure(notify)) is not None:
            raise failed
        super().__init__(notify, names, connection.discard)
        self._place = Place(connection, notify.prepared_model)
        self._warm = warm
        self._moving = asyncio.Lock()

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
        if plain is None:  # never repeated: buffers go with their session
            execution = BufferedExecution(self._ends, inputs, outputs)
            with execution.filling():
                result = await self._execute(self._place, execution.request, deadline, measure_timing)
                return execution.results(result)
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
                # what is on its way when somebody else closes a lost connection is cancelled
                if repeats == REPEATS or not (is_lost(error) or lifeline.connection is not connection):
                    raise
            connection, repeats = await lifeline.renewed(connection, until), repeats + 1

    async def _place_on(self, connection: Connection, recipe: Recipe, until: Until) -> Place:
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
        self, place: Place, inputs: Inputs, deadline: float | None, measure_timing: bool
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
            handles += (returned := outputs_in_memory(response))
            return read_results(
                self._ends, response, {handle: await connection.read_memory(handle) for handle in returned}
            )
        finally:
            connection.discard(*handles)

    async def _execute(
        self, place: Place, request: Request, deadline: float | None, measure_timing: bool, *, profile: bool = False
    ) -> ExecutionResult:
        connection = place.connection
        handles: list[bytes] = []
        try:
            send = await connection.place(request.pools, handles, lasting=False)
            message = wire.request_message(request, send)
            if profile:
                config_request = profile_request(connection.session, place.handle, message, deadline)
                response = await connection.call(
                    connection.prepared_model.ExecuteSynchronouslyWithConfig, config_request
                )
            else:
                response = await connection.call(
                    connection.prepared_model.ExecuteSynchronously,
                    execute_request(connection.session, place.handle, message, deadline, measure_timing),
                )
            handles += (returned := outputs_in_memory(response))
            return read_result(response, {handle: await connection.read_memory(handle) for handle in returned})
        finally:
            connection.discard(*handles)

    async def profile(self, inputs: Inputs, *, deadline: float | None = None) -> Profile:
        """Runs the model once, and measures the parts of the work; it takes longer for that, and is never repeated.

        Args:
            inputs, deadline: as for `execute`, without buffers.

        Raises:
            HalError: as `execute`.
        """
        request = self._ends.request(inputs)
        result = await self._execute(self._place, request, deadline, measure_timing=True, profile=True)
        return Profile(self._ends.results(result), result.spans, result.dropped_spans)

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
        connection, handle = self._place
        return await execute_fenced(connection, handle, self._ends, inputs, *how)

    async def reusable(self, inputs: Inputs, *, measure_timing: bool = False) -> Execution:
        """Freezes an execution, to be run many times; its inputs stay on the service and can be changed in place.

        Args:
            inputs: as for `execute`. Their shapes stay what they are.
            measure_timing: fill the timings of all runs.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not fit; RESOURCE_EXHAUSTED_*.
        """
        return await Execution(*self._place, self._ends, inputs, measure_timing).open()

    def burst(self) -> Burst:
        """A burst, to be opened by `async with` or `await`: many executions, with less work for each."""
        return Burst(self._open_line)

    async def _open_line(self) -> Line:
        # a method, so that the burst keeps this model until it is open
        return await open_line(*self._place, self._ends)

    async def close(self) -> None:
        """Lets the model go. Executions in progress finish."""
        self._finalizer()

    async def __aenter__(self) -> "PreparedModel":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
