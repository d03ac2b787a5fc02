"""Driver-managed buffers: how they are allocated (V-ALLOC), copied, and used in requests (V-TOKEN).

Here are the rules that end in INVALID_ARGUMENT and need no value of a buffer; what depends on its state is judged where
the state is, in `driver.buffer`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from driver.graph import hold_rank
from driver.validation import wire
from driver.validation.operand import bounded_byte_size
from driver.validation.pool import POOL
from driver.validation.repeat import first_repeated
from driver.validation.rule import Rules
from driver.validation.wire import negative
from nnhal.errors import general_failure
from nnhal.types import (
    PROT_WRITE,
    SCALAR_TYPES,
    BufferDesc,
    BufferRole,
    Memory,
    Operand,
    UnsetUnion,
    is_extension,
    is_fully_specified,
    type_name,
)

Dimensions = tuple[int, ...]
_NAMES = {False: "input", True: "output"}


class Ends(Protocol):
    """What a role names: the inputs and outputs of a prepared model."""

    @property
    def inputs(self) -> Sequence[Operand]:
        """Operands of the inputs."""

    @property
    def outputs(self) -> Sequence[Operand]:
        """Operands of the outputs."""


class Role(NamedTuple):
    """An entry of one of the two lists of roles; `number`: its place there."""

    is_output: bool
    number: int
    role: BufferRole

    @property
    def name(self) -> str:
        """What a person calls it."""
        return f"{_NAMES[self.is_output]} role {self.number}"


@dataclass(frozen=True, slots=True)
class Allocation:
    """What `allocate` is asked for. `models`: None where one is null, or of another device."""

    desc: BufferDesc
    models: Sequence[Ends | None]
    roles: Sequence[Role]

    def ends(self, role: Role) -> Sequence[Operand]:
        """The operands among which a role chooses, once its model is known to be good."""
        model = self.models[role.role.model_index]
        assert model is not None
        return model.outputs if role.is_output else model.inputs

    def operand(self, role: Role) -> Operand:
        """The operand behind a valid role."""
        return self.ends(role)[role.role.io_index]


@dataclass(frozen=True, slots=True)
class RoleOf:
    """A role, and the allocation that it belongs to."""

    allocation: Allocation
    role: Role


@dataclass(frozen=True, slots=True)
class CopyFrom:
    """Filling a buffer: the buffer's operand, with the shape that it was allocated with, the memory and its shape."""

    operand: Operand
    memory: Memory
    dimensions: Dimensions


@dataclass(frozen=True, slots=True)
class Use:
    """One argument of a request that lies in a buffer.

    Attributes:
        dimensions: what the request says of the argument's shape.
        times: how often the request uses the buffer.
        roles: (is an output, number) of each role that the buffer has in this prepared model.
        operand: of the buffer, with the shape that it was allocated with.
    """

    is_output: bool
    number: int
    dimensions: Dimensions
    times: int
    roles: frozenset[tuple[bool, int]]
    operand: Operand

    @property
    def place(self) -> str:
        """What a person calls the argument."""
        return f"{_NAMES[self.is_output]} {self.number} of the request"


ALLOCATION = Rules[Allocation]()
ROLE = Rules[RoleOf]()
ROLES = Rules[Allocation]()
TARGET = Rules[Memory]()
COPY_FROM = Rules[CopyFrom]()
USE = Rules[Use]()


def validate_allocation(allocation: Allocation) -> Operand:
    """Judges an allocation.

    Returns:
        the operand that the buffer can hold: that of its roles, with all that is known of the shape.

    Raises:
        HalError: INVALID_ARGUMENT, V-WIRE-03 or V-ALLOC-01 to 06; GENERAL_FAILURE, V-ALLOC-07.
    """
    ALLOCATION.check(allocation, lambda: "the allocation")
    for role in allocation.roles:
        ROLE.check(RoleOf(allocation, role), lambda role=role: role.name)  # type: ignore[misc]
    ROLES.check(allocation, lambda: "the allocation")
    operand = allocation.operand(allocation.roles[0])
    if is_extension(operand.type):
        raise general_failure(f"buffers of {type_name(operand.type)} are not supported", "V-ALLOC-07")
    dimensions = allocation.desc.dimensions
    for role in allocation.roles:
        dimensions = merged(dimensions, allocation.operand(role).dimensions)
    hold_rank(len(dimensions), "the buffer")
    return replace(operand, dimensions=dimensions)


