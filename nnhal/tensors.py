"""From arrays to the request of an execution, and from its result to arrays; for both clients."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Self, TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike

from nnhal.errors import HalError, invalid_argument
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
    elements,
    is_extension,
    is_fully_specified,
    is_tensor,
)

E = TypeVar("E")

Inputs: TypeAlias = Sequence[ArrayLike | None] | Mapping[str, ArrayLike | None]
"""One value per input, by position or by name; None omits an optional one."""


class Named(tuple[E, ...]):
    """What an execution gives for each output, in order; also by name. `timing`: what was measured, or -1s."""

    names: tuple[str, ...]
    timing: Timing

    @classmethod
    def of(cls, values: Iterable[E], names: tuple[str, ...], timing: Timing) -> Self:
        """Puts outputs together."""
        made = cls(values)
        made.names, made.timing = names, timing
        return made

    @overload  # type: ignore[override]
    def __getitem__(self, key: int | str) -> E: ...

    @overload
    def __getitem__(self, key: slice) -> tuple[E, ...]: ...

    def __getitem__(self, key: int | str | slice) -> E | tuple[E, ...]:
        if not isinstance(key, str):
            return super().__getitem__(key)
        if key not in self.names:
            raise KeyError(f"there is no output {key!r}; there are {', '.join(self.names) or 'no names'}")
        return super().__getitem__(self.names.index(key))


class Outputs(Named[AnyArray]):
    """Outputs of an execution, as arrays."""


@dataclass(frozen=True)
class Ends:
    """The inputs and outputs of a prepared model. Names: one each, or none at all."""

    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]

    @cached_property
    def are_base_types(self) -> bool:
        """Whether none has an extension's type: of such a type only the service knows the size."""
        return not any(is_extension(operand.type) for operand in (*self.inputs, *self.outputs))

    def request(self, inputs: Inputs) -> Request:
        """A request with one pool for each input, and one that grows for all outputs.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not fit.
        """
        return self.request_of(self.arrays(inputs))

    def request_of(self, arrays: Sequence[AnyArray | None]) -> Request:
        """The request of inputs that have been checked."""
        pools: list[Memory | ReturnedPool] = []
        arguments = []
        for operand, array in zip(self.inputs, arrays, strict=True):
            if array is None:
                arguments.append(RequestArgument(has_no_value=True))
                continue
            location = DataLocation(len(pools), 0, array.nbytes)
            arguments.append(RequestArgument(False, location, open_dimensions(operand, array)))
            pools.append(Memory.of(array))
        outputs = (RequestArgument(False, DataLocation(len(pools))),) * len(self.outputs)
        return Request(tuple(arguments), outputs, (*pools, ReturnedPool()))

    def results(self, result: ExecutionResult) -> Outputs:
        """The arrays of a result; writable, of the shapes that it tells."""
        shapes = (shape.dimensions for shape in result.output_shapes)
        triples = zip(self.outputs, result.returned, shapes, strict=True)
        return Outputs.of((output_array(*triple) for triple in triples), self.output_names, result.timing)

    def arrays(self, inputs: Inputs) -> list[AnyArray | None]:
        """Inputs by position, checked.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not fit.
        """
        values: Sequence[ArrayLike | None] = self.by_position(inputs)
        arrays: list[AnyArray | None] = []
        for i, value in enumerate(values):
            shape, dtype = self._exact[i]
            if type(value) is np.ndarray and value.shape == shape and value.dtype == dtype and value.flags.c_contiguous:
                arrays.append(value)  # as most are
            else:
                arrays.append(self.checked(i, value))
        return arrays

    @cached_property
    def _exact(self) -> list[tuple[tuple[int, ...] | None, np.dtype[Any] | None]]:
        """For each input shape and dtype of the arrays that are taken as they are; None where nothing is known."""
        return [
            (one.dimensions, DTYPES[one.type])
            if one.type in DTYPES and is_tensor(one.type) and is_fully_specified(one.type, one.dimensions)
            else (None, None)
            for one in self.inputs
        ]

    def by_position(self, inputs: Sequence[E | None] | Mapping[str, E | None]) -> Sequence[E | None]:
        """One value per input; None where a name is left out.

        Raises:
            HalError: INVALID_ARGUMENT: there is no input of a name, or another number of inputs.
        """
        if not isinstance(inputs, list | tuple) and isinstance(inputs, Mapping):  # asking an ABC takes longer
            if unknown := set(inputs) - set(self.input_names):
                raise invalid_argument(
                    f"no input is named {sorted(unknown)[0]!r}; there are {', '.join(self.input_names) or 'no names'}"
                )
            inputs = [inputs.get(name) for name in self.input_names]
        if len(inputs) != len(self.inputs):
            raise invalid_argument(f"{len(inputs)} inputs given; the model takes {len(self.inputs)}")
        return inputs

    def checked(self, index: int, value: ArrayLike | None) -> AnyArray | None:
        """The value of an input as an array of its dtype.

        Raises:
            HalError: INVALID_ARGUMENT: it does not fit.
        """
        return None if value is None else checked_array(self.inputs[index], value, self._input_name(index), "the model")

    def index(self, end: int | str, *, is_output: bool) -> int:
        """The number of an input (output), given by number or by name.

        Raises:
            HalError: INVALID_ARGUMENT: there is none.
        """
        kind, operands, names = (
            ("output", self.outputs, self.output_names) if is_output else ("input", self.inputs, self.input_names)
        )
        if end in names:
            return names.index(str(end))
        if isinstance(end, int) and 0 <= end < len(operands):
            return end
        raise invalid_argument(f"there is no {kind} {end!r}; there are {', '.join(names) or len(operands)}")

    def _input_name(self, index: int) -> str:
        return f"input {index}" + (f" ({self.input_names[index]})" if self.input_names else "")


