"""Operators that run other subgraphs: IF, WHILE, CALL, CALL_ONCE. Only the main subgraph is imported."""

from tflite import BuiltinOperator

from nnhal.tflite.call import OperatorCall, converter
from nnhal.tflite.errors import TfliteError


@converter(BuiltinOperator.IF, BuiltinOperator.WHILE, BuiltinOperator.CALL, BuiltinOperator.CALL_ONCE)
def reject_subgraph(call: OperatorCall) -> None:
    """Reject the operator."""
    raise TfliteError("refers to another subgraph; only the main one is imported")
