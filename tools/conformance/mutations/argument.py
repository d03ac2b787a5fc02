"""Mutations of the number of arguments (VALMODEL-18, -20 to -23; checklist 4.6 to 4.8)."""

from collections.abc import Callable, Iterator
from functools import partial

from nnhal.types import OperandLifeTime, OperandType, operation_name
from nnhal.v1 import types_pb2
from tools.conformance.mutations import Base, Edit, mutation, without

SEVERAL_OUTPUT_COUNTS = frozenset(
    {
        "SPLIT",
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        "UNIDIRECTIONAL_SEQUENCE_RNN",
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        "BIDIRECTIONAL_SEQUENCE_RNN",
    }
)
"""Operations whose outputs may be removed (checklist 4.6)."""

_POOLING_LIKE = ("CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
_SPACE = ("SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "BATCH_TO_SPACE_ND")


def _last_of(*counts: int) -> Callable[[int, int], bool]:
    """The last input, where there are so many."""
    return lambda n, i: n in counts and i == n - 1


def _none_of(n: int, i: int) -> bool:
    return False


REMOVABLE_INPUTS: dict[str, Callable[[int, int], bool]] = {
    "CONCATENATION": lambda n, i: n > 2 and i != n - 1,
    "DEPTHWISE_CONV_2D": _last_of(12, 9),
    **dict.fromkeys(_POOLING_LIKE, _last_of(11, 8)),
    "RESIZE_BILINEAR": lambda n, i: n >= 4 and i >= 3,
    "RESIZE_NEAREST_NEIGHBOR": lambda n, i: n >= 5 and i >= 3,
    **dict.fromkeys(_SPACE, _last_of(3)),
    "SPACE_TO_BATCH_ND": _last_of(4),
    "L2_NORMALIZATION": _last_of(2),
    "LOCAL_RESPONSE_NORMALIZATION": _last_of(6),
    "SOFTMAX": _last_of(3),
    "PACK": lambda n, i: n > 2 and i != 0,
}
"""Whether the operation with `n` inputs may lack input `i` (checklist 4.7)."""

MORE_INPUTS: dict[str, Callable[[int], bool]] = {
    "L2_NORMALIZATION": lambda n: n == 1,
    "LOCAL_RESPONSE_NORMALIZATION": lambda n: n == 5,
    "SOFTMAX": lambda n: n == 2,
    "RESIZE_BILINEAR": lambda n: n < 6,
    "RESIZE_NEAREST_NEIGHBOR": lambda n: n < 6,
}
"""Whether the operation with `n` inputs may have an INT32 more (checklist 4.8)."""


@mutation("VALMODEL-18")
def operand_removed(base: Base) -> Iterator[Edit]:
    """Removes each operand that is read, and every mention of it.

    Indexes above it stay as they are, as in the vendor test suite, whose decrement has no effect: so references move on
    to the next operand, and the highest one is out of range. With a decrement a CONCATENATION would stay valid.
    """
    for i in range(len(base.operands)):
        if base.consumers[i] and not SEVERAL_OUTPUT_COUNTS & set(base.producers(i)):
            yield Edit(f"{base.operand_name(i)} removed", partial(_remove_operand, operand=i))


def _remove_operand(model: types_pb2.Model, *, operand: int) -> None:
    main = model.main
    del main.operands[operand]
    lists = [list_ for operation in main.operations for list_ in (operation.inputs, operation.outputs)]
    for list_ in (*lists, main.input_indexes, main.output_indexes):
        list_[:] = [i for i in list_ if i != operand]


@mutation("VALMODEL-20")
def input_missing(base: Base) -> Iterator[Edit]:
    """Removes each input of each operation that needs it."""
    for n, operation in enumerate(base.operations):
        count = len(operation.inputs)
        removable = REMOVABLE_INPUTS.get(operation_name(int(operation.type)), _none_of)
        for k in range(count):
            if not removable(count, k):
                change = partial(_remove_argument, operation=n, name="inputs", position=k)
                yield Edit(f"input {k} of {count} of {base.operation_name(n)} removed", change)


@mutation("VALMODEL-21")
def output_missing(base: Base) -> Iterator[Edit]:
    """Removes each output of each operation."""
    for n, operation in enumerate(base.operations):
        for k in range(len(operation.outputs)):
            change = partial(_remove_argument, operation=n, name="outputs", position=k)
            yield Edit(f"output {k} of {base.operation_name(n)} removed", change)


def _remove_argument(model: types_pb2.Model, *, operation: int, name: str, position: int) -> None:
    indexes = getattr(model.main.operations[operation], name)
    indexes[:] = without(list(indexes), position)


@mutation("VALMODEL-22")
def input_too_many(base: Base) -> Iterator[Edit]:
    """Gives each operation that cannot have one another INT32 input of the model."""
    for n, operation in enumerate(base.operations):
        may_have_more = MORE_INPUTS.get(operation_name(int(operation.type)))
        if may_have_more is None or not may_have_more(len(operation.inputs)):
            yield Edit(f"{base.operation_name(n)} with another input", partial(_add_input, operation=n))


def _add_input(model: types_pb2.Model, *, operation: int) -> None:
    index = _add_int32(model.main, OperandLifeTime.SUBGRAPH_INPUT)
    model.main.input_indexes.append(index)
    model.main.operations[operation].inputs.append(index)


@mutation("VALMODEL-23")
def output_too_many(base: Base) -> Iterator[Edit]:
    """Lets each operation write another INT32 output of the model."""
    for n in range(len(base.operations)):
        yield Edit(f"{base.operation_name(n)} with another output", partial(_add_output, operation=n))


def _add_output(model: types_pb2.Model, *, operation: int) -> None:
    index = _add_int32(model.main, OperandLifeTime.SUBGRAPH_OUTPUT)
    model.main.output_indexes.append(index)
    model.main.operations[operation].outputs.append(index)


def _add_int32(main: types_pb2.Subgraph, lifetime: OperandLifeTime) -> int:
    main.operands.add(type=int(OperandType.INT32), lifetime=int(lifetime))
    return len(main.operands) - 1
