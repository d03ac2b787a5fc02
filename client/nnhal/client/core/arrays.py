"""Conversion between arrays and the requests and results of executions."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any, Self, TypeAlias, TypeVar, cast, overload

import numpy as np
from numpy.typing import ArrayLike

from nnhal.client.core.arguments import type_error
from nnhal.client.elements import Picture, dequantize, image_elements, quantize, valid_normalization
from nnhal.errors import InvalidTypeError, argument_error
from nnhal.shm.protocol import fits_packets
from nnhal.types import (
    DTYPES,
    SCALAR_TYPES,
    AnyArray,
    Bytes,
    DataLocation,
    ErrorStatus,
    ExecutionResult,
    ExtensionOperandTypeInformation,
    Memory,
    Normalization,
    Operand,
    Request,
    RequestArgument,
    ReturnedPool,
    Timing,
    describe_operands,
    elements,
    is_extension,
    is_fully_specified,
    is_tensor,
    type_name,
)

_MAX_RANK = 32
"""Largest rank of arrays, in all versions of numpy."""

E = TypeVar("E")

Inputs: TypeAlias = Sequence[ArrayLike | None] | Mapping[str, ArrayLike | None]
"""One value per input, by position or by name; None omits an optional input."""
CallInput: TypeAlias = ArrayLike | Mapping[str, ArrayLike | None] | None
"""Argument of a model that is called like a function: the value of an input, or all of them by name."""


class NamedOutputs(tuple[E, ...]):
    """Outputs of an execution: a sequence in the order of the model, and a mapping by name.

    A position that does not exist is an IndexError, and a name a KeyError.

    Attributes:
        names: the names of the outputs, or ().
        timing: measured times; -1 if not measured.
    """

    names: tuple[str, ...]
    timing: Timing

    @classmethod
    def of(cls, values: Iterable[E], names: tuple[str, ...], timing: Timing) -> Self:
        """Return the outputs with their names and timing."""
        outputs = cls(values)
        outputs.names, outputs.timing = names, timing
        return outputs

    def keys(self) -> tuple[str, ...]:
        """Return the names, so that `dict(outputs)` has the outputs by name."""
        return self.names

    def items(self) -> list[tuple[str, E]]:
        """Return the names and the outputs."""
        return list(zip(self.names, self, strict=False))

    def __contains__(self, key: object) -> bool:
        return key in self.names if isinstance(key, str) else super().__contains__(key)

    @overload  # type: ignore[override]
    def __getitem__(self, key: int | str) -> E: ...

    @overload
    def __getitem__(self, key: slice) -> tuple[E, ...]: ...

    def __getitem__(self, key: int | str | slice) -> E | tuple[E, ...]:
        if not isinstance(key, str):
            try:
                return super().__getitem__(key)
            except IndexError:
                raise IndexError(f"there is no output {key}; there are {len(self)}") from None
        if key not in self.names:
            raise KeyError(f"there is no output {key!r}; there are {', '.join(self.names) or 'no names'}")
        return super().__getitem__(self.names.index(key))


class Outputs(NamedOutputs[AnyArray]):
    """Outputs of an execution, as arrays."""


@dataclass(frozen=True, slots=True, repr=False)
class TensorInfo(Operand):
    """Input or output of a prepared model: its operand, with a name, a shape and a dtype.

    Attributes:
        name: its name, or "".
        element: type of the elements, if the type belongs to the LiteRT extension.
        extension_type: description of the type, if an extension defines it and the service tells its size.
        normalization: mean and standard deviation of the pixels of an image, if the model's file tells them.
    """

    name: str = ""
    element: np.dtype[Any] | None = None
    extension_type: ExtensionOperandTypeInformation | None = None
    normalization: Normalization | None = None

    @staticmethod
    def all_of(
        operands: Sequence[Operand],
        names: Sequence[str],
        elements: Mapping[int, np.dtype[Any]],
        extension_types: Mapping[int, ExtensionOperandTypeInformation] = MappingProxyType({}),
        normalizations: Sequence[Normalization | None] = (),
    ) -> "tuple[TensorInfo, ...]":
        """Return the inputs or outputs of a model that has these operands.

        Args:
            operands: the operands.
            names: their names, or () for "".
            elements: types of the elements of the LiteRT extension's tensors, by operand type.
            extension_types: descriptions of extension types, by operand type.
            normalizations: one for each operand, or ().
        """
        values = ({field.name: getattr(operand, field.name) for field in fields(Operand)} for operand in operands)
        return tuple(
            TensorInfo(
                **value,
                name=name,
                element=elements.get(value["type"]),
                extension_type=extension_types.get(value["type"]),
                normalization=normalization,
            )
            for value, name, normalization in zip(
                values, names or itertools.repeat(""), normalizations or itertools.repeat(None), strict=False
            )
        )

    @property
    def shape(self) -> tuple[int, ...] | Any:
        """The shape: 0 is an unknown dimension, () belongs to a scalar. None if the rank is unknown."""
        return None if is_tensor(self.type) and not self.dimensions else self.dimensions

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """Type of the elements: opaque bytes for a type of an extension; None if only the service knows their size."""
        return value_dtype(self)

    def quantize(self, values: ArrayLike) -> AnyArray:
        """Return the elements for real values: rounded to steps of the scale if the type is quantized."""
        return quantize(self, values, require_dtype(self))

    def dequantize(self, elements: ArrayLike) -> AnyArray:
        """Return the real values of elements as float32. Elements that are not quantized are returned unchanged."""
        return dequantize(self, elements)

    def preprocess(self, picture: Picture, *, normalization: Normalization | None = None) -> AnyArray:
        """Return a picture as the value of this input, which takes one image: resized, in its dtype, with batch size 1.

        Float elements are (pixel - mean) / std. Others are the pixels (uint8, int32), or the pixels - 128 (int8).

        Args:
            picture: the path of a file, an image of Pillow, or uint8 pixels [H,W], [H,W,C] or [1,H,W,C].
            normalization: mean and standard deviation; by default those of the model's file, or else 0 and 255.

        Raises:
            HalError: INVALID_ARGUMENT: the input is not an image, or the array has no form of pixels.
            ImportError: Pillow is needed, and not installed.
            OSError: the file is not an image.
        """
        own = valid_normalization(self, normalization or self.normalization)
        if normalization and own is None:
            raise argument_error(f"normalization is {normalization}; {self!r} cannot use it")
        return image_elements(self, picture, own)

    def __repr__(self) -> str:
        quantization = f", scale={self.scale:g}, zero_point={self.zero_point}" if self.scale else ""
        type_ = type_name(self.type)
        return f"TensorInfo(name={self.name!r}, shape={self.shape}, dtype={self.dtype}, type={type_}{quantization})"


def call_inputs(values: tuple[CallInput, ...], named: Mapping[str, ArrayLike | None]) -> Inputs:
    """Return the inputs of a model that is called like a function: by position, by name, or as one mapping.

    Raises:
        TypeError: there are some of both.
    """
    if values and named:
        raise TypeError("inputs are given by position and by name; give all of them in one of the two ways")
    if len(values) == 1 and isinstance(values[0], Mapping):
        return values[0]
    return named or cast("tuple[ArrayLike | None, ...]", values)


@dataclass(frozen=True)
class ModelIO:
    """Inputs and outputs of a prepared model.

    Attributes:
        input_names, output_names: one name each, or ().
    """

    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]

    @property
    def description(self) -> str:
        """Inputs and outputs in one line."""
        inputs = describe_operands(self.inputs, self.input_names)
        return f"with inputs {inputs}; outputs {describe_operands(self.outputs, self.output_names)}"

    def new_inputs(self) -> list[AnyArray]:
        """Return an array of zeros for each input.

        Raises:
            HalError: INVALID_ARGUMENT: the shape of an input is not fixed.
        """
        for index, operand in enumerate(self.inputs):
            if not has_fixed_shape(operand):
                raise argument_error(f"the model does not fix the shape of {self._input_name(index)}")
        return [np.zeros(operand.dimensions, require_dtype(operand)) for operand in self.inputs]

    @cached_property
    def fits_shared_memory(self) -> bool:
        """True if executions can use the data socket.

        The sizes of all types must be known, and packets must be small enough. The service tells the sizes of types of
        extensions, unless it is too old.
        """
        operands = (*self.inputs, *self.outputs)
        dimensions = sum(len(each.dimensions) or _MAX_RANK * is_tensor(each.type) for each in operands)
        are_sizes_known = all(value_dtype(operand) is not None for operand in operands)
        return are_sizes_known and fits_packets(len(operands), dimensions)

    def request(self, inputs: Inputs) -> Request:
        """Return a request with one pool for each input, and one growing pool for all outputs.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not match its operand.
        """
        return self.build_request(self.arrays(inputs))

    def build_request(self, arrays: Sequence[AnyArray | None]) -> Request:
        """Return the request of inputs that are already checked."""
        pools: list[Memory | ReturnedPool] = []
        arguments = []
        for operand, array in zip(self.inputs, arrays, strict=True):
            if array is None:
                arguments.append(RequestArgument(has_no_value=True))
                continue
            location = DataLocation(len(pools), 0, array.nbytes)
            arguments.append(RequestArgument(False, location, argument_dimensions(operand, array)))
            pools.append(Memory.of(array))
        outputs = (RequestArgument(False, DataLocation(len(pools))),) * len(self.outputs)
        return Request(tuple(arguments), outputs, (*pools, ReturnedPool()))

    def to_outputs(self, result: ExecutionResult) -> Outputs:
        """Return the outputs of a result as writable arrays."""
        shapes = (shape.dimensions for shape in result.output_shapes)
        triples = zip(self.outputs, result.returned, shapes, strict=True)
        return Outputs.of((output_array(*triple) for triple in triples), self.output_names, result.timing)

    def arrays(self, inputs: Inputs) -> list[AnyArray | None]:
        """Check the inputs and convert them to arrays, by position. This is a hot path.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not match its operand.
        """
        values: Sequence[ArrayLike | None] = self.by_position(inputs)
        arrays: list[AnyArray | None] = []
        for i, value in enumerate(values):
            shape, dtype = self._exact[i]
            if type(value) is np.ndarray and value.shape == shape and value.dtype == dtype and value.flags.c_contiguous:
                arrays.append(value)  # the common case
            else:
                arrays.append(self.convert(i, value))
        return arrays

    @cached_property
    def _exact(self) -> list[tuple[tuple[int, ...] | None, np.dtype[Any] | None]]:
        """Shape and dtype of the arrays that need no conversion, for each input; None if they are not known."""
        return [
            (operand.dimensions, DTYPES[operand.type])
            if operand.type in DTYPES
            and is_tensor(operand.type)
            and is_fully_specified(operand.type, operand.dimensions)
            else (None, None)
            for operand in self.inputs
        ]

    def by_position(self, inputs: Sequence[E | None] | Mapping[str, E | None]) -> Sequence[E | None]:
        """Return one value per input.

        Raises:
            HalError: INVALID_ARGUMENT: an unknown or a missing name, or a wrong number of inputs.
            TypeError: the inputs are neither a sequence nor a mapping.
        """
        if not isinstance(inputs, list | tuple):  # checking for an ABC takes longer
            inputs = self._other_by_position(inputs)
        if len(inputs) != len(self.inputs):
            raise argument_error(f"{len(inputs)} inputs given; the model takes {len(self.inputs)}")
        return inputs

    def _other_by_position(self, inputs: Sequence[E | None] | Mapping[str, E | None]) -> Sequence[E | None]:
        if isinstance(inputs, Mapping):
            if unknown := set(inputs) - set(self.input_names):
                raise argument_error(
                    f"no input is named {min(unknown, key=str)!r}; "
                    f"there are {', '.join(self.input_names) or 'no names'}"
                )
            if missing := [name for name in self.input_names if name not in inputs]:
                raise argument_error(f"there is no value for input {missing[0]!r}; None omits an optional input")
            return [inputs[name] for name in self.input_names]
        if not isinstance(inputs, Sequence) or isinstance(inputs, str | bytes | bytearray | memoryview):
            raise type_error("inputs", inputs, "a list with one value per input, or a dict by name")
        return inputs

    def convert(self, index: int, value: ArrayLike | None) -> AnyArray | None:
        """Convert the value of an input to an array of the operand's dtype.

        Raises:
            HalError: INVALID_ARGUMENT: it does not match the operand.
        """
        return None if value is None else convert_array(self.inputs[index], value, self._input_name(index), "the model")

    def io_index(self, key: int | str, *, is_output: bool) -> int:
        """Return the position of an input or output, given by position or name.

        Raises:
            HalError: INVALID_ARGUMENT: there is no such input or output.
        """
        kind, operands, names = (
            ("output", self.outputs, self.output_names) if is_output else ("input", self.inputs, self.input_names)
        )
        if key in names:
            return names.index(str(key))
        if isinstance(key, int) and 0 <= key < len(operands):
            return key
        raise argument_error(f"there is no {kind} {key!r}; there are {', '.join(names) or len(operands)}")

    def _input_name(self, index: int) -> str:
        return f"input {index}" + (f" ({self.input_names[index]})" if self.input_names else "")


def convert_array(operand: Operand, value: ArrayLike, name: str, taker: str) -> AnyArray:
    """Convert a value to an array of an operand's dtype.

    Args:
        operand: the operand that the value must match.
        value: an array, a list or a number; bytes for a type of an extension.
        name: the value's name in error messages.
        taker: the name in error messages of what takes the value.

    Raises:
        HalError: INVALID_ARGUMENT: a wrong dtype or shape.
    """
    element = element_dtype(operand)
    if is_extension(operand.type) and element is None:
        return _opaque_array(operand, value, name, taker)
    dtype = element or DTYPES[operand.type]
    if isinstance(value, np.ndarray) and value.dtype != dtype:
        reason = f"{name} is {value.dtype}; {taker} takes {dtype}"
        raise InvalidTypeError(ErrorStatus.INVALID_ARGUMENT, reason)
    try:
        array = np.ascontiguousarray(np.asarray(value, dtype))
    except (TypeError, ValueError, OverflowError) as error:
        raise argument_error(f"{name} cannot be converted to {dtype}: {error}") from None
    _check_shape(operand, array, name, taker)
    if element is not None:  # the extension's types are bytes on their way
        return np.ascontiguousarray(array).reshape(*array.shape, 1).view(np.uint8)
    return array


def element_dtype(operand: Operand) -> np.dtype[Any] | None:
    """Return the type of the elements of a tensor of the LiteRT extension, or None for other operands."""
    return operand.element if isinstance(operand, TensorInfo) else None


def value_dtype(operand: Operand) -> np.dtype[Any] | None:
    """Return the type of the elements of an operand's value; None for an extension's type of unknown size."""
    dtype = element_dtype(operand) or DTYPES.get(operand.type)
    if dtype is not None:
        return dtype
    size = getattr(_extension_type(operand), "byte_size", 0)
    if size > 1:
        return np.dtype((np.void, size))
    return np.dtype(np.uint8) if size else None


def value_size(operand: Operand, dimensions: Sequence[int]) -> int:
    """Return the bytes of a value, given all of its dimensions."""
    return prod(dimensions) * require_dtype(operand).itemsize


def require_dtype(operand: Operand) -> np.dtype[Any]:
    """Return the type of the elements of an operand's value.

    Raises:
        HalError: INVALID_ARGUMENT: the size of an extension's type is not known.
    """
    dtype = value_dtype(operand)
    if dtype is None:
        raise argument_error(f"the service does not tell the size of {type_name(operand.type)}, which this needs")
    return dtype


def is_scalar(operand: Operand) -> bool:
    """Return whether values of an operand have no dimensions."""
    extension_type = _extension_type(operand)
    return operand.type in SCALAR_TYPES if extension_type is None else not extension_type.is_tensor


def _extension_type(operand: Operand) -> ExtensionOperandTypeInformation | None:
    return operand.extension_type if isinstance(operand, TensorInfo) else None


def _opaque_array(operand: Operand, value: object, name: str, taker: str) -> AnyArray:
    """Return a value of an extension's type as uint8 [*shape, bytes per element].

    Without a description of the type, only the service can check the last size.
    """
    raw = _opaque_bytes(operand, value, name, taker)
    expected = value_dtype(operand)
    if expected is not None and raw.shape[-1] != expected.itemsize:
        sizes = f"has elements of {raw.shape[-1]} bytes; {taker} takes {expected.itemsize}"
        raise argument_error(f"{name} {sizes}", "V-REQMODEL-07")
    if _extension_type(operand) is not None and is_scalar(operand) and raw.ndim > 1:
        raise argument_error(f"{name} has dimensions, but is a scalar", "V-REQMODEL-08")
    return raw


def _opaque_bytes(operand: Operand, value: object, name: str, taker: str) -> AnyArray:
    if isinstance(value, bytes | bytearray | memoryview):
        # without dimensions it is a scalar, or a tensor of unknown rank, which the service rejects
        if 0 in operand.dimensions or len(value) % prod(operand.dimensions):
            shape = list(operand.dimensions)
            raise argument_error(f"{name} has {len(value)} bytes; {taker} takes elements of shape {shape}")
        return np.frombuffer(value, np.uint8).reshape(*operand.dimensions, -1)
    if not isinstance(value, np.ndarray | np.generic) or not (value.dtype == np.uint8 or value.dtype.kind == "V"):
        kind = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
        raise argument_error(f"{name} is {kind}; {taker} takes bytes, or an array of uint8 or np.void")
    array: AnyArray = np.array(value, order="C")
    _check_shape(operand, array, name, taker)
    raw: AnyArray = array.reshape(*array.shape, 1).view(np.uint8)
    return raw


def argument_dimensions(operand: Operand, array: AnyArray) -> tuple[int, ...]:
    """Return the dimensions that a request gives for a checked input: () if the model fixes the shape."""
    return () if has_fixed_shape(operand) else value_shape(operand, array)


def has_fixed_shape(operand: Operand) -> bool:
    """Return whether the model fixes the shape of an operand. A type of unknown size may be a scalar."""
    return is_scalar(operand) or (len(operand.dimensions) > 0 and 0 not in operand.dimensions)


def value_shape(operand: Operand, array: AnyArray) -> tuple[int, ...]:
    """Return the shape of a checked value, without the axis that holds the bytes of an extension's element."""
    return array.shape[:-1] if is_extension(operand.type) else array.shape


def _check_shape(operand: Operand, array: AnyArray, name: str, taker: str) -> None:
    """Check that an array has the known dimensions of an operand. A scalar may have any rank."""
    declared = operand.dimensions
    if declared:
        matches = len(declared) == array.ndim and all(d in (0, a) for d, a in zip(declared, array.shape, strict=True))
    else:
        matches = is_tensor(operand.type) or is_extension(operand.type) or array.size == 1
    if not matches:
        is_batch = declared[1:] == array.shape[1:] and len(declared) > 1
        hint = "; for another batch, prepare the model with shapes={NAME: SHAPE}" if is_batch else ""
        raise argument_error(f"{name} has shape {list(array.shape)}; {taker} takes {list(declared)}{hint}")


def output_array(operand: Operand, data: Bytes | None, shape: tuple[int, ...], *, copy: bool = True) -> AnyArray:
    """Return the bytes of an output as an array of its operand's dtype; with `copy`, as a writable one."""
    assert data is not None
    dtype = element_dtype(operand) or DTYPES.get(operand.type)
    array = elements(data, shape) if dtype is None else data.view(dtype).reshape(shape)
    return array.copy() if copy and not array.flags.writeable else array
