"""Canonical types: the HAL's parcelables as frozen dataclasses, with its names in snake_case.

Client, service and driver use these types; `nnhal.wire` converts them to and from the messages of the contract. The
types check nothing. Enum fields are plain ints, and numbers may be out of range until `nnhal_driver.validation` checks
them. This module is also the home of the enumerations of `nnhal.enums`. Sources: hal-surface section 5.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nnhal.enums import (
    BackendState,
    CacheState,
    DeviceType,
    ErrorKind,
    ErrorStatus,
    ExecutionPreference,
    FenceState,
    FusedActivationFunc,
    NamedModelState,
    OperandLifeTime,
    OperandType,
    OperationType,
    Priority,
    SpanKind,
)

__all__ = [
    "AnyArray",
    "BackendInfo",
    "BackendState",
    "BufferDesc",
    "BufferRole",
    "BufferToken",
    "Bytes",
    "CacheCounters",
    "CacheOutcome",
    "CacheState",
    "Capabilities",
    "CompilationCache",
    "DataLocation",
    "DeviceType",
    "ErrorKind",
    "ErrorStatus",
    "ExecutionConfig",
    "ExecutionPreference",
    "ExecutionResult",
    "Extension",
    "ExtensionNameAndPrefix",
    "ExtensionOperandTypeInformation",
    "ExtensionParams",
    "ExtraParams",
    "FenceState",
    "FusedActivationFunc",
    "Memory",
    "Model",
    "ModelEntry",
    "ModelState",
    "NamedModelState",
    "NumberOfCacheFiles",
    "Operand",
    "OperandLifeTime",
    "OperandPerformance",
    "OperandType",
    "Operation",
    "OperationPlacement",
    "OperationType",
    "OutputShape",
    "Partition",
    "PerformanceInfo",
    "Placement",
    "PreparationWarning",
    "PrepareModelConfig",
    "Priority",
    "Refusal",
    "Request",
    "RequestArgument",
    "RequestMemoryPool",
    "ReturnedPool",
    "Span",
    "SpanKind",
    "Subgraph",
    "SymmPerChannelQuantParams",
    "Timing",
    "TokenValuePair",
    "UnsetUnion",
]

AnyArray: TypeAlias = NDArray[Any]
Bytes: TypeAlias = NDArray[np.uint8]
Normalization: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of the pixels of an input: a value for each channel, or one for all."""

HAL_VERSION = 4
HAL_HASH = "53178f8de9b8861df391cf0593f6f3e08adad33d"

CACHE_TOKEN_BYTES = 32
MAX_NUMBER_OF_CACHE_FILES = 32
TYPE_BASE_MAX = 0xFFFF
"""Operand and operation types above this belong to extensions."""
DEFAULT_LOOP_TIMEOUT_NS = 2_000_000_000
MAXIMUM_LOOP_TIMEOUT_NS = 15_000_000_000

OMITTED = -1
"""Value of an omitted deadline, duration or timeout, and of a time that was not measured."""

PROT_READ = 1
PROT_WRITE = 2


@dataclass(frozen=True, slots=True)
class UnsetUnion:
    """A union without a member that this version knows. V-WIRE-07 rejects it."""


# ---- Memory ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Memory:
    """A pool: a window on bytes of a buffer (the HAL's Ashmem and MappableFile).

    Attributes:
        buffer: one-dimensional uint8 array, not copied.
        offset: first byte of the window.
        length: bytes in the window; None extends it to the end of the buffer.
        prot: bit mask of PROT_READ and PROT_WRITE.
    """

    buffer: Bytes
    offset: int = 0
    length: int | None = None
    prot: int = PROT_READ | PROT_WRITE

    @staticmethod
    def of(data: bytes | bytearray | memoryview | AnyArray, *, writable: bool = False) -> "Memory":
        """Return a pool over the bytes of `data`, without a copy. `data` must be C-contiguous."""
        if isinstance(data, np.ndarray):
            raw = data.reshape(-1).view(np.uint8) if data.size else np.empty(0, np.uint8)
        else:
            raw = np.frombuffer(data, np.uint8)
        return Memory(raw, prot=PROT_READ | PROT_WRITE if writable else PROT_READ)

    @property
    def size(self) -> int:
        """Bytes in the window."""
        return self.buffer.size - self.offset if self.length is None else self.length

    @cached_property
    def view(self) -> Bytes:
        """The bytes of the window. They are meaningful only if the pool is valid."""
        return self.buffer[self.offset : self.offset + self.size]


