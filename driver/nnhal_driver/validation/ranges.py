"""Ranges of all numbers and kinds of all unions of a model (V-WIRE), checked before every other rule."""

from collections.abc import Callable
from functools import partial

from nnhal.rules.operand import RANGE_RULES
from nnhal.rules.ranges import negative
from nnhal.rules.rule import Rules
from nnhal.types import Model, Operation, RequestMemoryPool, Subgraph, UnsetUnion
from nnhal_driver.validation.error_location import operand_location, operation_location, subgraph_location

_OEM_OPERATION = 10000

OPERATION_RANGE_RULES = Rules[Operation]()
SUBGRAPH_RANGE_RULES = Rules[Subgraph]()
POOL_KIND_RULES = Rules[RequestMemoryPool]()


def check_ranges(model: Model, proceed: Callable[[], None]) -> None:
    """Check every number and union of a model.

    Raises:
        HalError: INVALID_ARGUMENT, V-WIRE-01 to 07; or what `proceed` raises, which is called between steps.
    """
    for number, subgraph in enumerate(model.subgraphs):
        for index, operand in enumerate(subgraph.operands):
            proceed()
            RANGE_RULES.check(operand, partial(operand_location, number, index, operand))
        for index, operation in enumerate(subgraph.operations):
            proceed()
            OPERATION_RANGE_RULES.check(operation, partial(operation_location, model, number, index))
        SUBGRAPH_RANGE_RULES.check(subgraph, partial(subgraph_location, number))
    for index, pool in enumerate(model.pools):
        POOL_KIND_RULES.check(pool, partial("model pool {}".format, index))


@OPERATION_RANGE_RULES.forbid("V-WIRE-01")
def _negative_type(operation: Operation) -> str | None:
    return "has a negative type" if operation.type < 0 else None


@OPERATION_RANGE_RULES.forbid("V-WIRE-02")
def _oem_type(operation: Operation) -> str | None:
    return "has the OEM type, which version 4 does not support" if operation.type == _OEM_OPERATION else None


@OPERATION_RANGE_RULES.forbid("V-WIRE-03")
def _negative_argument_index(operation: Operation) -> str | None:
    return negative("input index", operation.inputs) or negative("output index", operation.outputs)


@SUBGRAPH_RANGE_RULES.forbid("V-WIRE-03")
def _negative_subgraph_index(subgraph: Subgraph) -> str | None:
    return negative("input index", subgraph.input_indexes) or negative("output index", subgraph.output_indexes)


@POOL_KIND_RULES.forbid("V-WIRE-07")
def _unset_pool(pool: RequestMemoryPool) -> str | None:
    return "is of an unknown kind" if isinstance(pool, UnsetUnion) else None
