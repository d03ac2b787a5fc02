"""Wire level: what must hold before a number means anything (V-WIRE); judged for the whole model before all else."""

from collections.abc import Sequence
from functools import partial

from driver.validation.place import operand_place, operation_place, subgraph_place
from driver.validation.rule import Rules
from nnhal.types import (
    DataLocation,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    RequestMemoryPool,
    Subgraph,
    SymmPerChannelQuantParams,
    UnsetUnion,
)

MAXIMUM_LOCATION = 2**32 - 1

_OEM_OPERANDS = (10000, 10001)
_OEM_OPERATION = 10000
_LIFETIMES = frozenset(map(int, OperandLifeTime))

OPERAND = Rules[Operand]()
OPERATION = Rules[Operation]()
SUBGRAPH = Rules[Subgraph]()
POOL = Rules[RequestMemoryPool]()


def check_wire(model: Model) -> None:
    """Judges every number and union of a model.

    Raises:
        HalError: INVALID_ARGUMENT, V-WIRE-01 to 07.
    """
    for number, subgraph in enumerate(model.subgraphs):
        for index, operand in enumerate(subgraph.operands):
            OPERAND.check(operand, partial(operand_place, number, index, operand))
        for index, operation in enumerate(subgraph.operations):
            OPERATION.check(operation, partial(operation_place, number, index, operation))
        SUBGRAPH.check(subgraph, partial(subgraph_place, number))
    for index, pool in enumerate(model.pools):
        POOL.check(pool, partial("model pool {}".format, index))


def negative(name: str, numbers: Sequence[int]) -> str | None:
    """Complains about the lowest of some numbers when it is below 0."""
    lowest = min(numbers, default=0)
    return f"has {name} {lowest}, must be >= 0" if lowest < 0 else None


def outside_location_range(location: DataLocation) -> str | None:
    """Complains about a location that no pool can have (V-WIRE-04)."""
    if location.pool_index < 0:
        return f"has pool index {location.pool_index}, must be >= 0"
    for name in ("offset", "length", "padding"):
        value = getattr(location, name)
        if not 0 <= value <= MAXIMUM_LOCATION:
            return f"has {name} {value}, must be 0 to {MAXIMUM_LOCATION}"
    return None


@OPERAND.forbid("V-WIRE-01")
def _negative_operand_type(operand: Operand) -> str | None:
    return "has a negative type" if operand.type < 0 else None


@OPERAND.forbid("V-WIRE-02")
def _oem_operand_type(operand: Operand) -> str | None:
    return "has a type of the old vendor types" if operand.type in _OEM_OPERANDS else None


@OPERAND.forbid("V-WIRE-03")
def _negative_dimension(operand: Operand) -> str | None:
    return negative("dimension", operand.dimensions)


@OPERAND.forbid("V-WIRE-04")
def _operand_outside_location_range(operand: Operand) -> str | None:
    return outside_location_range(operand.location)


@OPERAND.forbid("V-WIRE-05")
def _negative_channel_dimension(operand: Operand) -> str | None:
    params = operand.extra_params
    if not isinstance(params, SymmPerChannelQuantParams):
        return None
    return negative("channel dimension", [params.channel_dim])


@OPERAND.forbid("V-WIRE-06")
def _unknown_lifetime(operand: Operand) -> str | None:
    return None if operand.lifetime in _LIFETIMES else f"has lifetime {operand.lifetime}, must be 0 to 6"


@OPERAND.forbid("V-WIRE-07")
def _unset_extra_params(operand: Operand) -> str | None:
    return "has extra parameters of no known kind" if isinstance(operand.extra_params, UnsetUnion) else None


@OPERATION.forbid("V-WIRE-01")
def _negative_operation_type(operation: Operation) -> str | None:
    return "has a negative type" if operation.type < 0 else None


@OPERATION.forbid("V-WIRE-02")
def _oem_operation_type(operation: Operation) -> str | None:
    return "has the type of the old vendor operation" if operation.type == _OEM_OPERATION else None


@OPERATION.forbid("V-WIRE-03")
def _negative_argument_index(operation: Operation) -> str | None:
    return negative("input index", operation.inputs) or negative("output index", operation.outputs)


@SUBGRAPH.forbid("V-WIRE-03")
def _negative_subgraph_index(subgraph: Subgraph) -> str | None:
    return negative("input index", subgraph.input_indexes) or negative("output index", subgraph.output_indexes)


@POOL.forbid("V-WIRE-07")
def _unset_pool(pool: RequestMemoryPool) -> str | None:
    return "is of no known kind" if isinstance(pool, UnsetUnion) else None
