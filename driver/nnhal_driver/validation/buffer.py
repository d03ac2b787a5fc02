"""Driver-managed buffers: allocation (V-ALLOC), copies, and use in requests (V-TOKEN).

These rules end in INVALID_ARGUMENT and need no value of a buffer. The rules that depend on a buffer's state are in
`nnhal_driver.execution.buffer`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from nnhal.errors import general_failure
from nnhal.rules.ranges import negative
from nnhal.rules.rule import Rules, first_repeated
from nnhal.types import (
    PROT_WRITE,
    TYPE_BASE_MAX,
    BufferDesc,
    BufferRole,
    Memory,
    Operand,
    UnsetUnion,
    is_extension,
    type_name,
)
from nnhal_driver.extension_types import ExtensionTypes, ValueType
from nnhal_driver.validation.error_location import KINDS
from nnhal_driver.validation.pool import POOL_RULES
from nnhal_driver.validation.ranges import POOL_KIND_RULES
from nnhal_driver.validation.rank import check_rank

Dimensions = tuple[int, ...]


class PreparedModelIO(Protocol):
    """The inputs and outputs of a prepared model, which roles refer to."""

    @property
    def inputs(self) -> Sequence[Operand]:
        """Operands of the inputs."""

    @property
    def outputs(self) -> Sequence[Operand]:
        """Operands of the outputs."""

    @property
    def extension_types(self) -> ExtensionTypes:
        """Operand types of extensions that the device knows, by their number in the model."""

    @property
    def extension_names(self) -> Mapping[int, str]:
        """Names of the extensions that the model uses, by prefix."""


class ListedRole(NamedTuple):
    """An entry of the list of input roles or the list of output roles. `number` is its position in the list."""

    is_output: bool
    number: int
    role: BufferRole

    @property
    def name(self) -> str:
        """The name of the role in messages."""
        return f"{KINDS[self.is_output]} role {self.number}"


@dataclass(frozen=True, slots=True)
class AllocationRequest:
    """The arguments of `allocate`. `models`: None for a model that is null or of another device."""

    desc: BufferDesc
    models: Sequence[PreparedModelIO | None]
    roles: Sequence[ListedRole]

    def operands(self, role: ListedRole) -> Sequence[Operand]:
        """Return the inputs or the outputs that a role refers to; its model must be valid."""
        model = self.models[role.role.model_index]
        assert model is not None
        return model.outputs if role.is_output else model.inputs

    def operand(self, role: ListedRole) -> Operand:
        """Return the operand of a valid role."""
        return self.operands(role)[role.role.io_index]

    def buffer_type(self, role: ListedRole) -> ValueType:
        """Return the type of a valid role's values."""
        operand, model = self.operand(role), self.models[role.role.model_index]
        assert model is not None
        return ValueType(operand, model.extension_types.get(operand.type))

    def type_(self, role: ListedRole) -> object:
        """Return what identifies the type of a valid role's operand in every model: extensions have other prefixes."""
        type_, model = self.operand(role).type, self.models[role.role.model_index]
        assert model is not None
        name = model.extension_names.get(type_ >> 16) if is_extension(type_) else None
        return type_ if name is None else f"{type_ & TYPE_BASE_MAX} of {name}"


@dataclass(frozen=True, slots=True)
class RequestedRole:
    """A role and the allocation request that contains it."""

    allocation: AllocationRequest
    role: ListedRole


@dataclass(frozen=True, slots=True)
class CopyFrom:
    """A copy into a buffer of values of a shape. `type`: the buffer's type, with the shape of its allocation."""

    type: ValueType
    dimensions: Dimensions


@dataclass(frozen=True, slots=True)
class SizedCopy:
    """A copy between memory and a buffer of a size in bytes, which is None if it is above the maximum."""

    memory: Memory
    size: int | None


@dataclass(frozen=True, slots=True)
class BufferUse:
    """An argument of a request whose value is in a buffer.

    Attributes:
        number: the index of the input or output.
        dimensions: those of the argument in the request.
        times: how often the request uses the buffer.
        roles: (is an output, number) of each role that the buffer has in this prepared model.
        operand: the buffer's operand, with the shape of its allocation.
    """

    is_output: bool
    number: int
    dimensions: Dimensions
    times: int
    roles: frozenset[tuple[bool, int]]
    operand: Operand

    @property
    def name(self) -> str:
        """The name of the argument in messages."""
        return f"{KINDS[self.is_output]} {self.number} of the request"


ALLOCATION_RULES = Rules[AllocationRequest]()
ROLE_RULES = Rules[RequestedRole]()
ROLE_MATCH_RULES = Rules[AllocationRequest]()
TARGET_RULES = Rules[Memory]()
COPY_FROM_RULES = Rules[CopyFrom]()
COPY_SIZE_RULES = Rules[SizedCopy]()
BUFFER_USE_RULES = Rules[BufferUse]()


