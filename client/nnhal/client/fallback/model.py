"""Common base of the partitioned models of both clients, without the calls."""

from collections.abc import Sequence
from functools import cached_property

from nnhal.client.core.arrays import ModelIO, TensorInfo
from nnhal.client.core.handles import description
from nnhal.client.core.prepared_model import PreparedModelBase
from nnhal.client.fallback.division import DividedModel
from nnhal.client.fallback.placement import THIS_MACHINE, FallbackPlacement, Refusals, combine_placements, summary
from nnhal.errors import HalError, invalid_argument
from nnhal.litert_extension import element_dtypes
from nnhal.types import CacheOutcome, CacheState, ModelState, Operand, PreparationWarning

_CACHE_STATES = (CacheState.UNSPECIFIED, CacheState.NOT_SAVED, CacheState.MISS, CacheState.SAVED, CacheState.HIT)
"""The outcome of a model is the first of these that one of its parts has."""


class PartitionedModelBase:
    """Prepared model of which the client's machine runs a part.

    Args:
        divided: the model.
        prepared: its parts.
        refusals: for each operation of main that the device does not support, the reasons.
    """

    def __init__(self, divided: DividedModel, prepared: Sequence[PreparedModelBase], refusals: Refusals) -> None:
        self._divided = divided
        self._refusals = refusals
        self._prepared_parts = tuple(prepared)
        whole, main = divided.whole, divided.whole.main
        written: dict[int, Operand] = {}  # the service may know more about the shapes of outputs than the model
        for part, model in zip(divided.parts, prepared, strict=True):
            written |= zip(part.outputs, model.outputs, strict=True)
        dtypes = element_dtypes(whole.extension_name_to_prefix)
        infos = (info for model in prepared for info in (*model.inputs, *model.outputs))
        types = {info.type: info.extension_type for info in infos if info.extension_type is not None}
        self._io = ModelIO(
            TensorInfo.all_of([main.operands[i] for i in main.input_indexes], whole.input_names, dtypes, types),
            TensorInfo.all_of([written[i] for i in main.output_indexes], whole.output_names, dtypes, types),
            whole.input_names,
            whole.output_names,
        )
        self._closed = False

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Inputs, each with `name`, `shape` and `dtype`."""
        return tuple(info for info in self._io.inputs if isinstance(info, TensorInfo))

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Outputs, each with `name`, `shape` and `dtype`."""
        return tuple(info for info in self._io.outputs if isinstance(info, TensorInfo))

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, or ()."""
        return self._io.input_names

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs, or ()."""
        return self._io.output_names

    @property
    def states(self) -> tuple[ModelState, ...]:
        """Variables that are an input and an output: see `stream`."""
        return self._divided.whole.states

    @cached_property
    def placement(self) -> FallbackPlacement:
        """Backend of each operation, on the device or on this machine, with reasons and the cost."""
        return combine_placements(self._divided, [part.placement for part in self._prepared_parts], self._refusals)

    @property
    def warnings(self) -> list[PreparationWarning]:
        """Problems that did not make the preparation fail: the fallback (code "fallback"), and those of the parts."""
        own = PreparationWarning("fallback", summary(self._divided, self._refusals))
        return [own, *(warning for part in self._prepared_parts for warning in part.warnings)]

    @property
    def cache(self) -> CacheOutcome:
        """Outcome of the compilation cache: that of the part which was served worst."""
        outcomes = {part.cache.state: part.cache for part in reversed(self._prepared_parts)}
        return next(outcomes[state] for state in _CACHE_STATES if state in outcomes)

    def _unavailable(self, method: str) -> HalError:
        """Return the error of a method that this kind of model lacks."""
        local, total = len(self._divided.fallback_operations), len(self._divided.whole.main.operations)
        return invalid_argument(
            f"{method} is not possible: {local} of {total} operations of the model run on {THIS_MACHINE}; use execute()"
        )

    def __repr__(self) -> str:
        local, total = len(self._divided.fallback_operations), len(self._divided.whole.main.operations)
        place = f"{total - local} operations on the device and {local} on {THIS_MACHINE}"
        return description(self, f"{place}, {self._io.description}", closed=self._closed)
