"""Prepared models of which the client's machine runs the operations that the device does not support."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NoReturn

from numpy.typing import ArrayLike

from nnhal.client.aio.concurrency import Lock, Work
from nnhal.client.aio.prepared_model import PreparedModel
from nnhal.client.aio.stream import Stream
from nnhal.client.core.arrays import CallInput, Inputs, Outputs, TensorInfo, call_inputs
from nnhal.client.core.buffered_execution import plain_inputs
from nnhal.client.core.cache import SharedDeadline
from nnhal.client.core.handles import AsyncCloseable, description
from nnhal.client.core.prepared_model import DescribedModel
from nnhal.client.core.profile import ExecutionProfile
from nnhal.client.core.streams import StreamIO
from nnhal.client.fallback.division import DividedModel
from nnhal.client.fallback.execution import PartValues, combine_profiles, naming_part
from nnhal.client.fallback.placement import THIS_MACHINE, FallbackPlacement, Refusals, combine_placements, summary
from nnhal.errors import HalError, argument_error
from nnhal.litert_extension import element_dtypes
from nnhal.types import AnyArray, CacheOutcome, CacheState, Operand, PreparationWarning

_CACHE_STATES = (CacheState.UNSPECIFIED, CacheState.NOT_SAVED, CacheState.MISS, CacheState.SAVED, CacheState.HIT)
"""The outcome of a model is the first of these that one of its parts has."""


class PartitionedModel(DescribedModel, AsyncCloseable):
    """Model that is ready to run, partly on the device and partly on the client's machine.

    It has the properties and methods of `PreparedModel`. Only `execute`, `profile` and `stream` are possible: values
    pass through the client between the parts.
    """

    def __init__(
        self,
        divided: DividedModel,
        parts: Sequence[PreparedModel],
        refusals: Refusals,
        prepare_whole: Work[[], PreparedModel],
    ) -> None:
        whole, main = divided.whole, divided.whole.main
        written: dict[int, Operand] = {}  # the service may know more about the shapes of outputs than the model
        for part, model in zip(divided.parts, parts, strict=True):
            written |= zip(part.outputs, model.outputs, strict=True)
        dtypes = element_dtypes(whole.extension_name_to_prefix)
        infos = (info for model in parts for info in (*model.inputs, *model.outputs))
        types = {info.type: info.extension_type for info in infos if info.extension_type is not None}
        super().__init__(
            TensorInfo.all_of(
                [main.operands[i] for i in main.input_indexes], whole.input_names, dtypes, types, whole.normalizations
            ),
            TensorInfo.all_of([written[i] for i in main.output_indexes], whole.output_names, dtypes, types),
            (whole.input_names, whole.output_names),
            whole.states,
        )
        self._divided = divided
        self._refusals = refusals
        self._parts = tuple(parts)
        self._start_whole = prepare_whole
        self._prepared_whole: PreparedModel | None = None
        self._preparing_whole = Lock()
        self._closed = False

    @cached_property
    def placement(self) -> FallbackPlacement:
        """Backend of each operation, on the device or on this machine, with reasons and the cost."""
        return combine_placements(self._divided, [part.placement for part in self._parts], self._refusals)

    @property
    def warnings(self) -> list[PreparationWarning]:
        """Problems that did not make the preparation fail: the fallback (code "fallback"), and those of the parts."""
        own = PreparationWarning("fallback", summary(self._divided, self._refusals))
        return [own, *(warning for part in self._parts for warning in part.warnings)]

    @property
    def cache(self) -> CacheOutcome:
        """Outcome of the compilation cache: that of the part which was served worst."""
        outcomes = {part.cache.state: part.cache for part in reversed(self._parts)}
        return next(outcomes[state] for state in _CACHE_STATES if state in outcomes)

    async def __call__(self, *values: CallInput, **named: ArrayLike | None) -> Outputs:
        """Run the model with one value per input, by position or by name, as `execute` does."""
        return await self.execute(call_inputs(values, named))

    async def execute(
        self,
        inputs: Inputs,
        *,
        outputs: None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
    ) -> Outputs:
        """Run the model.

        Args:
            inputs: one array per input, as for `PreparedModel.execute`; no buffers.
            outputs: None: buffers are not possible.
            deadline: seconds from now, for all parts together.
            measure_timing: whether to fill `timing` of the result with the sums of the parts' times.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not match its operand; MISSED_DEADLINE_*; or the execution failed.
                The error of a part names it.
        """
        self._check_plain(inputs, outputs)
        end = SharedDeadline(deadline)
        values = PartValues(self._divided, self._io, inputs)
        for number, part in enumerate(self._parts):
            arrays = values.inputs_of(number)
            if arrays is None:
                whole = await self._prepare_whole()
                return await whole.execute(inputs, deadline=end.remaining, measure_timing=measure_timing)
            with naming_part(self._divided, number):
                result = await part.execute(arrays, deadline=end.remaining, measure_timing=measure_timing)
            values.add(number, result)
        return values.outputs()

    async def profile(self, inputs: Inputs, *, deadline: float | None = None) -> ExecutionProfile:
        """Run the model once and measure the parts of the work, which makes it slower. Never retried.

        Args:
            inputs: as for `execute`.
            deadline: seconds from now, for all parts together.

        Raises:
            HalError: see `execute`.
        """
        self._check_plain(inputs, None)
        end = SharedDeadline(deadline)
        values = PartValues(self._divided, self._io, inputs)
        profiles: list[ExecutionProfile] = []
        for number, part in enumerate(self._parts):
            arrays = values.inputs_of(number)
            if arrays is None:
                whole = await self._prepare_whole()
                return await whole.profile(inputs, deadline=end.remaining)
            with naming_part(self._divided, number):
                profiles.append(await part.profile(arrays, deadline=end.remaining))
            values.add(number, profiles[-1].outputs)
        return combine_profiles(self._divided, profiles, values.outputs())

    async def _prepare_whole(self) -> PreparedModel:
        """Return the whole model on the client's machine.

        Requests cannot contain the empty tensors that pass between the parts, as of a detector that finds nothing.
        """
        async with self._preparing_whole:
            if self._prepared_whole is None:
                self._prepared_whole = await self._start_whole()
            return self._prepared_whole

    def _unavailable(self, method: str) -> HalError:
        """Return the error of a method that this kind of model lacks."""
        local, total = len(self._divided.fallback_operations), len(self._divided.whole.main.operations)
        return argument_error(
            f"{method} is not possible: {local} of {total} operations of the model run on {THIS_MACHINE}; use execute()"
        )

    def _check_plain(self, inputs: Inputs, outputs: object) -> None:
        """Check that an execution uses no buffers."""
        if outputs is not None or plain_inputs(inputs, None) is None:
            raise self._unavailable("an execution with buffers")

    def stream(self) -> Stream:
        """Return a stream: step-by-step executions of a model with states. The client holds the states.

        Raises:
            HalError: INVALID_ARGUMENT: the model has no states.
        """
        return Stream(ClientStates(self, StreamIO(self._io, self.states)))

    async def renew(self) -> None:
        """Connect and prepare the parts again whose sessions are lost and that are in the cache.

        Raises:
            DeadObjectError: a service does not come back in time.
        """
        for part in self._parts:
            await part.renew()

    def burst(self) -> NoReturn:
        """Refuse: values pass through the client.

        Raises:
            HalError: INVALID_ARGUMENT.
        """
        raise self._unavailable("burst()")

    async def execute_fenced(self, *_: object, **__: object) -> NoReturn:
        """Refuse: values pass through the client.

        Raises:
            HalError: INVALID_ARGUMENT.
        """
        raise self._unavailable("execute_fenced()")

    async def reusable(self, *_: object, **__: object) -> NoReturn:
        """Refuse: values pass through the client.

        Raises:
            HalError: INVALID_ARGUMENT.
        """
        raise self._unavailable("reusable()")

    async def close(self) -> None:
        """Release the parts on their services, and the own device if there is one. Executions in progress finish."""
        self._closed = True
        for part in (*self._parts, self._prepared_whole, self.owner):
            if part is not None:
                await part.close()

    def __repr__(self) -> str:
        local, total = len(self._divided.fallback_operations), len(self._divided.whole.main.operations)
        place = f"{total - local} operations on the device and {local} on {THIS_MACHINE}"
        return description(self, f"{place}, {self._io.description}", closed=self._closed)


class ClientStates:
    """States in arrays of the client, for a stream."""

    def __init__(self, model: PartitionedModel, io: StreamIO) -> None:
        self._model = model
        self._io = io
        self._current: Sequence[AnyArray] = io.initial

    async def step(self, inputs: Inputs, deadline: float | None, measure_timing: bool) -> Outputs:
        """Run the model once."""
        arrays: Any = self._io.with_states(inputs, self._current)
        results = await self._model.execute(arrays, deadline=deadline, measure_timing=measure_timing)
        self._current = [results[output] for _, output in self._io.state_positions]
        return self._io.without_states(results)

    async def release(self) -> None:
        """Return to the initial states."""
        self._current = self._io.initial

    async def renew(self) -> None:
        """Connect and prepare the parts again if a service has restarted."""
        await self._model.renew()