@dataclass(frozen=True, slots=True)
class DataLocation:
    """A region of a pool, in bytes."""

    pool_index: int = 0
    offset: int = 0
    length: int = 0
    padding: int = 0


# ---- Model ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SymmPerChannelQuantParams:
    """Scales of TENSOR_QUANT8_SYMM_PER_CHANNEL, one per index of dimension `channel_dim`."""

    scales: tuple[float, ...]
    channel_dim: int = 0


@dataclass(frozen=True, slots=True)
class ExtensionParams:
    """Opaque parameters of an extension type."""

    data: bytes


ExtraParams: TypeAlias = SymmPerChannelQuantParams | ExtensionParams | UnsetUnion | None


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand.

    Attributes:
        type: an OperandType, or an operand type of an extension.
        dimensions: () for scalars. 0 is an unknown dimension; () of a tensor is an unknown rank.
        location: location of a constant's value, or the number of a referenced subgraph in `offset`.
        extra_params: scales per channel, or parameters of an extension type.
    """

    type: int = OperandType.FLOAT32
    dimensions: tuple[int, ...] = ()
    scale: float = 0.0
    zero_point: int = 0
    lifetime: int = OperandLifeTime.TEMPORARY_VARIABLE
    location: DataLocation = DataLocation()
    extra_params: ExtraParams = None

    def __repr__(self) -> str:
        values = ((each.name, getattr(self, each.name), each.default) for each in fields(self)[1:])
        given = "".join(f", {name}={value!r}" for name, value, default in values if value != default)
        return f"Operand({type_name(self.type)}{given})"


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation; `inputs` and `outputs` index the operands of its subgraph."""

    type: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Subgraph:
    """Operands and the operations over them, in an order of execution."""

    operands: tuple[Operand, ...]
    operations: tuple[Operation, ...]
    input_indexes: tuple[int, ...]
    output_indexes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ExtensionNameAndPrefix:
    """The prefix of an extension: the high 15 bits of its operand and operation types."""

    name: str
    prefix: int


@dataclass(frozen=True, eq=False)
class ModelState:
    """A variable of a model: an output whose value is the input of the next execution.

    Attributes:
        input_index: the input that takes the value before an execution.
        output_index: the output that returns the value after it.
        initial: the value before the first execution.
    """

    name: str
    input_index: int
    output_index: int
    initial: AnyArray


@dataclass(frozen=True, eq=False)
class Model:
    """A model.

    The names, states and normalizations exist only in the client. They are not part of the HAL and are not transmitted,
    except `name`, which services show to operators.

    Attributes:
        input_names: one name per input of `main`, or ().
        output_names: one name per output of `main`, or ().
        operation_names: the origin of each operation of `main`, or ().
        states: variables that a caller carries from one execution to the next.
        normalizations: how pixels become elements of each input, if the file tells, or ().
        name: that of the file without its suffix, or "".
    """

    main: Subgraph
    referenced: tuple[Subgraph, ...] = ()
    operand_values: bytes | memoryview = b""
    pools: tuple[Memory | UnsetUnion, ...] = ()
    relax_computation_float32_to_float16: bool = False
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...] = ()
    input_names: tuple[str, ...] = ()
    output_names: tuple[str, ...] = ()
    operation_names: tuple[str, ...] = ()
    states: tuple[ModelState, ...] = ()
    normalizations: tuple[Normalization | None, ...] = ()
    name: str = ""

    @property
    def subgraphs(self) -> tuple[Subgraph, ...]:
        """All subgraphs by number: 0 is main, i + 1 is referenced[i]."""
        return (self.main, *self.referenced)

    @property
    def inputs(self) -> tuple[Operand, ...]:
        """Operands of the inputs."""
        return tuple(self.main.operands[i] for i in self.main.input_indexes)

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """Operands of the outputs."""
        return tuple(self.main.operands[i] for i in self.main.output_indexes)

    @property
    def extension_names(self) -> dict[int, str]:
        """Names of the extensions by prefix."""
        return {entry.prefix: entry.name for entry in self.extension_name_to_prefix}

    def __repr__(self) -> str:
        inputs = describe_operands(self.inputs, self.input_names)
        outputs = describe_operands(self.outputs, self.output_names)
        count = sum(len(graph.operations) for graph in self.subgraphs)
        return f"<nnhal.Model: {count} operation{'s' * (count != 1)}; inputs {inputs}; outputs {outputs}>"


# ---- Request and result ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RequestArgument:
    """One input or output of a request."""

    has_no_value: bool = False
    location: DataLocation = DataLocation()
    dimensions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BufferToken:
    """A pool that is a driver-managed buffer, by its token."""

    token: int


