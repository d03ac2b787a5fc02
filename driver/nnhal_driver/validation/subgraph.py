"""Subgraphs, main and referenced (V-SUBGRAPH).

A subgraph needs neither inputs nor outputs (V-SUBGRAPH-03 is not enforced). Operands may be unused (V-SUBGRAPH-12).
"""

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import partial

from nnhal.rules.rule import Rules, first_repeated
from nnhal.types import Model, Operand, OperandLifeTime, Operation, Subgraph
from nnhal_driver.validation.error_location import operation_location, subgraph_location
from nnhal_driver.validation.operand import check_operand
from nnhal_driver.validation.operation import check_operation

_WRITTEN_LIFETIMES = (OperandLifeTime.TEMPORARY_VARIABLE, OperandLifeTime.SUBGRAPH_OUTPUT)


@dataclass(frozen=True, slots=True)
class IndexList:
    """The input or output indexes of a subgraph, and the lifetime that their operands must have."""

    operands: Sequence[Operand]
    indexes: Sequence[int]
    lifetime: OperandLifeTime


@dataclass(frozen=True, slots=True)
class OrderedOperation:
    """An operation and the operands that earlier operations write."""

    operands: Sequence[Operand]
    operation: Operation
    written: Set[int]


@dataclass(frozen=True, slots=True)
class WrittenOperands:
    """The operands of a subgraph and those among them that its operations write."""

    operands: Sequence[Operand]
    written: Set[int]


SUBGRAPH_RULES = Rules[Subgraph]()
INDEX_LIST_RULES = Rules[IndexList]()
ORDER_RULES = Rules[OrderedOperation]()
WRITTEN_RULES = Rules[WrittenOperands]()


def check_subgraph(model: Model, number: int, proceed: Callable[[], None]) -> None:
    """Check subgraph `number` (0: main, i + 1: referenced[i]). The subgraphs that it refers to must be valid.

    Raises:
        HalError: INVALID_ARGUMENT, V-SUBGRAPH-*, V-OPERAND-* or V-OPERATION-*; or what `proceed` raises, which is
            called between steps.
    """
    subgraph = model.referenced[number - 1] if number else model.main
    name = subgraph_location(number)
    SUBGRAPH_RULES.check(subgraph, lambda: name)
    for index, operand in enumerate(subgraph.operands):
        proceed()
        check_operand(model, number, index, operand)
    for index in range(len(subgraph.operations)):
        proceed()
        check_operation(model, subgraph, number, index)
    inputs = IndexList(subgraph.operands, subgraph.input_indexes, OperandLifeTime.SUBGRAPH_INPUT)
    outputs = IndexList(subgraph.operands, subgraph.output_indexes, OperandLifeTime.SUBGRAPH_OUTPUT)
    INDEX_LIST_RULES.check(inputs, lambda: f"input list of {name}")
    INDEX_LIST_RULES.check(outputs, lambda: f"output list of {name}")
    written: set[int] = set()
    for index, operation in enumerate(subgraph.operations):
        proceed()
        subject = OrderedOperation(subgraph.operands, operation, written)
        ORDER_RULES.check(subject, partial(operation_location, model, number, index))
        written.update(operation.outputs)
    WRITTEN_RULES.check(WrittenOperands(subgraph.operands, written), lambda: name)


@SUBGRAPH_RULES.forbid("V-SUBGRAPH-01")
def _no_operands(subgraph: Subgraph) -> str | None:
    return None if subgraph.operands else "has no operands"


@SUBGRAPH_RULES.forbid("V-SUBGRAPH-02")
def _no_operations(subgraph: Subgraph) -> str | None:
    return None if subgraph.operations else "has no operations"


@INDEX_LIST_RULES.forbid("V-SUBGRAPH-04")
def _unknown_operand(subject: IndexList) -> str | None:
    highest = max(subject.indexes, default=-1)
    return None if highest < len(subject.operands) else f"names operand {highest} of {len(subject.operands)}"


@INDEX_LIST_RULES.forbid("V-SUBGRAPH-05")
def _wrong_lifetime(subject: IndexList) -> str | None:
    for index in subject.indexes:
        lifetime = subject.operands[index].lifetime
        if lifetime != subject.lifetime:
            return (
                f"names operand {index} of lifetime {OperandLifeTime(lifetime).name}, must be {subject.lifetime.name}"
            )
    return None


@INDEX_LIST_RULES.forbid("V-SUBGRAPH-06")
def _repeated_index(subject: IndexList) -> str | None:
    index = first_repeated(subject.indexes)
    return None if index is None else f"names operand {index} twice"


@INDEX_LIST_RULES.forbid("V-SUBGRAPH-07")
def _missing_operand(subject: IndexList) -> str | None:
    indexes = set(subject.indexes)
    for index, operand in enumerate(subject.operands):
        if operand.lifetime == subject.lifetime and index not in indexes:
            return f"leaves out operand {index} of lifetime {subject.lifetime.name}"
    return None


@ORDER_RULES.forbid("V-SUBGRAPH-08")
def _read_before_written(subject: OrderedOperation) -> str | None:
    for index in subject.operation.inputs:
        if index not in subject.written and subject.operands[index].lifetime in _WRITTEN_LIFETIMES:
            return f"reads operand {index}, which no earlier operation has written"
    return None


@ORDER_RULES.forbid("V-SUBGRAPH-10")
def _write_to_a_read_only_operand(subject: OrderedOperation) -> str | None:
    for index in subject.operation.outputs:
        lifetime = subject.operands[index].lifetime
        if lifetime not in _WRITTEN_LIFETIMES:
            return f"writes operand {index} of lifetime {OperandLifeTime(lifetime).name}"
    return None


@ORDER_RULES.forbid("V-SUBGRAPH-09")
def _written_twice(subject: OrderedOperation) -> str | None:
    index = first_repeated(subject.operation.outputs)
    if index is None:
        index = next((index for index in subject.operation.outputs if index in subject.written), None)
    return None if index is None else f"writes operand {index}, which has been written already"


@WRITTEN_RULES.forbid("V-SUBGRAPH-11")
def _never_written(subject: WrittenOperands) -> str | None:
    for index, operand in enumerate(subject.operands):
        if operand.lifetime in _WRITTEN_LIFETIMES and index not in subject.written:
            return f"has operand {index}, which no operation writes"
    return None
