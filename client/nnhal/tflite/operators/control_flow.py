"""Operators that run other subgraphs: IF, WHILE."""

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite_schema import BuiltinOperator
from nnhal.types import OperationType


@converter(BuiltinOperator.IF)
def if_(call: OperatorCall) -> None:
    """Convert IF. The first input is the condition in both formats; NNAPI has the subgraphs behind it."""
    branches = [call.subgraph(call.option(name)) for name in ("then_subgraph_index", "else_subgraph_index")]
    condition, *inputs = call.inputs()
    call.emit(OperationType.IF, [condition, *branches, *inputs])


@converter(BuiltinOperator.WHILE)
def while_(call: OperatorCall) -> None:
    """Convert WHILE. NNAPI has the subgraphs of the condition and of the body in front of the inputs."""
    loops = [call.subgraph(call.option(name)) for name in ("cond_subgraph_index", "body_subgraph_index")]
    call.emit(OperationType.WHILE, [*loops, *call.inputs()])