@dataclass(frozen=True, slots=True)
class ReturnedPool:
    """A pool for outputs in `ExecutionResult.returned`. With `size` None it is as large as the outputs need."""

    size: int | None = None


RequestMemoryPool: TypeAlias = Memory | BufferToken | ReturnedPool | UnsetUnion


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Request:
    """Arguments in the order of the main subgraph's indexes, and the pools that contain them."""

    inputs: tuple[RequestArgument, ...]
    outputs: tuple[RequestArgument, ...]
    pools: tuple[RequestMemoryPool, ...]


@dataclass(frozen=True, slots=True)
class OutputShape:
    """Shape of an output. `is_sufficient` is False if its region was too small."""

    dimensions: tuple[int, ...]
    is_sufficient: bool = True


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of an execution in nanoseconds; OMITTED if not measured."""

    time_on_device_ns: int = OMITTED
    time_in_driver_ns: int = OMITTED

    def __repr__(self) -> str:
        if self.time_on_device_ns == self.time_in_driver_ns == OMITTED:
            return "Timing(not measured)"
        return f"Timing(time_on_device_ns={self.time_on_device_ns}, time_in_driver_ns={self.time_in_driver_ns})"


UNMEASURED = Timing()
"""Timing of executions that are not measured."""


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of the work of one execution.

    Attributes:
        name: the operation, the backend's name for its work, or the stage.
        backend: the backend that ran it; "" for a stage.
        operations: operations of `subgraph`: those of the partition, or a single one.
        start_ns: start of the span, counted from the start of the execution on the device; negative before it.
    """

    kind: int
    name: str
    backend: str
    subgraph: int
    operations: tuple[int, ...]
    start_ns: int
    duration_ns: int


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """Result of an execution.

    Attributes:
        returned: one uint8 array per output, None for outputs in other pools; or ().
        dropped_spans: number of further spans, which were left out.
    """

    output_sufficient_size: bool
    output_shapes: tuple[OutputShape, ...] = ()
    timing: Timing = UNMEASURED
    returned: tuple[Bytes | None, ...] = ()
    spans: tuple[Span, ...] = ()
    dropped_spans: int = 0


# ---- Configuration --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TokenValuePair:
    """A hint."""

    token: int
    value: bytes


@dataclass(frozen=True, slots=True)
class CompilationCache:
    """Location of a compilation: the service's cache if `stored`, otherwise the files of the handles."""

    token: bytes
    stored: bool = True
    model_cache: tuple[bytes, ...] = ()
    data_cache: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheOutcome:
    """Outcome of the compilation cache for one preparation.

    Attributes:
        state: a CacheState; UNSPECIFIED if no cache was requested.
        reason: the reason for a cache miss, or for not saving the compilation.
    """

    state: int = CacheState.UNSPECIFIED
    reason: str = ""

    def __repr__(self) -> str:
        reason = f", reason={self.reason!r}" if self.reason else ""
        if self.state == CacheState.UNSPECIFIED:
            return "CacheOutcome(not requested)"
        return f"CacheOutcome({getattr(self.state, 'name', self.state)}{reason})"


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """Counters of a client's entries in the compilation cache since the service started.

    Attributes:
        hits: preparations from the cache that found an entry.
        misses: preparations from the cache that found no entry.
        saves: entries that were written.
        evictions: entries that were removed to make room for others.
        set_aside: damaged entries that were moved to quarantine.
    """

    hits: int = 0
    misses: int = 0
    saves: int = 0
    evictions: int = 0
    set_aside: int = 0


@dataclass(frozen=True, slots=True)
class PreparationWarning:
    """A problem that did not make a preparation fail. `code` is a short name for programs."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class PrepareModelConfig:
    """Options of a preparation. `deadline_ns` is a time of CLOCK_BOOTTIME, or OMITTED."""

    preference: int = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: int = Priority.MEDIUM
    deadline_ns: int = OMITTED
    compilation_hints: tuple[TokenValuePair, ...] = ()
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecutionConfig:
    """Options of an execution.

    Attributes:
        loop_timeout_duration_ns: timeout of each WHILE; OMITTED means 2 s.
    """

    measure_timing: bool = False
    loop_timeout_duration_ns: int = OMITTED
    execution_hints: tuple[TokenValuePair, ...] = ()
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...] = ()
    profile: bool = False


# ---- Description of a device ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PerformanceInfo:
    """Ratios to the CPU for the same work. They are > 0, and lower is better."""

    exec_time: float
    power_usage: float


@dataclass(frozen=True, slots=True)
class OperandPerformance:
    """Performance on operands of one type."""

    type: int
    info: PerformanceInfo


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Performance figures of a device; `operand_performance` is sorted by type."""

    relaxed_float32_to_float16_performance_scalar: PerformanceInfo
    relaxed_float32_to_float16_performance_tensor: PerformanceInfo
    operand_performance: tuple[OperandPerformance, ...]
    if_performance: PerformanceInfo
    while_performance: PerformanceInfo


