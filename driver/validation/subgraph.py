"""Subgraphs, main and referenced alike (V-SUBGRAPH).

Inputs and outputs may both be none (V-SUBGRAPH-03 is not enforced), and nothing need be read (V-SUBGRAPH-12).
"""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import partial

from driver.validation.operand import check_operand
from driver.validation.operation import check_operation
from driver.validation.place import operation_place, subgraph_place
from driver.validation.repeat import first_repeated
from driver.validation.rule import Rules
from nnhal.types import Model, Operand, OperandLifeTime, Operation, Subgraph

_WRITTEN = (OperandLifeTime.TEMPORARY_VARIABLE, OperandLifeTime.SUBGRAPH_OUTPUT)


@dataclass(frozen=True, slots=True)
class IndexList:
    """The input or output indexes of a subgraph, and the lifetime that belongs to them."""

    operands: Sequence[Operand]
    indexes: Sequence[int]
    lifetime: OperandLifeTime


@dataclass(frozen=True, slots=True)
class Turn:
    """An operation when its turn comes. `written`: operands that earlier ones wrote."""

    operands: Sequence[Operand]
    operation: Operation
    written: Set[int]


@dataclass(frozen=True, slots=True)
class End:
    """A subgraph after its last operation. `written`: operands that were written."""

    operands: Sequence[Operand]
    written: Set[int]


SUBGRAPH = Rules[Subgraph]()
INDEXES = Rules[IndexList]()
TURN = Rules[Turn]()
END = Rules[End]()


def check_subgraph(model: Model, number: int) -> None:
    """Judges subgraph `number` (0: main, i + 1: referenced[i]); those that it refers to are valid.

    Raises:
        HalError: INVALID_ARGUMENT, V-SUBGRAPH-*, V-OPERAND-* or V-OPERATION-*.
    """
    subgraph = model.referenced[number - 1] if number else model.main
    name = subgraph_place(number)
    SUBGRAPH.check(subgraph, lambda: name)
    for index, operand in enumerate(subgraph.operands):
        check_operand(model, number, index, operand)
    for index in range(len(subgraph.operations)):
        check_operation(model, subgraph, number, index)
    inputs = IndexList(subgraph.operands, subgraph.input_indexes, OperandLifeTime.SUBGRAPH_INPUT)
    outputs = IndexList(subgraph.operands, subgraph.output_indexes, OperandLifeTime.SUBGRAPH_OUTPUT)
    INDEXES.check(inputs, lambda: f"input list of {name}")
    INDEXES.check(outputs, lambda: f"output list of {name}")
    _check_order(subgraph, number)


def _check_order(subgraph: Subgraph, number: int) -> None:
    written: set[int] = set()
    for index, operation in enumerate(subgraph.operations):
        TURN.check(Turn(subgraph.operands, operation, written), partial(operation_place, number, index, operation))
        written.update(operation.outputs)
    END.check(End(subgraph.operands, written), partial(subgraph_place, number))


@SUBGRAPH.forbid("V-SUBGRAPH-01")
def _no_operands(subgraph: Subgraph) -> str | None:
    return None if subgraph.operands else "has no operands"


@SUBGRAPH.forbid("V-SUBGRAPH-02")
def _no_operations(subgraph: Subgraph) -> str | None:
    return None if subgraph.operations else "has no operations"


@INDEXES.forbid("V-SUBGRAPH-04")
def _index_that_is_no_operand(subject: IndexList) -> str | None:
    highest = max(subject.indexes, default=-1)
    return None if highest < len(subject.operands) else f"names operand {highest} of {len(subject.operands)}"


@INDEXES.forbid("V-SUBGRAPH-05")
def _operand_of_another_lifetime(subject: IndexList) -> str | None:
    for index in subject.indexes:
        lifetime = subject.operands[index].lifetime
        if lifetime != subject.lifetime:
            return (
                f"names operand {index} of lifetime {OperandLifeTime(lifetime).name}, must be {subject.lifetime.name}"
            )
    return None


@INDEXES.forbid("V-SUBGRAPH-06")
def _repeated_index(subject: IndexList) -> str | None:
    index = first_repeated(subject.indexes)
    return None if index is None else f"names operand {index} twice"


@INDEXES.forbid("V-SUBGRAPH-07")
def _operand_that_is_left_out(subject: IndexList) -> str | None:
    named = set(subject.indexes)
    for index, operand in enumerate(subject.operands):
        if operand.lifetime == subject.lifetime and index not in named:
            return f"leaves out operand {index} of lifetime {subject.lifetime.name}"
    return None


@TURN.forbid("V-SUBGRAPH-08")
def _read_before_written(subject: Turn) -> str | None:
    for index in subject.operation.inputs:
        if index not in subject.written and subject.operands[index].lifetime in _WRITTEN:
            return f"reads operand {index}, which no earlier operation has written"
    return None


@TURN.forbid("V-SUBGRAPH-10")
def _write_to_a_given_operand(subject: Turn) -> str | None:
    for index in subject.operation.outputs:
        lifetime = subject.operands[index].lifetime
        if lifetime not in _WRITTEN:
            return f"writes operand {index} of lifetime {OperandLifeTime(lifetime).name}"
    return None


@TURN.forbid("V-SUBGRAPH-09")
def _written_twice(subject: Turn) -> str | None:
    index = first_repeated(subject.operation.outputs)
    if index is None:
        index = next((index for index in subject.operation.outputs if index in subject.written), None)
    return None if index is None else f"writes operand {index}, which has been written already"


@END.forbid("V-SUBGRAPH-11")
def _never_written(subject: End) -> str | None:
    for index, operand in enumerate(subject.operands):
        if operand.lifetime in _WRITTEN and index not in subject.written:
            return f"has operand {index}, which no operation writes"
    return None
