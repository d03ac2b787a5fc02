"""From what the file says to a `Model`: operator by operator, in order."""

from nnhal.tflite.call import Call
from nnhal.tflite.errors import TfliteError, place
from nnhal.tflite.operands import Operands
from nnhal.tflite.operators import CONVERTERS
from nnhal.tflite.reader import Graph, Operator
from nnhal.types import Model, Operation, Subgraph


def convert(graph: Graph) -> Model:
    """Makes a model of a graph.

    Raises:
        TfliteError: the graph has something that NNAPI lacks, or contradicts itself.
    """
    _check_ends(graph)
    operands = Operands(graph)
    inputs = tuple(operands.read(index) for index in graph.inputs)
    operations: list[Operation] = []
    names: list[str] = []
    for operator in graph.operators:
        name = f"operator {operator.index} ({operator.name})"
        with place(name):
            operations += _convert(graph, operands, operator)
        names += [name] * (len(operations) - len(names))
    outputs = tuple(operands.read(index) for index in graph.outputs)
    return Model(
        Subgraph(operands.operands, tuple(operations), inputs, outputs),
        operand_values=operands.operand_values,
        pools=operands.pools,
        input_names=tuple(graph.tensors[index].name for index in graph.inputs),
        output_names=tuple(graph.tensors[index].name for index in graph.outputs),
        operation_names=tuple(names),
    )


def _convert(graph: Graph, operands: Operands, operator: Operator) -> list[Operation]:
    if operator.code not in CONVERTERS:
        raise TfliteError("has no NNAPI counterpart known here")
    call = Call(graph, operands, operator)
    CONVERTERS[operator.code](call)
    return call.operations


def _check_ends(graph: Graph) -> None:
    """Refuses what no NNAPI model can have (V-SUBGRAPH-02, 03, 05, 06, 10)."""
    if not graph.operators:
        raise TfliteError("has no operators")
    for kind, indexes in (("inputs", graph.inputs), ("outputs", graph.outputs)):
        if not indexes:
            raise TfliteError(f"has no {kind}")
        if len(set(indexes)) != len(indexes):
            raise TfliteError(f"has a tensor twice among its {kind}")
    for index in graph.outputs:
        if index in graph.inputs:
            raise TfliteError(
                f"{graph.tensors[index]} is both an input and an output; NNAPI needs an operation between"
            )
        if graph.tensors[index].data is not None:
            raise TfliteError(f"{graph.tensors[index]} is an output but a constant; NNAPI's outputs are computed")