def validate_copy_from(operand: Operand, memory: Memory | UnsetUnion, dimensions: Dimensions) -> Dimensions:
    """Judges how a buffer is to be filled.

    Returns:
        the shape that it then has.

    Raises:
        HalError: INVALID_ARGUMENT, V-WIRE-03, -07, V-POOL or V-TOKEN-05.
    """
    COPY_FROM.check(CopyFrom(operand, _valid(memory), dimensions), lambda: "the copy into the buffer")
    return dimensions or operand.dimensions


def validate_copy_to(memory: Memory | UnsetUnion, size: int | None) -> Memory:
    """Judges memory that a buffer's value is to be written to. `size`: bytes of the buffer, None while unknown.

    Raises:
        HalError: INVALID_ARGUMENT, V-WIRE-07, V-POOL or V-TOKEN-05.
    """
    memory = _valid(memory)
    TARGET.check(memory, lambda: "the memory")
    if size is not None:
        COPY_TO.check((memory, size), lambda: "the copy out of the buffer")
    return memory


def merged(one: Dimensions, other: Dimensions) -> Dimensions:
    """What two shapes that do not contradict each other tell together; 0 and () are unknown."""
    if not one or not other:
        return one or other
    return tuple(a or b for a, b in zip(one, other, strict=True))


def contradiction(found: Dimensions, known: Dimensions) -> str | None:
    """Complains about the first thing in which one shape contradicts another."""
    if not found or not known:
        return None
    if len(found) != len(known):
        return f"rank {len(found)} instead of {len(known)}"
    for axis, (length, wanted) in enumerate(zip(found, known, strict=True)):
        if length != wanted and length and wanted:
            return f"dimension {axis} of {length} instead of {wanted}"
    return None


def _valid(memory: Memory | UnsetUnion) -> Memory:
    wire.POOL.check(memory, lambda: "the memory")
    POOL.check(memory, lambda: "the memory")
    assert isinstance(memory, Memory)
    return memory


# ---- Allocation -----------------------------------------------------------------------------------------


@ALLOCATION.forbid("V-WIRE-03")
def _negative_dimension(allocation: Allocation) -> str | None:
    return negative("dimension", allocation.desc.dimensions)


@ALLOCATION.forbid("V-ALLOC-01")
def _no_prepared_model(allocation: Allocation) -> str | None:
    return None if allocation.models else "names no prepared model"


@ALLOCATION.forbid("V-ALLOC-01")
def _prepared_model_of_another_device(allocation: Allocation) -> str | None:
    models = list(allocation.models)
    return f"has no prepared model of this device at index {models.index(None)}" if None in models else None


@ALLOCATION.forbid("V-ALLOC-02")
def _no_role(allocation: Allocation) -> str | None:
    return None if allocation.roles else "has no role"


@ROLE.forbid("V-ALLOC-03")
def _model_that_is_not_there(subject: RoleOf) -> str | None:
    index, count = subject.role.role.model_index, len(subject.allocation.models)
    return None if 0 <= index < count else f"has model index {index} of {count} models"


@ROLE.forbid("V-ALLOC-03")
def _end_that_is_not_there(subject: RoleOf) -> str | None:
    index, count = subject.role.role.io_index, len(subject.allocation.ends(subject.role))
    return None if 0 <= index < count else f"has io index {index} of {count} {_NAMES[subject.role.is_output]}s"


@ROLE.forbid("V-ALLOC-03")
def _impossible_probability(subject: RoleOf) -> str | None:
    probability = subject.role.role.probability
    return None if 0 < probability <= 1 else f"has probability {probability}, must be > 0 and at most 1"


@ROLES.forbid("V-ALLOC-04")
def _role_given_twice(allocation: Allocation) -> str | None:
    models = allocation.models
    ends = ((id(models[r.role.model_index]), r.is_output, r.role.io_index) for r in allocation.roles)
    twice = first_repeated(ends)
    return None if twice is None else f"names {_NAMES[twice[1]]} {twice[2]} of one prepared model twice"


