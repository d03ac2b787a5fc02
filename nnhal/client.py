"""The synchronous client; `nnhal.aio` is the same for asyncio.

import nnhal, nnhal.tflite

with nnhal.connect("localhost:50051") as device:
    prepared = device.prepare(nnhal.tflite.load("model.tflite")).result()
    outputs = prepared.execute([image])
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import cached_property
from typing import Any, Unpack, overload

from nnhal import wire
from nnhal.buffer import Buffer, Roles, allocation
from nnhal.buffered import BufferedExecution, BufferInputs, BufferOutputs, How, Targets, without_buffers
from nnhal.burst import Burst
from nnhal.caching import Recipe, Until, check_request, is_lost
from nnhal.connection import Connection
from nnhal.errors import HalError
from nnhal.fence import ExecutionFence, Fence, OwnFence, execute_fenced
from nnhal.fenced import FencedInputs, FencedLaunch
from nnhal.forms import KnownAnswers, KnownCalls
from nnhal.lines import open_line
from nnhal.local import Transport
from nnhal.moulds import inline_pools
from nnhal.owned import Owned
from nnhal.prepared import (
    Names,
    Place,
    PreparedModelBase,
    encoded_deadline,
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
from nnhal.reusable import Execution
from nnhal.templates import pools_of
from nnhal.tensors import Inputs, Outputs
from nnhal.types import (
    AnyArray,
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
from nnhal.v1 import cache_pb2, device_pb2, types_pb2
from nnhal.warm import Calls, Lifeline, device_version, model_message, prepare, read_notify

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
    return Device(Lifeline(target, timeout, transport), device)


class Device:
    """A device of a service, in a session of its own. Close it, or use it as a context manager."""

    def __init__(self, lifeline: Lifeline, name: str) -> None:
        self.name = name
        self._lifeline = lifeline

    @property
    def _connection(self) -> Connection:
        return self._lifeline.connection

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
        connection = self._connection
        with model_message(connection, model) as message:
            request = support_request(connection.session, self.name, message, explain=explain)
            return connection.call(connection.device.GetSupportedOperations, request)

    def prepare(
        self,
        model: Model,
        *,
        cache: bool = False,
        token: bytes | None = None,
        preference: int = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: int = Priority.MEDIUM,
        deadline: float | None = None,
    ) -> "Preparation":
        """Starts to prepare a model.

        With `cache` or `token` the service is first asked for what it has kept of the model, without sending it; where
        that fails the model is prepared and kept, and `PreparedModel.cache` says so. Such a model survives a restart of
        the service: `execute` then connects and prepares again by itself. For that it keeps the model.

        Args:
            cache: use the cache, with a token derived from the model and the device.
            token: use the cache, with these 32 bytes, which stand for this model, preference and priority.
            preference: an ExecutionPreference.
            priority: a Priority, among this client's own models.
            deadline: seconds from now; the preparation ends with MISSED_DEADLINE_* when it is not met.

        Returns:
            a future of the prepared model. Errors come from its `result()`.

        Raises:
            HalError: constants that are too large for a message could not be uploaded; INVALID_ARGUMENT: the length of
                the token.
        """
        if cache or token is not None:
            recipe = Recipe.of(model, self.name, preference, priority, token)
            until = Until(deadline)
            return Preparation(lambda calls: self._warm(recipe, calls, until))
        connection, calls = self._connection, Calls()
        with ExitStack() as stack:
            message = stack.enter_context(model_message(connection, model))
            request = prepare_request(connection.session, self.name, message, preference, priority, deadline)
            stream = calls.start(connection, connection.device.PrepareModel, request)
            uploaded = stack.pop_all()

        def prepared(_: Calls) -> PreparedModel:
            with uploaded:
                return PreparedModel(connection, read_notify(stream), names_of(model))

        return Preparation(prepared, calls)

    def _warm(self, recipe: Recipe, calls: Calls, until: Until) -> "PreparedModel":
        connection = self._connection
        try:
            notify = prepare(connection, recipe, calls, until, again=False)
        except HalError as error:
            if not is_lost(error):
                raise
            renewed = self._lifeline.renewed(connection, until)
            if renewed is connection:
                raise
            connection = renewed
            notify = prepare(connection, recipe, calls, until, again=False)
        return PreparedModel(connection, notify, recipe.names, (self._lifeline, recipe))

    def cached(
        self,
        model: Model | bytes,
        *,
        preference: int = ExecutionPreference.FAST_SINGLE_ANSWER,
        priority: int = Priority.MEDIUM,
    ) -> CacheOutcome:
        """Whether `prepare` would find a model in the cache (HIT), and if not why not (MISS). Prepares nothing.

        Args:
            model: the model, or its token.

        Raises:
            HalError: INVALID_ARGUMENT: the length of the token.
        """
        connection = self._connection
        token = model
        if isinstance(token, Model):
            recipe = Recipe.of(token, self.name, preference, priority, None)
            token = recipe.token_on(device_version(connection, self.name))
        request = check_request(connection.session, self.name, token)
        return wire.to_cache_outcome(connection.call(connection.cache.Check, request).outcome)

    def cache_counters(self) -> CacheCounters:
        """What the service has done with this client's entries of the compilation cache since it started."""
        connection = self._connection
        request = cache_pb2.ListCacheRequest(session=connection.session)
        return wire.to_cache_counters(connection.call(connection.cache.List, request).counters)

    def fence(self) -> OwnFence:
        """A fence of this client's own, for `wait_for`; `signal` it.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT: the session has all the fences that it may have.
        """
        return OwnFence(self._connection)

    def allocate(self, *, inputs: Roles = (), outputs: Roles = (), dimensions: Sequence[int] = ()) -> Buffer:
        """Makes a driver-managed buffer: a tensor that stays on the device.

        Args:
            inputs, outputs: what it may be used for: (prepared model, number or name of its input or output).
            dimensions: its shape, where the roles leave it open; 0 is an unknown dimension.

        Raises:
            HalError: INVALID_ARGUMENT: roles and dimensions do not go together; RESOURCE_EXHAUSTED_*.
        """
        connection = self._connection
        wanted = allocation(connection.session, self.name, inputs, outputs, dimensions)
        allocated = connection.call(connection.device.Allocate, wanted.request)
        return Buffer(connection, allocated, wanted.operand)

    def close(self) -> None:
        """Ends the session; what it owned is freed by the service. An embedded service ends too."""
        self._lifeline.close()

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Preparation(Future["PreparedModel"]):
    """A preparation in progress: a `concurrent.futures.Future` of the prepared model.

    `result()` raises the HalError that the callback brought. `cancel()` abandons the work on the service.
    """

    def __init__(self, work: "Callable[[Calls], PreparedModel]", calls: Calls | None = None) -> None:
        super().__init__()
        self._work = work
        self._calls = calls or Calls()
        threading.Thread(target=self._run, name="nnhal-preparation", daemon=True).start()

    def cancel(self) -> bool:
        """Abandons the work, unless it has finished."""
        cancelled = super().cancel()
        if cancelled:
            self._calls.cancel()
        return cancelled

    def _run(self) -> None:
        prepared: PreparedModel | None = None
        failed: BaseException | None = None
        try:
            prepared = self._work(self._calls)
        except BaseException as error:
            failed = error
        if not self.set_running_or_notify_cancel():
            return
        if prepared is not None:
            self.set_result(prepared)
        else:
            self.set_exception(failed)


