"""Names, types, tensors, parameters and errors of the Open Inference Protocol. Knows neither gRPC nor HTTP.

Tensors are bytes in the order of C, little-endian. Texts of errors are those of Triton, since programs match them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from nnhal.errors import HalError, invalid_argument
from nnhal.types import OMITTED, AnyArray, Bytes, ErrorKind, ErrorStatus, NamedModelState, Priority
from nnhal_service.open_inference.sequences import SequenceStep
from nnhal_service.open_inference.shared_memory import RegionPart, require_short
from nnhal_service.repository.model_folder import LARGEST_VERSION
from nnhal_service.repository.repository import IndexEntry, unknown_model
from nnhal_service.repository.served_model import NamedTensor, ServedModel

DATATYPES: Mapping[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    **{f"{kind.upper()}{bits}": np.dtype(f"{kind}{bits}") for kind in ("uint", "int") for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
}
"""Type of the elements by the datatype of a tensor. BYTES and BF16 have none: no model of LiteRT takes them."""
EXTENSIONS = (
    "binary_tensor_data",
    "classification",
    "model_configuration",
    "model_repository",
    "parameters",
    "schedule_policy",
    "sequence",
    "statistics",
)
"""Extensions of the protocol that every service has."""
SHARED_MEMORY = "system_shared_memory"
"""Extension that an operator allows."""
PLATFORM, BACKEND = "tensorflow_lite", "nnhal"
SERVER_NAME = "nnhal"
_VERSION_DIGITS = len(str(LARGEST_VERSION))
_NUMBERS = {bool, int, float}
_DATATYPE_NAMES = {dtype: name for name, dtype in DATATYPES.items()}
_PRIORITIES = {1: Priority.HIGH, 2: Priority.MEDIUM}
"""Priorities of the driver by the parameter `priority`. Larger numbers are low; 0 is that of the model."""

ParameterValue: TypeAlias = bool | int | str | float
Parameters: TypeAlias = Mapping[str, ParameterValue]


READY, UNAVAILABLE, LOADING = "READY", "UNAVAILABLE", "LOADING"
"""States of a version in the index of the extension model_repository."""
_STATES = {
    NamedModelState.READY: READY,
    NamedModelState.AVAILABLE: READY,
    NamedModelState.LOADING: LOADING,
    NamedModelState.FAILED: UNAVAILABLE,
    NamedModelState.UNLOADED: UNAVAILABLE,
}


class IndexRow(NamedTuple):
    """Row of the index."""

    name: str
    version: str
    state: str
    reason: str


def index_row(entry: IndexEntry) -> IndexRow:
    """Return a version as a row of the index. One that is loaded on first use is ready."""
    reason = "unloaded" if entry.state is NamedModelState.UNLOADED else entry.reason
    return IndexRow(entry.name, str(entry.version), _STATES[entry.state], reason)


def unknown_repository(name: str) -> HalError:
    """Return the error of a repository that does not exist: there is one, whose name is empty."""
    return HalError(ErrorStatus.INVALID_ARGUMENT, f"there is no repository {name!r}", kind=ErrorKind.UNKNOWN_HANDLE)


@dataclass(frozen=True, slots=True)
class InputTensor:
    """Input of a request. `data`: its bytes, or the part of shared memory that has them."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: Bytes | RegionPart


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """Output that a request asks for.

    Attributes:
        classes: number of classes to return in place of the values; 0: values.
        part: where to write it; None to return it.
    """

    name: str
    classes: int = 0
    part: RegionPart | None = None


@dataclass(frozen=True, slots=True)
class InferRequest:
    """Request to run a model.

    Attributes:
        outputs: outputs to return; () for all.
    """

    model: str
    version: str
    inputs: Sequence[InputTensor]
    outputs: Sequence[RequestedOutput] = ()
    id: str = ""
    parameters: Parameters = field(default_factory=dict)

    @property
    def timeout_ns(self) -> int:
        """Nanoseconds that the request may take; -1: any. The parameter `timeout` is in microseconds.

        Raises:
            HalError: INVALID_ARGUMENT: it is not a number.
        """
        timeout = _number(self.parameters, "timeout")
        return timeout * 1000 if timeout > 0 else OMITTED

    @property
    def priority(self) -> Priority | None:
        """Priority of the request; None for that of the model.

        Raises:
            HalError: INVALID_ARGUMENT: it is not a number.
        """
        number = _number(self.parameters, "priority")
        return _PRIORITIES.get(number, Priority.LOW) if number > 0 else None

    @property
    def step(self) -> SequenceStep | None:
        """Place in a sequence; None without one.

        Raises:
            HalError: INVALID_ARGUMENT: a parameter has a wrong type, or is too long.
        """
        identifier = self.parameters.get("sequence_id", 0)
        if not isinstance(identifier, int | str):
            raise invalid_argument(f"parameter 'sequence_id' is {identifier!r}; expected a number or a text")
        if isinstance(identifier, str):
            require_short("sequence_id", identifier)
        is_start, is_end = (bool(_number(self.parameters, f"sequence_{name}")) for name in ("start", "end"))
        return SequenceStep(identifier, is_start, is_end) if identifier else None


