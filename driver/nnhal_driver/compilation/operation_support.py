"""Operations that backends support, without a model: by the type of their leading operand."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from nnhal.operations import SIGNATURES
from nnhal.operations.signature import Argument, ArgumentList
from nnhal.types import Operand, OperandType, Operation, OperationType, Subgraph, is_tensor
from nnhal_driver.backends.api import Backend
from nnhal_driver.backends.boundary.answers import support
from nnhal_driver.graph import Graph

_SCALE = 0.5
"""Scale of quantized operands. Backends support any."""
_SIZE, _MAX_RANK = 4, 4
"""Size of each dimension, and rank of operands that may have any, in the example that backends are asked about."""


class SupportState(Enum):
    """Support of an operation, as far as it is known without a model."""

    YES = "yes"
    """The backend supports an example whose shapes are known, and whose other values are not."""
    DEPENDS = "depends"
    """It depends on shapes and constants."""
    NO = "no"
    """The backend refuses the operation for the same reason with and without shapes."""


_PREFERRED = (SupportState.YES, SupportState.DEPENDS, SupportState.NO)


@dataclass(frozen=True, slots=True)
class OperationSupport:
    """Support of an operation with one type.

    Attributes:
        type: type of the leading operand: the first input that may have several types.
        answers: for each backend, the state and the reason of NO. Empty for IF and WHILE, which the driver runs itself.
    """

    operation: str
    type: str
    answers: Mapping[str, tuple[SupportState, str]]


def list_support(backends: Sequence[Backend]) -> tuple[OperationSupport, ...]:
    """Return the support of all operations of the HAL. Takes less than a second."""
    found = []
    for type_ in OperationType:
        if type_ not in SIGNATURES:
            found.append(OperationSupport(type_.name, OperandType.TENSOR_BOOL8.name, {}))
            continue
        by_type: dict[str, dict[str, tuple[SupportState, str]]] = {}
        for inputs, outputs in operation_rows(type_):
            answers = by_type.setdefault(OperandType(inputs[leading_input(type_)]).name, {})
            plain, example = shortest_graph(type_, inputs, outputs), _example(type_, inputs, outputs)
            for backend in backends:
                answer = _ask(backend, plain, example)
                known = answers.setdefault(backend.id, answer)
                if _PREFERRED.index(answer[0]) < _PREFERRED.index(known[0]):  # one row of this type is enough
                    answers[backend.id] = answer
        found += [OperationSupport(type_.name, name, answers) for name, answers in by_type.items()]
    return tuple(found)


def example_graphs() -> Iterator[tuple[int, int, Graph]]:
    """Yield a graph of one operation with shapes for each type of its leading operand, with both types."""
    for type_ in filter(SIGNATURES.__contains__, OperationType):
        seen = set()
        for inputs, outputs in operation_rows(type_):
            leading, graph = inputs[leading_input(type_)], _example(type_, inputs, outputs)
            if graph is not None and leading not in seen:
                seen.add(leading)
                yield type_, leading, graph


def _ask(backend: Backend, plain: Graph, example: Graph | None) -> tuple[SupportState, str]:
    reason = support(backend, plain.operations[0]).reason
    if not reason:
        return SupportState.YES, ""
    if example is None:
        return SupportState.DEPENDS, ""
    with_shapes = support(backend, example.operations[0]).reason
    if not with_shapes:
        return SupportState.YES, ""
    return (SupportState.NO, reason) if with_shapes == reason else (SupportState.DEPENDS, "")


def leading_input(type_: int) -> int:
    """Return the index of the leading input: the first that may have several types, or 0 if there is none."""
    arguments = SIGNATURES[type_].inputs[0].required
    return next((i for i, argument in enumerate(arguments) if isinstance(argument.type, str)), 0)


def operation_rows(type_: int) -> list[tuple[list[int], list[int]]]:
    """Return the types of inputs and outputs of an operation's shortest form, for each row of its signature."""
    signature = SIGNATURES[type_]

    def types(side: ArgumentList, row: Mapping[str, int]) -> list[int]:
        return [row[argument.type] if isinstance(argument.type, str) else argument.type for argument in side.required]

    return [(types(signature.inputs[0], row), types(signature.outputs, row)) for row in signature.rows]


def shortest_graph(type_: int, inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
    """Return a graph of one operation, whose operands have types and no shapes."""
    return _graph(type_, [Operand(each, scale=_SCALE) for each in inputs], outputs)


def _example(type_: int, inputs: Sequence[int], outputs: Sequence[int]) -> Graph | None:
    """Return the same graph with shapes of inputs, if these fit the operation."""
    signature = SIGNATURES[type_]

    def operand(argument: Argument, operand_type: int) -> Operand:
        if not is_tensor(operand_type):
            return Operand(operand_type)
        rank = signature.ranks.get(argument.name, _MAX_RANK)
        rank = rank if isinstance(rank, int) else min(rank[1], _MAX_RANK)
        return Operand(operand_type, dimensions=(_SIZE,) * rank, scale=_SCALE)

    operands = [operand(argument, each) for argument, each in zip(signature.inputs[0].required, inputs, strict=True)]
    graph = _graph(type_, operands, outputs)
    count = len(operands)
    bound = signature.bind(graph.subgraph.operands[:count], graph.subgraph.operands[count:])
    return None if isinstance(bound, str) else graph  # a text: an operand must have another rank


def _graph(type_: int, inputs: Sequence[Operand], outputs: Sequence[int]) -> Graph:
    quantization = SIGNATURES[type_].quantization
    by_type = quantization if isinstance(quantization, Mapping) else {}
    results = []
    for each in outputs:
        scale, zero_point = by_type.get(OperandType(each), (_SCALE, 0))
        results.append(Operand(each, scale=scale, zero_point=zero_point))
    count = len(inputs)
    operation = Operation(type_, tuple(range(count)), tuple(range(count, count + len(outputs))))
    return Graph(0, Subgraph((*inputs, *results), (operation,), operation.inputs, operation.outputs), {})
