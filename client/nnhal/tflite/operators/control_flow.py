"""Operators that run other subgraphs: IF, WHILE."""

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite_schema import BuiltinOperator
from nnhal.types import OperationType


@converter(BuiltinOperator.IF)
def if_(call: OperatorCall) -> None:
    """Convert IF. The first input is the condition in both formats; NNAPI has the subgraphs behind it."""
    names, arguments = ("then_subgraph_index", "else_subgraph_index"), call.operator.inputs[1:]
    branches = [call.subgraph(call.option(name), arguments) for name in names]
    condition, *inputs = call.inputs()
    call.emit(OperationType.IF, [condition, *branches, *inputs])


@converter(BuiltinOperator.WHILE)
def while_(call: OperatorCall) -> None:
    """Convert WHILE. NNAPI has the subgraphs of the condition and of the body in front of the inputs."""
    names, arguments = ("cond_subgraph_index", "body_subgraph_index"), call.operator.outputs
    loops = [call.subgraph(call.option(name), arguments) for name in names]
    call.emit(OperationType.WHILE, [*loops, *call.inputs()])