class PreparedModel(PreparedModelBase, Owned):
    """A model that is ready to run. Thread safe. The service lets it go when this object is closed or collected."""

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
        self._moving = threading.Lock()
        self._calls = KnownCalls()
        self._answers = KnownAnswers(self._ends)

    @overload
    def execute(self, inputs: BufferInputs, *, outputs: None = None, **how: Unpack[How]) -> Outputs: ...

    @overload
    def execute(self, inputs: BufferInputs, *, outputs: Targets, **how: Unpack[How]) -> BufferOutputs: ...

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
        if plain is None:  # never repeated: buffers go with their session
            execution = BufferedExecution(self._ends, inputs, outputs)
            return self._execute_buffered(execution, deadline, measure_timing)
        if self._warm is None:
            return self._execute_plain(self._place, plain, deadline, measure_timing)
        return self._execute_repeatedly(*self._warm, plain, deadline, measure_timing)

    def _execute_repeatedly(
        self, lifeline: Lifeline, recipe: Recipe, inputs: Inputs, deadline: float | None, measure_timing: bool
    ) -> Outputs:
        """Executes; again on the next connection where one is lost, which does no harm: an execution only computes."""
        until = Until(deadline)
        connection, repeats = self._place.connection, 0
        while True:
            try:
                place = self._place_on(connection, recipe, until)
                return self._execute_plain(place, inputs, until.left, measure_timing)
            except HalError as error:
                if not lifeline.repeats(error, connection, repeats):
                    raise
            connection, repeats = lifeline.renewed(connection, until), repeats + 1

    def _place_on(self, connection: Connection, recipe: Recipe, until: Until) -> Place[Connection]:
        """Where the model is on a connection; the first who asks prepares it there."""
        if self._place.connection is connection:
            return self._place
        with self._moving:
            if self._place.connection is not connection:
                notify = prepare(connection, recipe, Calls(), until, again=True)
                self._move(notify, connection.discard)
                self._place = Place(connection, notify.prepared_model)
            return self._place

    def _execute_plain(
        self, place: Place[Connection], inputs: Inputs, deadline: float | None, measure_timing: bool
    ) -> Outputs:
        local = place.connection.local
        if (
            local is not None
            and (done := local.execute(place.handle, self._ends, inputs, deadline, measure_timing)) is not None
        ):
            return done
        connection, handles = place.connection, list[bytes]()
        try:
            encoded = self._encoded(place, self._ends.arrays(inputs), measure_timing, handles)
            if deadline is not None:
                encoded += encoded_deadline(deadline)
            return self._decoded(connection, connection.call(connection.execute, encoded))
        finally:
            if handles:
                connection.discard(*handles)

    def _encoded(
        self, place: Place[Connection], arrays: Sequence[AnyArray | None], measure_timing: bool, handles: list[bytes]
    ) -> bytes:
        """The message of an execution without a deadline. `handles`: takes those of memory that it uses."""
        how = (place.handle, measure_timing)
        if (known := self._calls.encode(how, arrays)) is not None:
            return known
        pools = pools_of(arrays)
        elsewhere = place.connection.spill(pools, handles, lasting=False)
        message = new_execute_request(place.connection.session, place.handle, None, measure_timing)
        self._templates.fill(message.request, arrays, pools, elsewhere)
        if not elsewhere:
            self._calls.learn(how, arrays, message, lambda one: inline_pools(one.request))
        return message.SerializeToString()

    def _decoded(self, connection: Connection, encoded: bytes) -> Outputs:
        """The outputs in an answer."""
        if (known := self._answers.outputs(encoded)) is not None:
            return known
        response = types_pb2.ExecutionResult.FromString(encoded)
        outputs = read_results(self._ends, response, connection.fetch(in_memory(response.returned)))
        self._answers.learn(encoded, response, lambda one: one.returned, outputs)
        return outputs

    def _execute_buffered(
        self, execution: BufferedExecution, deadline: float | None, measure_timing: bool
    ) -> Outputs | BufferOutputs:
        connection, handle = self._place
        with execution.filling():
            with connection.spilled(execution.request.pools) as send:
                request = wire.request_message(execution.request, send)
                message = execute_request(connection.session, handle, request, deadline, measure_timing)
                response = connection.call(connection.prepared_model.ExecuteSynchronously, message)
            return execution.read(response, connection.fetch(in_memory(response.returned)))

    def profile(self, inputs: Inputs, *, deadline: float | None = None) -> Profile:
        """Runs the model once, and measures the parts of the work; it takes longer for that, and is never repeated.

        Args:
            inputs, deadline: as for `execute`, without buffers.

        Raises:
            HalError: as `execute`.
        """
        request = self._ends.request(inputs)
        connection, handle = self._place
        with connection.spilled(request.pools) as send:
            message = profile_request(connection.session, handle, wire.request_message(request, send), deadline)
            response = connection.call(connection.prepared_model.ExecuteSynchronouslyWithConfig, message)
        result = read_result(response, connection.fetch(in_memory(response.returned)))
        return Profile(self._ends.results(result), result.spans, result.dropped_spans)

    @overload
    def execute_fenced(
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
    def execute_fenced(
        self,
        inputs: FencedInputs,
        *,
        outputs: Targets,
        wait_for: Iterable[Fence] = (),
        deadline: float | None = None,
        duration: float | None = None,
        measure_timing: bool = False,
    ) -> ExecutionFence[BufferOutputs]: ...

    def execute_fenced(
        self,
        inputs: FencedInputs,
        *,
        outputs: Targets | None = None,
        wait_for: Iterable[Fence] = (),
        deadline: float | None = None,
        duration: float | None = None,
        measure_timing: bool = False,
    ) -> ExecutionFence[Any]:
        """Launches an execution and returns; it begins when all fences have signalled.

        Args:
            inputs: as for `execute`; also outputs of other fenced executions, which it then waits for. Whoever put a
                value into a buffer must be waited for by `wait_for`.
            outputs: as for `execute`. A buffer has its value when the execution has succeeded; a failed one empties it.
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
        launch = FencedLaunch(self._ends, inputs, outputs, wait_for, deadline, duration, measure_timing)
        return execute_fenced(*self._place, launch)

    @overload
    def reusable(
        self, inputs: BufferInputs, *, outputs: None = None, measure_timing: bool = False
    ) -> Execution[Outputs]: ...

    @overload
    def reusable(
        self, inputs: BufferInputs, *, outputs: Targets, measure_timing: bool = False
    ) -> Execution[BufferOutputs]: ...

    def reusable(
        self, inputs: BufferInputs, *, outputs: Targets | None = None, measure_timing: bool = False
    ) -> Execution[Any]:
        """Freezes an execution, to be run many times; its inputs stay on the service and can be changed in place.

        Args:
            inputs: as for `execute`. Their shapes stay what they are. Each run reads what a buffer holds by then.
            outputs: as for `execute`.
            measure_timing: fill the timings of all runs.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not fit; RESOURCE_EXHAUSTED_*.
        """
        return Execution(*self._place, self._ends, inputs, outputs, measure_timing)

    def burst(self) -> Burst:
        """Opens a burst: many executions, with less work for each.

        Raises:
            HalError: the model has been closed, or the session has all the bursts that it may have.
        """
        return Burst(open_line(*self._place, self._ends), self._ends)
