"""Arguments of a request: their location (V-REQARG) and their operand in the model (V-REQMODEL)."""

from collections.abc import Sequence
from dataclasses import dataclass

from nnhal.rules.operand import MAXIMUM_SIZE
from nnhal.rules.ranges import negative, outside_location_range
from nnhal.rules.rule import Rules
from nnhal.types import (
    PROT_WRITE,
    DataLocation,
    Memory,
    RequestArgument,
    RequestMemoryPool,
    ReturnedPool,
    is_extension,
)
from nnhal_driver.extension_types import ValueType
from nnhal_driver.validation.pool import pool_size

_NO_LOCATION = DataLocation()


@dataclass(frozen=True, slots=True)
class LocatedArgument:
    """An argument with a value, and the pools of its request."""

    argument: RequestArgument
    pools: Sequence[RequestMemoryPool]
    is_output: bool
    fenced: bool

    @property
    def pool(self) -> RequestMemoryPool:
        """The pool of the argument, whose index must be valid."""
        return self.pools[self.argument.location.pool_index]


@dataclass(frozen=True, slots=True)
class ArgumentOfOperand:
    """An argument with a value, and the type of its operand in the model."""

    argument: RequestArgument
    type: ValueType
    is_output: bool
    fenced: bool


ARGUMENT_RANGE_RULES = Rules[RequestArgument]()
OMITTED_ARGUMENT_RULES = Rules[RequestArgument]()
ARGUMENT_LOCATION_RULES = Rules[LocatedArgument]()
OPERAND_MATCH_RULES = Rules[ArgumentOfOperand]()


# ---- Argument alone -------------------------------------------------------------------------------------


@ARGUMENT_RANGE_RULES.forbid("V-REQARG-01")
def _number_out_of_range(argument: RequestArgument) -> str | None:
    return negative("dimension", argument.dimensions) or outside_location_range(argument.location)


@OMITTED_ARGUMENT_RULES.forbid("V-REQARG-02")
def _omitted_with_location(argument: RequestArgument) -> str | None:
    if argument.has_no_value and (argument.location != _NO_LOCATION or argument.dimensions):
        return "has no value, so its location must be 0 and its dimensions empty"
    return None


# ---- Argument in its pool -------------------------------------------------------------------------------


@ARGUMENT_LOCATION_RULES.forbid("V-REQARG-03")
def _unknown_pool(subject: LocatedArgument) -> str | None:
    index = subject.argument.location.pool_index
    return f"has pool index {index} of {len(subject.pools)} pools" if index >= len(subject.pools) else None


@ARGUMENT_LOCATION_RULES.forbid("V-REQARG-04")
def _region_outside_its_pool(subject: LocatedArgument) -> str | None:
    location = subject.argument.location
    end, size = location.offset + location.length + location.padding, pool_size(subject.pool)
    if end <= size:
        return None
    if size == 0:
        return f"uses the whole of pool {location.pool_index}, so its offset, length and padding must be 0"
    return f"ends at byte {end} of pool {location.pool_index}, which has {size} bytes"


@ARGUMENT_LOCATION_RULES.forbid("V-REQARG-05")
def _empty_region(subject: LocatedArgument) -> str | None:
    if subject.argument.location.length > 0 or pool_size(subject.pool) == 0:
        return None
    return "has length 0, must be > 0"


@ARGUMENT_LOCATION_RULES.forbid("")
def _input_in_a_returned_pool(subject: LocatedArgument) -> str | None:
    if subject.is_output or not isinstance(subject.pool, ReturnedPool):
        return None
    return "is in a returned pool, which can only hold outputs"


@ARGUMENT_LOCATION_RULES.forbid("")
def _output_in_read_only_memory(subject: LocatedArgument) -> str | None:
    if not subject.is_output or not isinstance(subject.pool, Memory):
        return None
    writable = subject.pool.prot & PROT_WRITE and subject.pool.buffer.flags.writeable
    return None if writable else f"is in pool {subject.argument.location.pool_index}, which is read-only"


@ARGUMENT_LOCATION_RULES.forbid("")
def _fenced_output_in_a_returned_pool(subject: LocatedArgument) -> str | None:
    if not subject.fenced or not isinstance(subject.pool, ReturnedPool):
        return None
    return "is in a returned pool, which a fenced execution cannot return"


# ---- Argument and its operand ---------------------------------------------------------------------------


@OPERAND_MATCH_RULES.forbid("V-REQMODEL-08")
def _scalar_with_dimensions(subject: ArgumentOfOperand) -> str | None:
    if subject.argument.dimensions and subject.type.is_scalar:
        return "has dimensions, but is a scalar"
    return None


@OPERAND_MATCH_RULES.forbid("V-REQMODEL-06")
def _partial_dimensions(subject: ArgumentOfOperand) -> str | None:
    if 0 not in subject.argument.dimensions:
        return None
    return f"has dimension {subject.argument.dimensions.index(0)} unknown, must have all dimensions or none"


@OPERAND_MATCH_RULES.forbid("V-REQMODEL-05")
def _dimensions_unlike_the_model(subject: ArgumentOfOperand) -> str | None:
    dimensions, declared = subject.argument.dimensions, subject.type.operand.dimensions
    if not dimensions or not declared:
        return None
    if len(dimensions) != len(declared):
        return f"has rank {len(dimensions)}, but {len(declared)} in the model"
    for axis, (length, expected) in enumerate(zip(dimensions, declared, strict=True)):
        if expected not in (0, length):
            return f"has dimension {axis} of {length}, but {expected} in the model"
    return None


@OPERAND_MATCH_RULES.forbid("V-REQMODEL-03")
def _input_of_unknown_shape(subject: ArgumentOfOperand) -> str | None:
    return None if subject.is_output else _unknown_shape(subject)


@OPERAND_MATCH_RULES.forbid("V-REQMODEL-04")
def _fenced_output_of_unknown_shape(subject: ArgumentOfOperand) -> str | None:
    return _unknown_shape(subject) if subject.is_output and subject.fenced else None


@OPERAND_MATCH_RULES.forbid("V-REQMODEL-07")
def _wrong_length(subject: ArgumentOfOperand) -> str | None:
    type_, length = subject.type, subject.argument.location.length
    dimensions = subject.argument.dimensions or type_.operand.dimensions
    if is_extension(type_.operand.type) and type_.extension is None:
        return None
    if length == 0 or not type_.is_fully_specified(dimensions):
        return None
    size = type_.byte_size(dimensions)
    if size is None:
        return f"has a shape of more than {MAXIMUM_SIZE} bytes"
    return None if length == size else f"has length {length}, must be {size}"


def _unknown_shape(subject: ArgumentOfOperand) -> str | None:
    """Return a message if neither the model nor the request determines the shape, else None."""
    declared = subject.type.operand.dimensions
    if subject.argument.dimensions or (0 not in declared and subject.type.is_fully_specified(declared)):
        return None
    return f"has dimensions {declared} in the model and none in the request, must be fully specified"