@ROLES.forbid("V-ALLOC-05")
def _operands_that_differ(allocation: Allocation) -> str | None:
    first, *others = allocation.roles
    wanted = allocation.operand(first)
    for role in others:
        found = allocation.operand(role)
        for field in ("type", "scale", "zero_point", *(() if is_extension(wanted.type) else ("extra_params",))):
            if getattr(found, field) != getattr(wanted, field):
                what = field.replace("_", " ")
                return f"has {role.name} with {what} {getattr(found, field)}, {first.name} has {getattr(wanted, field)}"
    return None


@ROLES.forbid("V-ALLOC-06")
def _shapes_that_contradict(allocation: Allocation) -> str | None:
    known, before = allocation.desc.dimensions, "the descriptor"
    for role in allocation.roles:
        found = allocation.operand(role).dimensions
        if complaint := contradiction(found, known):
            return f"has {role.name} with {complaint} in {before}"
        known, before = merged(known, found), "what comes before"
    return None


@ROLES.forbid("V-ALLOC-06")
def _scalar_with_dimensions(allocation: Allocation) -> str | None:
    if allocation.operand(allocation.roles[0]).type in SCALAR_TYPES and allocation.desc.dimensions:
        return "gives dimensions to a scalar"
    return None


# ---- Copies ---------------------------------------------------------------------------------------------


@COPY_FROM.forbid("V-WIRE-03")
def _negative_dimension_of_a_copy(subject: CopyFrom) -> str | None:
    return negative("dimension", subject.dimensions)


@COPY_FROM.forbid("V-TOKEN-05")
def _dimensions_for_a_scalar(subject: CopyFrom) -> str | None:
    return "has dimensions, but a scalar" if subject.dimensions and subject.operand.type in SCALAR_TYPES else None


@COPY_FROM.forbid("V-TOKEN-05")
def _dimensions_left_open(subject: CopyFrom) -> str | None:
    if subject.dimensions or is_fully_specified(subject.operand.type, subject.operand.dimensions):
        return None
    return f"needs dimensions: the buffer was allocated with {list(subject.operand.dimensions)}"


@COPY_FROM.forbid("V-TOKEN-05")
def _dimension_of_zero(subject: CopyFrom) -> str | None:
    if 0 not in subject.dimensions:
        return None
    return f"has dimension {subject.dimensions.index(0)} unknown: dimensions are given whole or not at all"


@COPY_FROM.forbid("V-TOKEN-05")
def _another_shape_than_the_buffer(subject: CopyFrom) -> str | None:
    complaint = contradiction(subject.dimensions, subject.operand.dimensions)
    return f"has {complaint}" if complaint else None


@COPY_FROM.forbid("V-TOKEN-05")
def _memory_of_another_size(subject: CopyFrom) -> str | None:
    size = bounded_byte_size(subject.operand.type, subject.dimensions or subject.operand.dimensions)
    return None if subject.memory.size == size else f"has memory of {subject.memory.size} bytes, must be {size}"


@TARGET.forbid("")
def _read_only_target(memory: Memory) -> str | None:
    return None if memory.prot & PROT_WRITE and memory.buffer.flags.writeable else "is read-only"


COPY_TO = Rules[tuple[Memory, int]]()


@COPY_TO.forbid("V-TOKEN-05")
def _target_of_another_size(subject: tuple[Memory, int]) -> str | None:
    memory, size = subject
    return None if memory.size == size else f"has memory of {memory.size} bytes, must be {size}"


# ---- Use in a request -----------------------------------------------------------------------------------


@USE.forbid("V-TOKEN-03")
def _output_used_twice(use: Use) -> str | None:
    return "lies in a buffer that the request uses twice" if use.is_output and use.times > 1 else None


@USE.forbid("V-TOKEN-01")
def _role_not_allocated(use: Use) -> str | None:
    if (use.is_output, use.number) in use.roles:
        return None
    return f"lies in a buffer that was not allocated for {_NAMES[use.is_output]} {use.number} of this prepared model"


@USE.forbid("V-TOKEN-04")
def _dimensions_against_the_buffer(use: Use) -> str | None:
    complaint = contradiction(use.dimensions, use.operand.dimensions)
    return f"has {complaint} in its buffer" if complaint else None