def validate_allocation(allocation: AllocationRequest) -> ValueType:
    """Check an allocation, and return the type that the buffer can hold: that of its roles, with all known dimensions.

    Raises:
        HalError: INVALID_ARGUMENT, V-WIRE-03 or V-ALLOC-01 to 06; GENERAL_FAILURE, V-ALLOC-07.
    """
    ALLOCATION_RULES.check(allocation, lambda: "the allocation")
    for role in allocation.roles:
        ROLE_RULES.check(RequestedRole(allocation, role), lambda role=role: role.name)  # type: ignore[misc]
    ROLE_MATCH_RULES.check(allocation, lambda: "the allocation")
    type_ = allocation.buffer_type(allocation.roles[0])
    if is_extension(type_.operand.type) and type_.extension is None:
        reason = f"no backend lists {type_name(type_.operand.type)}, so the size of the buffer is unknown"
        raise general_failure(reason, "V-ALLOC-07")
    dimensions = allocation.desc.dimensions
    for role in allocation.roles:
        dimensions = _merge_dimensions(dimensions, allocation.operand(role).dimensions)
    check_rank(len(dimensions), "the buffer")
    return replace(type_, operand=replace(type_.operand, dimensions=dimensions))


def validate_copy_from(type_: ValueType, memory: Memory | UnsetUnion, dimensions: Dimensions) -> Dimensions:
    """Check a copy from memory into a buffer, and return the shape of the buffer after it.

    Raises:
        HalError: INVALID_ARGUMENT, V-WIRE-03, -07, V-POOL or V-TOKEN-05.
    """
    memory = _valid_memory(memory)
    COPY_FROM_RULES.check(CopyFrom(type_, dimensions), lambda: "the copy into the buffer")
    shape = dimensions or type_.operand.dimensions
    COPY_SIZE_RULES.check(SizedCopy(memory, type_.byte_size(shape)), lambda: "the copy into the buffer")
    return shape


def validate_copy_to(memory: Memory | UnsetUnion, size: int | None) -> Memory:
    """Check a copy of a buffer's value to memory, and return the memory. `size`: bytes of the value, None if unknown.

    Raises:
        HalError: INVALID_ARGUMENT, V-WIRE-07, V-POOL or V-TOKEN-05.
    """
    memory = _valid_memory(memory)
    TARGET_RULES.check(memory, lambda: "the memory")
    if size is not None:
        COPY_SIZE_RULES.check(SizedCopy(memory, size), lambda: "the copy out of the buffer")
    return memory


def dimension_conflict(dimensions: Dimensions, expected: Dimensions) -> str | None:
    """Return the first contradiction between two shapes, or None. 0 and () are unknown and match everything."""
    if not dimensions or not expected:
        return None
    if len(dimensions) != len(expected):
        return f"rank {len(dimensions)} instead of {len(expected)}"
    for axis, (length, expected_length) in enumerate(zip(dimensions, expected, strict=True)):
        if length != expected_length and length and expected_length:
            return f"dimension {axis} of {length} instead of {expected_length}"
    return None


def _merge_dimensions(dimensions: Dimensions, other: Dimensions) -> Dimensions:
    """Return all that two shapes without contradiction tell; 0 and () are unknown."""
    if not dimensions or not other:
        return dimensions or other
    return tuple(a or b for a, b in zip(dimensions, other, strict=True))


def _valid_memory(memory: Memory | UnsetUnion) -> Memory:
    """Check a memory (V-WIRE-07, V-POOL) and return it."""
    POOL_KIND_RULES.check(memory, lambda: "the memory")
    POOL_RULES.check(memory, lambda: "the memory")
    assert isinstance(memory, Memory)
    return memory


# ---- Allocation -----------------------------------------------------------------------------------------


@ALLOCATION_RULES.forbid("V-WIRE-03")
def _negative_dimension(allocation: AllocationRequest) -> str | None:
    return negative("dimension", allocation.desc.dimensions)


@ALLOCATION_RULES.forbid("V-ALLOC-01")
def _no_prepared_model(allocation: AllocationRequest) -> str | None:
    return None if allocation.models else "names no prepared model"


@ALLOCATION_RULES.forbid("V-ALLOC-01")
def _prepared_model_of_another_device(allocation: AllocationRequest) -> str | None:
    models = list(allocation.models)
    return f"has no prepared model of this device at index {models.index(None)}" if None in models else None


@ALLOCATION_RULES.forbid("V-ALLOC-02")
def _no_role(allocation: AllocationRequest) -> str | None:
    return None if allocation.roles else "has no role"


@ROLE_RULES.forbid("V-ALLOC-03")
def _unknown_model(subject: RequestedRole) -> str | None:
    index, count = subject.role.role.model_index, len(subject.allocation.models)
    return None if 0 <= index < count else f"has model index {index} of {count} models"


@ROLE_RULES.forbid("V-ALLOC-03")
def _unknown_input_or_output(subject: RequestedRole) -> str | None:
    index, count = subject.role.role.io_index, len(subject.allocation.operands(subject.role))
    return None if 0 <= index < count else f"has io index {index} of {count} {KINDS[subject.role.is_output]}s"