@dataclass(frozen=True, slots=True)
class OutputTensor:
    """Output of a response. `data`: its bytes. `part`: where they have been written, if they are not returned."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: Bytes
    part: RegionPart | None = None


def version_number(name: str, version: str) -> int | None:
    """Return the number of a version; None for "".

    Raises:
        HalError: INVALID_ARGUMENT of kind UNKNOWN_HANDLE: no version has this name.
    """
    if not version:
        return None
    if not (version.isascii() and version.isdecimal() and len(version) <= _VERSION_DIGITS):
        raise unknown_model(name, f"has no version {version!r}; versions are numbers")
    return int(version)


def datatype(spec: NamedTensor) -> str:
    """Return the datatype of a tensor.

    Raises:
        HalError: INVALID_ARGUMENT: the protocol has none, as for complex numbers.
    """
    name = _DATATYPE_NAMES.get(spec.dtype)
    if name is None:
        raise invalid_argument(f"tensor {spec.name!r} has elements of {spec.dtype}, which the protocol lacks")
    return name


def quantization(spec: NamedTensor) -> dict[str, ParameterValue]:
    """Return scale and zero point of a tensor, as parameters; none without quantization."""
    return {"scale": spec.scale, "zero_point": spec.zero_point} if spec.scale else {}


def order_inputs(served: ServedModel, inputs: Sequence[InputTensor]) -> list[InputTensor]:
    """Return the inputs of a request in the order of the model, with types and shapes that it takes.

    Raises:
        HalError: INVALID_ARGUMENT: an input is missing, unknown, twice there, or has another type, shape or size.
    """
    by_name = {tensor.name: tensor for tensor in inputs}
    expected = [spec.name for spec in served.inputs]
    if unknown := [name for name in by_name if name not in set(expected)]:
        raise invalid_argument(
            f"unexpected inference input '{unknown[0]}' for model '{served.name}'; it has {', '.join(expected)}"
        )
    if len(by_name) < len(expected) or len(inputs) > len(expected):
        missing = [name for name in expected if name not in by_name]
        raise invalid_argument(
            f"expected {len(expected)} inputs but got {len(inputs)} inputs for model '{served.name}'. Got input(s) "
            f"{[tensor.name for tensor in inputs]}, but missing required input(s) {missing}. "
            "Please provide all required input(s)."
        )
    for spec in served.inputs:
        _check_input(served.name, spec, by_name[spec.name])
    return [by_name[name] for name in expected]


def _check_input(model: str, spec: NamedTensor, tensor: InputTensor) -> None:
    if tensor.datatype != (expected := datatype(spec)):
        raise invalid_argument(
            f"inference input '{spec.name}' data-type is '{tensor.datatype}', but model '{model}' expects '{expected}'"
        )
    shape = tensor.shape
    if not _fits(spec.shape, shape):
        raise invalid_argument(
            f"unexpected shape for input '{spec.name}' for model '{model}'. Expected {_text(spec.shape)}, "
            f"got {_text(shape)}"
        )
    size = prod(shape) * spec.dtype.itemsize
    if tensor.data.size != size:
        raise invalid_argument(
            f"unexpected total byte size {tensor.data.size} for input '{spec.name}', expecting {size}"
        )


def _fits(declared: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Return whether a shape is one that a model takes. One without dimensions stands for a single element."""
    if not declared:
        return min(shape, default=0) >= 0
    if declared == (1,) and not shape:
        return True
    return len(declared) == len(shape) and all(d in (-1, s) and s >= 0 for d, s in zip(declared, shape, strict=True))