@dataclass(frozen=True, slots=True)
class NumberOfCacheFiles:
    """Number of cache files that a prepared model needs; (0, 0) means that it cannot be cached."""

    num_model_cache: int = 0
    num_data_cache: int = 0


@dataclass(frozen=True, slots=True)
class ExtensionOperandTypeInformation:
    """An operand type of an extension."""

    type: int
    is_tensor: bool
    byte_size: int


@dataclass(frozen=True, slots=True)
class Extension:
    """An extension that a device supports."""

    name: str
    operand_types: tuple[ExtensionOperandTypeInformation, ...] = ()


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """A backend that a device found.

    Attributes:
        id: unique name; "" if a candidate failed before its id was known.
        reason: the reason for the states SKIPPED and FAILED.
        origin: "built in", or a file.
        api_version: version of the backend interface that it was built for, "major.minor".
        capabilities: optional features of the backend interface, and whether the backend has them.
        quarantined_models: number of models that are kept from it, because it crashed while it worked on them.
        hardware: its hardware, for people: for example its name, its driver, and figures measured with it.
    """

    id: str
    version: str
    state: BackendState
    reason: str = ""
    origin: str = ""
    api_version: str = ""
    capabilities: Mapping[str, bool] = field(default_factory=dict, hash=False)
    quarantined_models: int = 0
    hardware: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __repr__(self) -> str:
        name = " ".join(filter(None, (self.id or "(no id)", self.version)))
        facts = filter(None, (self.state.name, self.origin, self.reason))
        return f"<nnhal.BackendInfo {name}: {', '.join(facts)}>"


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A version of a model by name.

    Attributes:
        reason: why its current files are not loaded, or "". A version that is READY all the same has earlier contents.
    """

    name: str
    version: int
    state: NamedModelState
    reason: str = ""


# ---- Driver-managed buffers -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BufferDesc:
    """Requested shape of a buffer; 0 is an unknown dimension, () an unknown rank."""

    dimensions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BufferRole:
    """A use of a buffer: input or output `io_index` of prepared model `model_index`."""

    model_index: int
    io_index: int
    probability: float = 1.0


# ---- Placement ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why a backend does not support an operation.

    Attributes:
        nearest: the most similar signature that the backend supports, or "".
    """

    backend: str
    reason: str
    nearest: str = ""


@dataclass(frozen=True, slots=True)
class Partition:
    """Operations of one subgraph (0: main, i + 1: referenced[i]) that a backend runs as a unit."""

    subgraph: int
    backend: str
    operations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OperationPlacement:
    """Placement of one operation; `backend` is "" if no backend supports the operation."""

    subgraph: int
    operation: int
    type: int
    backend: str
    refusals: tuple[Refusal, ...] = ()

    def __repr__(self) -> str:
        values = f"subgraph={self.subgraph}, operation={self.operation}, backend={self.backend!r}"
        refusals = f", refusals={self.refusals!r}" if self.refusals else ""
        return f"OperationPlacement({operation_name(self.type)}, {values}{refusals})"


@dataclass(frozen=True, slots=True)
class Placement:
    """Assignment of a model's operations to backends, with reasons."""

    partitions: tuple[Partition, ...] = ()
    operations: tuple[OperationPlacement, ...] = ()

    def __repr__(self) -> str:
        counts = Counter(operation.backend or "no backend" for operation in self.operations)
        places = ", ".join(f"{count} on {backend}" for backend, count in counts.most_common())
        return f"<nnhal.{type(self).__name__}: {len(self.operations)} operations: {places or 'none'}>"


# ---- Meaning of the types --------------------------------------------------------------------------------