@ROLE_RULES.forbid("V-ALLOC-03")
def _probability_out_of_range(subject: RequestedRole) -> str | None:
    probability = subject.role.role.probability
    return None if 0 < probability <= 1 else f"has probability {probability}, must be > 0 and at most 1"


@ROLE_MATCH_RULES.forbid("V-ALLOC-04")
def _repeated_role(allocation: AllocationRequest) -> str | None:
    models = allocation.models
    roles = ((id(models[r.role.model_index]), r.is_output, r.role.io_index) for r in allocation.roles)
    repeated = first_repeated(roles)
    return None if repeated is None else f"names {KINDS[repeated[1]]} {repeated[2]} of one prepared model twice"


@ROLE_MATCH_RULES.forbid("V-ALLOC-05")
def _operands_that_differ(allocation: AllocationRequest) -> str | None:
    first, *others = allocation.roles
    expected = allocation.operand(first)
    fields = ("scale", "zero_point", *(() if is_extension(expected.type) else ("extra_params",)))
    for role in others:
        operand = allocation.operand(role)
        type_, expected_type = allocation.type_(role), allocation.type_(first)
        if type_ != expected_type:
            return f"has {role.name} with type {type_}, {first.name} has {expected_type}"
        for field in fields:
            value, expected_value = getattr(operand, field), getattr(expected, field)
            if value != expected_value:
                return f"has {role.name} with {field.replace('_', ' ')} {value}, {first.name} has {expected_value}"
    return None


@ROLE_MATCH_RULES.forbid("V-ALLOC-06")
def _shapes_that_differ(allocation: AllocationRequest) -> str | None:
    known, source = allocation.desc.dimensions, "the descriptor"
    for role in allocation.roles:
        dimensions = allocation.operand(role).dimensions
        if problem := dimension_conflict(dimensions, known):
            return f"has {role.name} with {problem} in {source}"
        known, source = _merge_dimensions(known, dimensions), "the roles before it"
    return None


@ROLE_MATCH_RULES.forbid("V-ALLOC-06")
def _scalar_with_dimensions(allocation: AllocationRequest) -> str | None:
    if allocation.buffer_type(allocation.roles[0]).is_scalar and allocation.desc.dimensions:
        return "gives dimensions to a scalar"
    return None


# ---- Copies ---------------------------------------------------------------------------------------------


@COPY_FROM_RULES.forbid("V-WIRE-03")
def _negative_dimension_of_a_copy(subject: CopyFrom) -> str | None:
    return negative("dimension", subject.dimensions)


@COPY_FROM_RULES.forbid("V-TOKEN-05")
def _dimensions_of_a_scalar(subject: CopyFrom) -> str | None:
    if subject.dimensions and subject.type.is_scalar:
        return "has dimensions, but the buffer holds a scalar"
    return None


@COPY_FROM_RULES.forbid("V-TOKEN-05")
def _missing_dimensions(subject: CopyFrom) -> str | None:
    declared = subject.type.operand.dimensions
    if subject.dimensions or subject.type.is_fully_specified(declared):
        return None
    return f"needs dimensions: the buffer was allocated with {list(declared)}"


@COPY_FROM_RULES.forbid("V-TOKEN-05")
def _partial_dimensions(subject: CopyFrom) -> str | None:
    if 0 not in subject.dimensions:
        return None
    return f"has dimension {subject.dimensions.index(0)} unknown, must have all dimensions or none"


@COPY_FROM_RULES.forbid("V-TOKEN-05")
def _dimensions_unlike_the_target(subject: CopyFrom) -> str | None:
    problem = dimension_conflict(subject.dimensions, subject.type.operand.dimensions)
    return f"has {problem}" if problem else None


@TARGET_RULES.forbid("")
def _read_only_target(memory: Memory) -> str | None:
    return None if memory.prot & PROT_WRITE and memory.buffer.flags.writeable else "is read-only"


@COPY_SIZE_RULES.forbid("V-TOKEN-05")
def _memory_of_another_size(subject: SizedCopy) -> str | None:
    size = subject.memory.size
    return None if size == subject.size else f"has memory of {size} bytes, must be {subject.size}"


# ---- Use in a request -----------------------------------------------------------------------------------


@BUFFER_USE_RULES.forbid("V-TOKEN-03")
def _output_used_twice(use: BufferUse) -> str | None:
    return "is in a buffer that the request uses twice" if use.is_output and use.times > 1 else None


@BUFFER_USE_RULES.forbid("V-TOKEN-01")
def _role_not_allocated(use: BufferUse) -> str | None:
    if (use.is_output, use.number) in use.roles:
        return None
    return f"is in a buffer that was not allocated for {KINDS[use.is_output]} {use.number} of this prepared model"


@BUFFER_USE_RULES.forbid("V-TOKEN-04")
def _dimensions_unlike_the_buffer(use: BufferUse) -> str | None:
    problem = dimension_conflict(use.dimensions, use.operand.dimensions)
    return f"has {problem} in its buffer" if problem else None