def _text(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


def to_device(spec: NamedTensor, data: Bytes) -> Bytes:
    """Return the bytes of a value with the type of the device.

    Raises:
        HalError: INVALID_ARGUMENT: the device cannot represent it.
    """
    if spec.dtype == spec.device_dtype:
        return data
    values = np.frombuffer(data.data, spec.dtype)
    converted = values.astype(spec.device_dtype)
    if not np.array_equal(converted, values):
        raise invalid_argument(f"a value of input '{spec.name}' does not fit into {spec.device_dtype} of the device")
    return converted.view(np.uint8)


def from_device(spec: NamedTensor, data: Bytes) -> Bytes:
    """Return the bytes of an output of the device with the type of the file."""
    if spec.dtype == spec.device_dtype:
        return data
    return data.view(spec.device_dtype).astype(spec.dtype).view(np.uint8)


def output_positions(served: ServedModel, outputs: Sequence[RequestedOutput]) -> list[tuple[int, RequestedOutput]]:
    """Return the outputs to return, each with its position; all without a request.

    Raises:
        HalError: INVALID_ARGUMENT: there is no such output, or it is requested twice.
    """
    positions = {spec.name: position for position, spec in enumerate(served.outputs)}
    if not outputs:
        return [(position, RequestedOutput(spec.name)) for position, spec in enumerate(served.outputs)]
    requested: dict[int, RequestedOutput] = {}
    for output in outputs:
        position = positions.get(output.name)
        if position is None:
            raise invalid_argument(
                f"unexpected inference output '{output.name}' for model '{served.name}'; it has {', '.join(positions)}"
            )
        if position in requested:  # a small request would have a response of any size
            raise invalid_argument(f"inference output '{output.name}' of model '{served.name}' is requested twice")
        requested[position] = output
    return list(requested.items())


def output_tensor(spec: NamedTensor, shape: tuple[int, ...], data: Bytes) -> OutputTensor:
    """Return an output of the device as a tensor of the protocol."""
    return OutputTensor(spec.name, datatype(spec), shape, from_device(spec, data))


def classification(spec: NamedTensor, data: Bytes, classes: int, labels: Sequence[str]) -> OutputTensor:
    """Return the best classes of an output of the device: texts "score:index:label", as Triton's extension says."""
    scores = np.frombuffer(from_device(spec, data).data, spec.dtype)
    best = np.argsort(-scores.astype(np.float64), kind="stable")[:classes]
    texts = []
    for index in map(int, best):
        label = f":{labels[index]}" if index < len(labels) else ""
        texts.append(f"{scores[index]:f}:{index}{label}".encode())
    return OutputTensor(spec.name, "BYTES", (len(texts),), encode_texts(texts))


def encode_texts(texts: Sequence[bytes]) -> Bytes:
    """Return the bytes of a tensor of type BYTES: each element after its length in 4 bytes."""
    return np.frombuffer(b"".join(len(text).to_bytes(4, "little") + text for text in texts), np.uint8)


def decode_texts(data: bytes) -> list[bytes]:
    """Return the elements of a tensor of type BYTES. Undoes `encode_texts`."""
    texts, start = [], 0
    while start < len(data):
        size = int.from_bytes(data[start : start + 4], "little")
        texts.append(data[start + 4 : start + 4 + size])
        start += 4 + size
    return texts


def requested_output(name: str, parameters: Parameters) -> RequestedOutput:
    """Return the output that a request asks for with parameters.

    Raises:
        HalError: INVALID_ARGUMENT: a parameter has a wrong type.
    """
    return RequestedOutput(name, max(0, _number(parameters, "classification")), shared_part(parameters))


def shared_part(parameters: Parameters) -> RegionPart | None:
    """Return the part of shared memory that parameters of a tensor name; None without one.

    Raises:
        HalError: INVALID_ARGUMENT: a parameter has a wrong type, or is negative.
    """
    region = parameters.get("shared_memory_region")
    if region is None:
        return None
    if not isinstance(region, str):
        raise invalid_argument(f"parameter 'shared_memory_region' is {region!r}; expected a text")
    offset, size = (_number(parameters, f"shared_memory_{name}") for name in ("offset", "byte_size"))
    if offset < 0 or size < 0:
        raise invalid_argument(
            f"Invalid offset + byte size for shared memory region: '{region}': {offset} + {size}; expected at least 0"
        )
    return RegionPart(region, offset, size)


def _number(parameters: Parameters, name: str) -> int:
    value = parameters.get(name, 0)
    if not isinstance(value, int):
        raise invalid_argument(f"parameter {name!r} is {value!r}; expected a number")
    return int(value)


def typed_bytes(tensor: str, datatype_: str, values: Sequence[object]) -> Bytes:
    """Return the bytes of numbers that a request has in a list, as JSON and typed contents do.

    Raises:
        HalError: INVALID_ARGUMENT: the datatype is unknown, or does not have a value.
    """
    dtype = DATATYPES.get(datatype_)
    if dtype is None:
        raise _unknown_datatype(tensor, datatype_)
    try:
        given = _as_array(values, dtype)
        array = given.astype(dtype)
        is_exact = dtype.kind == "f" or bool(np.all(array == given))
    except (TypeError, ValueError, OverflowError):  # such as texts, or lists of different lengths
        is_exact = False
    if not is_exact:
        raise invalid_argument(f"inference input '{tensor}' has a value that is not of {datatype_}")
    return array.reshape(-1).view(np.uint8)


def _as_array(values: Sequence[object], dtype: np.dtype[Any]) -> AnyArray:
    """Return numbers as numpy reads them, or as objects if it has no type for them, or would round integers."""
    objects = np.asarray(values, object)  # with a type of numpy, each text takes as much as the longest one
    if not _NUMBERS.issuperset(map(type, objects.flat)):
        raise TypeError
    array = np.asarray(values)
    is_rounded = array.dtype.kind == "O" or (array.dtype.kind == "f" and dtype.kind in "iu")
    return objects if is_rounded else array


def _unknown_datatype(tensor: str, datatype_: str) -> HalError:
    known = ", ".join(DATATYPES)
    return invalid_argument(f"inference input '{tensor}' has the data-type '{datatype_}'; expected one of {known}")