DTYPES: dict[int, np.dtype[np.generic]] = {
    OperandType.FLOAT32: np.dtype(np.float32),
    OperandType.INT32: np.dtype(np.int32),
    OperandType.UINT32: np.dtype(np.uint32),
    OperandType.TENSOR_FLOAT32: np.dtype(np.float32),
    OperandType.TENSOR_INT32: np.dtype(np.int32),
    OperandType.TENSOR_QUANT8_ASYMM: np.dtype(np.uint8),
    OperandType.BOOL: np.dtype(np.bool_),
    OperandType.TENSOR_QUANT16_SYMM: np.dtype(np.int16),
    OperandType.TENSOR_FLOAT16: np.dtype(np.float16),
    OperandType.TENSOR_BOOL8: np.dtype(np.bool_),
    OperandType.FLOAT16: np.dtype(np.float16),
    OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL: np.dtype(np.int8),
    OperandType.TENSOR_QUANT16_ASYMM: np.dtype(np.uint16),
    OperandType.TENSOR_QUANT8_SYMM: np.dtype(np.int8),
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: np.dtype(np.int8),
}
"""numpy dtype of one element, for each base type except SUBGRAPH."""

SCALAR_TYPES = frozenset(
    {OperandType.FLOAT32, OperandType.INT32, OperandType.UINT32, OperandType.BOOL, OperandType.FLOAT16}
)


def is_extension(type_: int) -> bool:
    """Return whether an operand or operation type belongs to an extension (V-EXT-07)."""
    return type_ > TYPE_BASE_MAX


def is_tensor(type_: int) -> bool:
    """Return whether a base operand type is a tensor type."""
    return type_ in DTYPES and type_ not in SCALAR_TYPES


def is_fully_specified(type_: int, dimensions: Sequence[int]) -> bool:
    """Return whether rank and all dimensions of an operand are known, which is always true for scalars."""
    return not is_tensor(type_) or (len(dimensions) > 0 and 0 not in dimensions)


def byte_size(type_: int, dimensions: Sequence[int]) -> int:
    """Return the bytes of an operand's value, or 0 if its shape is not fully known (V-OPERAND-20)."""
    if type_ in SCALAR_TYPES:
        return DTYPES[type_].itemsize
    return DTYPES[type_].itemsize * prod(dimensions) if dimensions and type_ in DTYPES else 0


def elements(raw: Bytes, shape: Sequence[int]) -> AnyArray:
    """Return the value of an extension type as an array of uint8 for elements of one byte, otherwise of np.void.

    Bytes that are not a whole number of elements are returned unchanged, because such a type is unknown.
    """
    size, remainder = divmod(raw.size, max(prod(shape), 1))
    if remainder:
        return raw
    dtype = np.dtype(np.uint8) if size <= 1 else np.dtype((np.void, size))
    array: AnyArray = raw.view(dtype).reshape(shape)
    return array


def type_name(type_: int) -> str:
    """Return the HAL's name of an operand type, or its number."""
    return _OPERAND_TYPES.get(type_, f"operand type {type_}")


def describe_operands(operands: Sequence[Operand], names: Sequence[str] = ()) -> str:
    """Return the names, dtypes and shapes of operands in one line: "image: uint8[1, ?, ?, 3]". It ends after a few."""
    few = [_describe(operand) for operand in operands[:_MAX_DESCRIBED]]
    named = [f"{name}: {text}" for name, text in zip(names, few, strict=False)] or few
    omitted = len(operands) - len(few)
    return ", ".join(named) + (f" and {omitted} more" if omitted else "")


def _describe(operand: Operand) -> str:
    dtype = DTYPES.get(operand.type) or type_name(operand.type)
    if operand.type in SCALAR_TYPES:
        return str(dtype)
    return f"{dtype}[{', '.join(str(size or '?') for size in operand.dimensions) or '...'}]"


EXTENSION_OPERATIONS: dict[str, tuple[str, ...]] = {"org.nnhal.litert": ("SUBMODEL",)}
"""Names of the operations of known extensions, by their numbers in the extension."""


def operation_name(type_: int, extensions: Mapping[int, str] = MappingProxyType({})) -> str:
    """Return the name of an operation type, or its number: "ADD", "SUBMODEL of org.nnhal.litert".

    `extensions` has the names of the model's extensions by prefix, as `Model.extension_names`.
    """
    extension = extensions.get(type_ >> _PREFIX_SHIFT)
    if extension is None or not is_extension(type_):
        return _OPERATION_TYPES.get(type_, f"operation type {type_}")
    number, names = type_ & TYPE_BASE_MAX, EXTENSION_OPERATIONS.get(extension, ())
    return f"{names[number] if number < len(names) else f'operation {number}'} of {extension}"


_MAX_DESCRIBED = 4
_PREFIX_SHIFT = 16
"""An operand or operation type is the prefix of its extension, and a number of this many bits."""
_OPERAND_TYPES = {int(member): member.name for member in OperandType}
_OPERATION_TYPES = {int(member): member.name for member in OperationType}
