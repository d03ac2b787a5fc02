"""From arrays to the request of an execution, and from its result to arrays; for both clients."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike

from nnhal.errors import invalid_argument
from nnhal.types import (
    DTYPES,
    AnyArray,
    Bytes,
    DataLocation,
    ExecutionResult,
    Memory,
    Operand,
    Request,
    RequestArgument,
    ReturnedPool,
    Timing,
    is_fully_specified,
    is_tensor,
)

Inputs: TypeAlias = Sequence[ArrayLike | None] | Mapping[str, ArrayLike | None]
"""One value per input, by position or by name; None omits an optional one."""


class Outputs(tuple[AnyArray, ...]):
    """Outputs of an execution, in order; also by name. `timing`: what was measured, or -1s."""

    names: tuple[str, ...]
    timing: Timing

    @staticmethod
    def of(arrays: Iterable[AnyArray], names: tuple[str, ...], timing: Timing) -> "Outputs":
        """Puts outputs together."""
        made = Outputs(arrays)
        made.names, made.timing = names, timing
        return made

    @overload  # type: ignore[override]
    def __getitem__(self, key: int | str) -> AnyArray: ...

    @overload
    def __getitem__(self, key: slice) -> tuple[AnyArray, ...]: ...

    def __getitem__(self, key: int | str | slice) -> AnyArray | tuple[AnyArray, ...]:
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in self.names:
            raise KeyError(f"there is no output {key!r}; there are {', '.join(self.names) or 'no names'}")
        return super().__getitem__(self.names.index(key))


@dataclass(frozen=True)
class Ends:
    """The inputs and outputs of a prepared model. Names: one each, or none at all."""

    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]

    def request(self, inputs: Inputs) -> Request:
        """A request with one pool for each input, and one that grows for all outputs.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not fit.
        """
        pools: list[Memory | ReturnedPool] = []
        arguments = []
        for operand, array in zip(self.inputs, self._arrays(inputs), strict=True):
            if array is None:
                arguments.append(RequestArgument(has_no_value=True))
                continue
            dimensions = () if is_fully_specified(operand.type, operand.dimensions) else array.shape
            arguments.append(RequestArgument(False, DataLocation(len(pools), 0, array.nbytes), dimensions))
            pools.append(Memory.of(array))
        outputs = (RequestArgument(False, DataLocation(len(pools))),) * len(self.outputs)
        return Request(tuple(arguments), outputs, (*pools, ReturnedPool()))

    def results(self, result: ExecutionResult) -> Outputs:
        """The arrays of a result; writable, of the shapes that it tells."""
        shapes = (shape.dimensions for shape in result.output_shapes)
        triples = zip(self.outputs, result.returned, shapes, strict=True)
        return Outputs.of((_array(*triple) for triple in triples), self.output_names, result.timing)

    def _arrays(self, inputs: Inputs) -> list[AnyArray | None]:
        """Inputs by position, checked."""
        if isinstance(inputs, Mapping):
            if unknown := set(inputs) - set(self.input_names):
                raise invalid_argument(
                    f"no input is named {sorted(unknown)[0]!r}; there are {', '.join(self.input_names) or 'no names'}"
                )
            inputs = [inputs.get(name) for name in self.input_names]
        if len(inputs) != len(self.inputs):
            raise invalid_argument(f"{len(inputs)} inputs given; the model takes {len(self.inputs)}")
        return [self._checked(i, value) for i, value in enumerate(inputs)]

    def _checked(self, index: int, value: ArrayLike | None) -> AnyArray | None:
        if value is None:
            return None
        operand = self.inputs[index]
        dtype = DTYPES[operand.type]
        if isinstance(value, np.ndarray) and value.dtype != dtype:
            raise invalid_argument(f"{self._input_name(index)} is {value.dtype}; the model takes {dtype}")
        try:
            array = np.ascontiguousarray(np.asarray(value, dtype))
        except (TypeError, ValueError, OverflowError) as error:
            raise invalid_argument(f"{self._input_name(index)} cannot become {dtype}: {error}") from None
        if not _fits(operand, array):
            found, wanted = list(array.shape), list(operand.dimensions)
            raise invalid_argument(f"{self._input_name(index)} has shape {found}; the model takes {wanted}")
        return array

    def _input_name(self, index: int) -> str:
        return f"input {index}" + (f" ({self.input_names[index]})" if self.input_names else "")


def _fits(operand: Operand, array: AnyArray) -> bool:
    """Whether an array has the shape of an operand, where that is known; a scalar may come in any rank."""
    declared = operand.dimensions
    if not declared:
        return is_tensor(operand.type) or array.size == 1
    return len(declared) == array.ndim and all(d in (0, a) for d, a in zip(declared, array.shape, strict=True))


def _array(operand: Operand, data: Bytes | None, shape: tuple[int, ...]) -> AnyArray:
    assert data is not None
    array = data.view(DTYPES[operand.type]).reshape(shape)
    return array if array.flags.writeable else array.copy()
