"""Canonical types: the HAL's parcelables as frozen dataclasses, with its names in snake_case.

Client, service and driver speak these; `nnhal.wire` converts them to and from the contract's messages. They hold what
was said and judge nothing: enum fields are plain ints, and numbers may be out of range until `driver.validation` has
seen them. Sources: hal-surface section 5.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nnhal.enums import (
    CacheState,
    DeviceType,
    ErrorKind,
    ErrorStatus,
    ExecutionPreference,
    FusedActivationFunc,
    OperandLifeTime,
    OperandType,
    OperationType,
    Priority,
)

__all__ = [
    "AnyArray",
    "BufferDesc",
    "BufferRole",
    "BufferToken",
    "Bytes",
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
    "FusedActivationFunc",
    "Memory",
    "Model",
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

HAL_VERSION = 4
HAL_HASH = "53178f8de9b8861df391cf0593f6f3e08adad33d"

CACHE_TOKEN_BYTES = 32
MAX_NUMBER_OF_CACHE_FILES = 32
TYPE_BASE_MAX = 0xFFFF
"""Operand and operation types above this belong to extensions."""
DEFAULT_LOOP_TIMEOUT_NS = 2_000_000_000
MAXIMUM_LOOP_TIMEOUT_NS = 15_000_000_000

OMITTED = -1
"""A deadline, duration or timeout that is not given, and a time that was not measured."""

PROT_READ = 1
PROT_WRITE = 2


@dataclass(frozen=True, slots=True)
class UnsetUnion:
    """A union none of whose members is set, or one that is not known: V-WIRE-07 refuses it."""


# ---- Memory ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Memory:
    """A pool: a window on bytes that live elsewhere (the HAL's Ashmem and MappableFile).

    Attributes:
        buffer: one-dimensional uint8 array, not copied.
        offset: first byte of the window.
        length: bytes in the window; None: up to the end of the buffer.
        prot: bit mask of PROT_READ and PROT_WRITE.
    """

    buffer: Bytes
    offset: int = 0
    length: int | None = None
    prot: int = PROT_READ | PROT_WRITE

    @staticmethod
    def of(data: bytes | bytearray | memoryview | AnyArray, *, writable: bool = False) -> "Memory":
        """A pool over the bytes of `data`, which must be C-contiguous; nothing is copied."""
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
        """The window itself; only meaningful once the pool rules hold."""
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
    """An operand. `dimensions`: () for scalars; 0 is an unknown dimension; () of a tensor is an unknown rank."""

    type: int = OperandType.FLOAT32
    dimensions: tuple[int, ...] = ()
    scale: float = 0.0
    zero_point: int = 0
    lifetime: int = OperandLifeTime.TEMPORARY_VARIABLE
    location: DataLocation = DataLocation()
    extra_params: ExtraParams = None


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
    """Binds an extension's name to the high 15 bits of its types and operations."""

    name: str
    prefix: int


@dataclass(frozen=True, eq=False)
class Model:
    """A model.

    The names are for the client's convenience only: they are no part of the HAL and never travel. `input_names` and
    `output_names` are empty, or one per input (output) of `main`; `operation_names` say where each operation of `main`
    comes from.
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

    @property
    def subgraphs(self) -> tuple[Subgraph, ...]:
        """main first, then the referenced ones: number 0, then i + 1."""
        return (self.main, *self.referenced)


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
    """A pool whose outputs come back in `ExecutionResult.returned`. `size` None: as large as needed."""

    size: int | None = None


RequestMemoryPool: TypeAlias = Memory | BufferToken | ReturnedPool | UnsetUnion


@dataclass(frozen=True, slots=True)
class Request:
    """Arguments, in the order of the main subgraph's indexes, and the pools that they lie in."""

    inputs: tuple[RequestArgument, ...]
    outputs: tuple[RequestArgument, ...]
    pools: tuple[RequestMemoryPool, ...]


@dataclass(frozen=True, slots=True)
class OutputShape:
    """Shape of an output, and whether its region is large enough."""

    dimensions: tuple[int, ...]
    is_sufficient: bool = True


@dataclass(frozen=True, slots=True)
class Timing:
    """Nanoseconds; -1 where not measured."""

    time_on_device_ns: int = OMITTED
    time_in_driver_ns: int = OMITTED


UNMEASURED = Timing()
"""What executions have that are not measured."""


class SpanKind(IntEnum):
    """What a Span is about."""

    UNSPECIFIED = 0
    PARTITION = 1
    OPERATION = 2
    WORK = 3


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of the work of one execution.

    Attributes:
        kind: a SpanKind: a partition, one operation, or what the backend calls `name`.
        operations: of `subgraph`: those of the partition, or the one operation.
        start_ns: from the moment when the device began with the execution.
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
        returned: one uint8 array per output, None where it lies elsewhere; or ().
        spans: what was measured, where that was asked for; `dropped_spans` more were left out.
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
    """Where a compilation is kept. `stored`: by the service; else in the files named by their handles."""

    token: bytes
    stored: bool = True
    model_cache: tuple[bytes, ...] = ()
    data_cache: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class CacheOutcome:
    """What the compilation cache did; `state` is a CacheState, UNSPECIFIED where no cache was asked for.

    Attributes:
        reason: why nothing was saved, or why it is a miss.
    """

    state: int = CacheState.UNSPECIFIED
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CacheCounters:
    """What a service has done with this client's entries of the compilation cache since it started.

    Attributes:
        hits, misses: preparations from the cache that found an entry, and that found none.
        evictions: entries that went because others needed their room.
        set_aside: entries that were found damaged.
    """

    hits: int = 0
    misses: int = 0
    saves: int = 0
    evictions: int = 0
    set_aside: int = 0


@dataclass(frozen=True, slots=True)
class PreparationWarning:
    """What went wrong without making a preparation fail. `code`: a short name that programs can compare."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class PrepareModelConfig:
    """How to prepare. `deadline_ns`: an instant of CLOCK_BOOTTIME, or -1."""

    preference: int = ExecutionPreference.FAST_SINGLE_ANSWER
    priority: int = Priority.MEDIUM
    deadline_ns: int = OMITTED
    compilation_hints: tuple[TokenValuePair, ...] = ()
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecutionConfig:
    """How to execute. `loop_timeout_duration_ns`: for each WHILE; -1 is 2 s. `profile`: measure spans."""

    measure_timing: bool = False
    loop_timeout_duration_ns: int = OMITTED
    execution_hints: tuple[TokenValuePair, ...] = ()
    extension_name_to_prefix: tuple[ExtensionNameAndPrefix, ...] = ()
    profile: bool = False


# ---- Description of a device ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PerformanceInfo:
    """Ratio to the CPU for the same work; lower is better, > 0."""

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
    """Cache files that one prepared model needs; (0, 0): no caching."""

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


# ---- Driver-managed buffers -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BufferDesc:
    """Shape wanted for a buffer; 0 unknown dimension, () unknown rank."""

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
    """Why a backend does not take an operation; `nearest`: the nearest signature that it would take, or ""."""

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
    """Where one operation runs; `backend` "" when none takes it."""

    subgraph: int
    operation: int
    type: int
    backend: str
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """Which backend runs what, and why."""

    partitions: tuple[Partition, ...] = ()
    operations: tuple[OperationPlacement, ...] = field(default=())


# ---- What the types mean --------------------------------------------------------------------------------

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
"""numpy dtype of one element of each base type but SUBGRAPH."""

SCALAR_TYPES = frozenset(
    {OperandType.FLOAT32, OperandType.INT32, OperandType.UINT32, OperandType.BOOL, OperandType.FLOAT16}
)


def is_extension(type_: int) -> bool:
    """Whether an operand or operation type belongs to an extension (V-EXT-07)."""
    return type_ > TYPE_BASE_MAX


def is_tensor(type_: int) -> bool:
    """Whether a base operand type is a tensor type."""
    return type_ in DTYPES and type_ not in SCALAR_TYPES


def is_fully_specified(type_: int, dimensions: Sequence[int]) -> bool:
    """Whether rank and all dimensions of an operand are known. Scalars always are."""
    return not is_tensor(type_) or (len(dimensions) > 0 and 0 not in dimensions)


def byte_size(type_: int, dimensions: Sequence[int]) -> int:
    """Bytes of an operand's value; 0 where its shape is not fully known (V-OPERAND-20)."""
    if type_ in SCALAR_TYPES:
        return DTYPES[type_].itemsize
    return DTYPES[type_].itemsize * prod(dimensions) if dimensions and type_ in DTYPES else 0


def elements(raw: Bytes, shape: Sequence[int]) -> AnyArray:
    """The bytes of a value of an extension's type as an array: of uint8 where an element is a byte, else of np.void.

    Bytes that are no whole number of elements stay bytes: nobody knows such a type.
    """
    size, rest = divmod(raw.size, max(prod(shape), 1))
    if rest:
        return raw
    dtype = np.dtype(np.uint8) if size <= 1 else np.dtype((np.void, size))
    array: AnyArray = raw.view(dtype).reshape(shape)
    return array


def type_name(type_: int) -> str:
    """The HAL's name of an operand type, or its number."""
    return _OPERAND_TYPES.get(type_, f"operand type {type_}")


def operation_name(type_: int) -> str:
    """The HAL's name of an operation type, or its number."""
    return _OPERATION_TYPES.get(type_, f"operation type {type_}")


_OPERAND_TYPES = {int(member): member.name for member in OperandType}
_OPERATION_TYPES = {int(member): member.name for member in OperationType}
