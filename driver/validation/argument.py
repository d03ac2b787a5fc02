"""One argument of a request: where it lies (V-REQARG), and whether it fits the operand behind it (V-REQMODEL)."""

from collections.abc import Sequence
from dataclasses import dataclass

from driver.validation.operand import MAXIMUM_SIZE, bounded_size
from driver.validation.pool import pool_size
from driver.validation.rule import Rules
from driver.validation.wire import negative, outside_location_range
from nnhal.types import (
    DTYPES,
    PROT_WRITE,
    DataLocation,
    ExtensionOperandTypeInformation,
    Memory,
    Operand,
    RequestArgument,
    RequestMemoryPool,
    ReturnedPool,
    is_extension,
    is_fully_specified,
    is_tensor,
)

_NOWHERE = DataLocation()


@dataclass(frozen=True, slots=True)
class ArgumentIn:
    """An argument with a value, and the pools of its request."""

    argument: RequestArgument
    pools: Sequence[RequestMemoryPool]
    is_output: bool
    fenced: bool

    @property
    def pool(self) -> RequestMemoryPool:
        """The pool that it lies in, once its index is known to be good."""
        return self.pools[self.argument.location.pool_index]


@dataclass(frozen=True, slots=True)
class ArgumentOf:
    """An argument with a value, and the operand of the model that it stands for.

    Attributes:
        extension_type: what the device knows of its type, where that belongs to an extension.
    """

    argument: RequestArgument
    operand: Operand
    is_output: bool
    fenced: bool
    extension_type: ExtensionOperandTypeInformation | None = None

    @property
    def may_have_dimensions(self) -> bool:
        """Whether it is a tensor; or may be one, for all that is known."""
        if is_extension(self.operand.type):
            return self.extension_type is None or self.extension_type.is_tensor
        return is_tensor(self.operand.type)

    def is_known(self, dimensions: Sequence[int]) -> bool:
        """Whether dimensions say how many elements it has."""
        if self.extension_type is None:
            return is_fully_specified(self.operand.type, dimensions)
        return 0 not in dimensions and (len(dimensions) > 0 or not self.extension_type.is_tensor)


NUMBERS = Rules[RequestArgument]()
OMITTED = Rules[RequestArgument]()
PLACED = Rules[ArgumentIn]()
FITTING = Rules[ArgumentOf]()


# ---- On its own -----------------------------------------------------------------------------------------


@NUMBERS.forbid("V-REQARG-01")
def _impossible_number(argument: RequestArgument) -> str | None:
    return negative("dimension", argument.dimensions) or outside_location_range(argument.location)


@OMITTED.forbid("V-REQARG-02")
def _omitted_but_placed(argument: RequestArgument) -> str | None:
    if argument.has_no_value and (argument.location != _NOWHERE or argument.dimensions):
        return "has no value, so its location must be 0 and its dimensions empty"
    return None


@PLACED.forbid("V-REQARG-03")
def _pool_that_is_not_there(subject: ArgumentIn) -> str | None:
    index = subject.argument.location.pool_index
    return f"has pool index {index} of {len(subject.pools)} pools" if index >= len(subject.pools) else None


@PLACED.forbid("V-REQARG-04")
def _region_beyond_its_pool(subject: ArgumentIn) -> str | None:
    location = subject.argument.location
    end, size = location.offset + location.length + location.padding, pool_size(subject.pool)
    if end <= size:
        return None
    if size == 0:
        return f"means the whole of pool {location.pool_index}: offset, length and padding must be 0"
    return f"ends at byte {end} of pool {location.pool_index}, which has {size} bytes"


@PLACED.forbid("V-REQARG-05")
def _empty_region(subject: ArgumentIn) -> str | None:
    if subject.argument.location.length > 0 or pool_size(subject.pool) == 0:
        return None
    return "has length 0, must be > 0"


@PLACED.forbid("")
def _input_in_a_returned_pool(subject: ArgumentIn) -> str | None:
    if subject.is_output or not isinstance(subject.pool, ReturnedPool):
        return None
    return "lies in a returned pool, which is for outputs only"


@PLACED.forbid("")
def _output_in_read_only_memory(subject: ArgumentIn) -> str | None:
    if not subject.is_output or not isinstance(subject.pool, Memory):
        return None
    writable = subject.pool.prot & PROT_WRITE and subject.pool.buffer.flags.writeable
    return None if writable else f"lies in pool {subject.argument.location.pool_index}, which is read-only"


@PLACED.forbid("")
def _fenced_output_in_a_returned_pool(subject: ArgumentIn) -> str | None:
    if not subject.fenced or not isinstance(subject.pool, ReturnedPool):
        return None
    return "lies in a returned pool, which a fenced execution cannot return"


# ---- Against its operand --------------------------------------------------------------------------------


@FITTING.forbid("V-REQMODEL-08")
def _scalar_with_dimensions(subject: ArgumentOf) -> str | None:
    if subject.argument.dimensions and not subject.may_have_dimensions:
        return "has dimensions, but is a scalar"
    return None


@FITTING.forbid("V-REQMODEL-06")
def _unknown_dimension_given(subject: ArgumentOf) -> str | None:
    if 0 not in subject.argument.dimensions:
        return None
    return f"has dimension {subject.argument.dimensions.index(0)} unknown: dimensions are given whole or not at all"


@FITTING.forbid("V-REQMODEL-05")
def _dimensions_against_the_model(subject: ArgumentOf) -> str | None:
    given, declared = subject.argument.dimensions, subject.operand.dimensions
    if not given or not declared:
        return None
    if len(given) != len(declared):
        return f"has rank {len(given)}, but {len(declared)} in the model"
    for axis, (length, wanted) in enumerate(zip(given, declared, strict=True)):
        if wanted not in (0, length):
            return f"has dimension {axis} of {length}, but {wanted} in the model"
    return None


@FITTING.forbid("V-REQMODEL-03")
def _input_of_unknown_shape(subject: ArgumentOf) -> str | None:
    return None if subject.is_output else _open_shape(subject)


@FITTING.forbid("V-REQMODEL-04")
def _fenced_output_of_unknown_shape(subject: ArgumentOf) -> str | None:
    return _open_shape(subject) if subject.is_output and subject.fenced else None


@FITTING.forbid("V-REQMODEL-07")
def _length_of_another_shape(subject: ArgumentOf) -> str | None:
    operand, length = subject.operand, subject.argument.location.length
    dimensions, extension_type = subject.argument.dimensions or operand.dimensions, subject.extension_type
    if is_extension(operand.type) and extension_type is None:
        return None
    if length == 0 or not subject.is_known(dimensions):
        return None
    element = extension_type.byte_size if extension_type else DTYPES[operand.type].itemsize
    size = bounded_size(element, dimensions)
    if size is None:
        return f"has a shape of more than {MAXIMUM_SIZE} bytes"
    return None if length == size else f"has length {length}, must be {size}"


def _open_shape(subject: ArgumentOf) -> str | None:
    """Complains about a shape that neither the model nor the request gives."""
    declared = subject.operand.dimensions
    if subject.argument.dimensions or (0 not in declared and subject.is_known(declared)):
        return None
    return f"has dimensions {declared} in the model and none in the request, must be fully specified"
