"""Mutations of the number of arguments (VALMODEL-18, -20 to -23; checklist 4.6 to 4.8)."""

from collections.abc import Callable, Iterator
from functools import partial

from nnhal.types import OperandLifeTime, OperandType, operation_name
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.mutations import Edit, ValidModel, mutation, without_item

VARIABLE_OUTPUT_COUNTS = frozenset(
    {
        "SPLIT",
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        "UNIDIRECTIONAL_SEQUENCE_RNN",
        "BIDIRECTIONAL_SEQUENCE_LSTM",
        "BIDIRECTIONAL_SEQUENCE_RNN",
    }
)
"""Operations with a variable number of outputs: removing one keeps the model valid (checklist 4.6)."""

_CONVOLUTION_OR_POOLING = ("CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D")
_SPACE_AND_DEPTH = ("SPACE_TO_DEPTH", "DEPTH_TO_SPACE", "BATCH_TO_SPACE_ND")


def _last_input_of(*counts: int) -> Callable[[int, int], bool]:
    """Return a predicate that accepts the last input of an operation with one of these numbers of inputs."""
    return lambda n, i: n in counts and i == n - 1


def _never(n: int, i: int) -> bool:
    return False


REMOVABLE_INPUTS: dict[str, Callable[[int, int], bool]] = {
    "CONCATENATION": lambda n, i: n > 2 and i != n - 1,
    "DEPTHWISE_CONV_2D": _last_input_of(12, 9),
    **dict.fromkeys(_CONVOLUTION_OR_POOLING, _last_input_of(11, 8)),
    "RESIZE_BILINEAR": lambda n, i: n >= 4 and i >= 3,
    "RESIZE_NEAREST_NEIGHBOR": lambda n, i: n >= 5 and i >= 3,
    **dict.fromkeys(_SPACE_AND_DEPTH, _last_input_of(3)),
    "SPACE_TO_BATCH_ND": _last_input_of(4),
    "L2_NORMALIZATION": _last_input_of(2),
    "LOCAL_RESPONSE_NORMALIZATION": _last_input_of(6),
    "SOFTMAX": _last_input_of(3),
    "PACK": lambda n, i: n > 2 and i != 0,
}
"""Predicates that tell whether an operation with `n` inputs is valid without input `i` (checklist 4.7)."""

MORE_INPUTS: dict[str, Callable[[int], bool]] = {
    "L2_NORMALIZATION": lambda n: n == 1,
    "LOCAL_RESPONSE_NORMALIZATION": lambda n: n == 5,
    "SOFTMAX": lambda n: n == 2,
    "RESIZE_BILINEAR": lambda n: n < 6,
    "RESIZE_NEAREST_NEIGHBOR": lambda n: n < 6,
}
"""Predicates that tell whether an operation with `n` inputs is valid with another INT32 (checklist 4.8)."""


@mutation("VALMODEL-18")
def removed_operand(model: ValidModel) -> Iterator[Edit]:
    """Remove each operand that is read, and every reference to it.

    Higher indexes stay unchanged. The vendor test suite does the same, because its decrement has no effect. References
    therefore move on to the next operand, and the highest index is out of range. With a decrement, a CONCATENATION
    would stay valid.
    """
    for i in range(len(model.operands)):
        if model.read_counts[i] and not VARIABLE_OUTPUT_COUNTS & set(model.producers(i)):
            yield Edit(f"{model.operand_name(i)} removed", partial(_remove_operand, operand=i))


def _remove_operand(model: types_pb2.Model, *, operand: int) -> None:
    main = model.main
    del main.operands[operand]
    arguments = [indexes for operation in main.operations for indexes in (operation.inputs, operation.outputs)]
    for indexes in (*arguments, main.input_indexes, main.output_indexes):
        indexes[:] = [i for i in indexes if i != operand]


@mutation("VALMODEL-20")
def missing_input(model: ValidModel) -> Iterator[Edit]:
    """Remove each input that its operation requires."""
    for n, operation in enumerate(model.operations):
        count = len(operation.inputs)
        removable = REMOVABLE_INPUTS.get(operation_name(int(operation.type)), _never)
        for k in range(count):
            if not removable(count, k):
                change = partial(_remove_argument, operation=n, name="inputs", position=k)
                yield Edit(f"input {k} of {count} of {model.operation_name(n)} removed", change)


@mutation("VALMODEL-21")
def missing_output(model: ValidModel) -> Iterator[Edit]:
    """Remove each output of each operation."""
    for n, operation in enumerate(model.operations):
        for k in range(len(operation.outputs)):
            change = partial(_remove_argument, operation=n, name="outputs", position=k)
            yield Edit(f"output {k} of {model.operation_name(n)} removed", change)


def _remove_argument(model: types_pb2.Model, *, operation: int, name: str, position: int) -> None:
    indexes = getattr(model.main.operations[operation], name)
    indexes[:] = without_item(list(indexes), position)


@mutation("VALMODEL-22")
def extra_input(model: ValidModel) -> Iterator[Edit]:
    """Add an INT32 model input to each operation that cannot take one more input."""
    for n, operation in enumerate(model.operations):
        may_add_input = MORE_INPUTS.get(operation_name(int(operation.type)))
        if may_add_input is None or not may_add_input(len(operation.inputs)):
            change = partial(_add_argument, operation=n, name="input", lifetime=OperandLifeTime.SUBGRAPH_INPUT)
            yield Edit(f"{model.operation_name(n)} with another input", change)


@mutation("VALMODEL-23")
def extra_output(model: ValidModel) -> Iterator[Edit]:
    """Add an INT32 model output to each operation."""
    for n in range(len(model.operations)):
        change = partial(_add_argument, operation=n, name="output", lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)
        yield Edit(f"{model.operation_name(n)} with another output", change)


def _add_argument(model: types_pb2.Model, *, operation: int, name: str, lifetime: OperandLifeTime) -> None:
    """Add an INT32 to the inputs or outputs of the model and of an operation."""
    model.main.operands.add(type=int(OperandType.INT32), lifetime=int(lifetime))
    for indexes in (getattr(model.main, f"{name}_indexes"), getattr(model.main.operations[operation], f"{name}s")):
        indexes.append(len(model.main.operands) - 1)
