"""Operands of every subgraph, used or not (V-OPERAND): their description and the location of their value.

The length of a value of an extension type is not checked (V-OPERAND-06). Offsets need not be aligned (V-OPERAND-21).
"""

from dataclasses import dataclass
from functools import partial

from nnhal.rules.operand import CONSTANT_LIFETIMES, OPERAND_RULES, bounded_byte_size
from nnhal.rules.rule import Rules
from nnhal.types import DataLocation, Memory, Model, Operand, OperandLifeTime, is_extension
from nnhal_driver.validation.error_location import operand_location

_LIFETIMES_WITHOUT_LOCATION = (
    OperandLifeTime.TEMPORARY_VARIABLE,
    OperandLifeTime.SUBGRAPH_INPUT,
    OperandLifeTime.SUBGRAPH_OUTPUT,
    OperandLifeTime.NO_VALUE,
)


@dataclass(frozen=True, slots=True)
class ModelOperand:
    """An operand and the model that holds its value."""

    model: Model
    operand: Operand


LOCATION_RULES = Rules[ModelOperand]()


def check_operand(model: Model, number: int, index: int, operand: Operand) -> None:
    """Check operand `index` of subgraph `number`.

    Raises:
        HalError: INVALID_ARGUMENT, V-OPERAND-01 to 20.
    """
    name = partial(operand_location, number, index, operand)
    OPERAND_RULES.check(operand, name)
    LOCATION_RULES.check(ModelOperand(model, operand), name)


@LOCATION_RULES.forbid("V-OPERAND-15")
def _padding(subject: ModelOperand) -> str | None:
    padding = subject.operand.location.padding
    return f"has padding {padding}, must be 0" if padding else None


@LOCATION_RULES.forbid("V-OPERAND-16")
def _location_of_a_variable(subject: ModelOperand) -> str | None:
    if subject.operand.lifetime not in _LIFETIMES_WITHOUT_LOCATION:
        return None
    return _nonzero_field(subject.operand.location, "pool_index", "offset", "length")


@LOCATION_RULES.forbid("V-OPERAND-20")
def _wrong_constant_length(subject: ModelOperand) -> str | None:
    operand = subject.operand
    if operand.lifetime not in CONSTANT_LIFETIMES or is_extension(operand.type):
        return None
    size = bounded_byte_size(operand.type, operand.dimensions)
    return None if operand.location.length == size else f"has length {operand.location.length}, must be {size}"


@LOCATION_RULES.forbid("V-OPERAND-17")
def _copy_outside_the_operand_values(subject: ModelOperand) -> str | None:
    if subject.operand.lifetime != OperandLifeTime.CONSTANT_COPY:
        return None
    location = subject.operand.location
    size = memoryview(subject.model.operand_values).nbytes
    return _nonzero_field(location, "pool_index") or _past_end(location, size, "the operand values")


@LOCATION_RULES.forbid("V-OPERAND-18")
def _constant_outside_its_pool(subject: ModelOperand) -> str | None:
    if subject.operand.lifetime != OperandLifeTime.CONSTANT_POOL:
        return None
    location, pools = subject.operand.location, subject.model.pools
    if location.pool_index >= len(pools):
        return f"has pool index {location.pool_index} of {len(pools)} pools"
    pool = pools[location.pool_index]
    assert isinstance(pool, Memory), "V-WIRE-07 rejects unset unions"
    return _past_end(location, pool.size, f"pool {location.pool_index}")


@LOCATION_RULES.forbid("V-OPERAND-19")
def _reference_to_unknown_subgraph(subject: ModelOperand) -> str | None:
    if subject.operand.lifetime != OperandLifeTime.SUBGRAPH:
        return None
    location, count = subject.operand.location, len(subject.model.referenced)
    if location.offset >= count:
        return f"refers to subgraph {location.offset} of {count} referenced subgraphs"
    return _nonzero_field(location, "pool_index", "length")


def _nonzero_field(location: DataLocation, *names: str) -> str | None:
    """Return a message about the first of these fields that is not 0, else None."""
    for name in names:
        if value := getattr(location, name):
            return f"has {name.replace('_', ' ')} {value}, must be 0"
    return None


def _past_end(location: DataLocation, size: int, memory: str) -> str | None:
    end = location.offset + location.length
    return f"ends at byte {end} of {memory}, which has {size} bytes" if end > size else None