def checked_array(operand: Operand, value: ArrayLike, name: str, taker: str) -> AnyArray:
    """A value as an array of an operand's dtype. `name` and `taker`: what a person calls the value, and who takes it.

    Raises:
        HalError: INVALID_ARGUMENT: it has another dtype or shape.
    """
    if is_extension(operand.type):
        return _opaque_array(operand, value, name, taker)
    dtype = DTYPES[operand.type]
    if isinstance(value, np.ndarray) and value.dtype != dtype:
        raise invalid_argument(f"{name} is {value.dtype}; {taker} takes {dtype}")
    try:
        array = np.ascontiguousarray(np.asarray(value, dtype))
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid_argument(f"{name} cannot become {dtype}: {error}") from None
    if not _fits(operand, array):
        raise _misshapen(operand, array, name, taker)
    return array


def _opaque_array(operand: Operand, value: object, name: str, taker: str) -> AnyArray:
    """A value of an extension's type as bytes: uint8 [*shape, bytes of an element]. The service knows how many."""
    if isinstance(value, bytes | bytearray | memoryview):
        count = prod(operand.dimensions)
        if not _is_fixed(operand) or len(value) % count:
            shape = list(operand.dimensions)
            raise invalid_argument(f"{name} has {len(value)} bytes; {taker} takes elements of shape {shape}")
        return np.frombuffer(value, np.uint8).reshape(*operand.dimensions, -1)
    if not isinstance(value, np.ndarray | np.generic) or not (value.dtype == np.uint8 or value.dtype.kind == "V"):
        kind = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
        raise invalid_argument(f"{name} is {kind}; {taker} takes bytes, or an array of uint8 or np.void")
    given: AnyArray = np.array(value, order="C")
    if not _fits(operand, given):
        raise _misshapen(operand, given, name, taker)
    raw: AnyArray = given.reshape(*given.shape, 1).view(np.uint8)
    return raw


def _misshapen(operand: Operand, array: AnyArray, name: str, taker: str) -> HalError:
    return invalid_argument(f"{name} has shape {list(array.shape)}; {taker} takes {list(operand.dimensions)}")


def open_dimensions(operand: Operand, array: AnyArray) -> tuple[int, ...]:
    """What a request must say of the shape of a checked input: nothing where the model says it."""
    return () if _is_fixed(operand) else _shape(operand, array)


def _is_fixed(operand: Operand) -> bool:
    """Whether the model gives the shape of an operand."""
    if is_extension(operand.type):  # it may be a scalar: that has no dimensions either way
        return len(operand.dimensions) > 0 and 0 not in operand.dimensions
    return is_fully_specified(operand.type, operand.dimensions)


def _shape(operand: Operand, array: AnyArray) -> tuple[int, ...]:
    """The shape of a checked value; one of an extension's type has an axis more, for the bytes of an element."""
    return array.shape[:-1] if is_extension(operand.type) else array.shape


def _fits(operand: Operand, array: AnyArray) -> bool:
    """Whether an array has the shape of an operand, where that is known; a scalar may come in any rank."""
    declared = operand.dimensions
    if not declared:
        return is_tensor(operand.type) or is_extension(operand.type) or array.size == 1
    return len(declared) == array.ndim and all(d in (0, a) for d, a in zip(declared, array.shape, strict=True))


def output_array(operand: Operand, data: Bytes | None, shape: tuple[int, ...]) -> AnyArray:
    """Bytes that came back as the value of an operand; writable."""
    assert data is not None
    dtype = DTYPES.get(operand.type)
    array = elements(data, shape) if dtype is None else data.view(dtype).reshape(shape)
    return array if array.flags.writeable else array.copy()
