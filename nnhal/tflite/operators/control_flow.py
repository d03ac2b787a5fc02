"""Operators that run other subgraphs: IF, WHILE, CALL, CALL_ONCE. Only the main subgraph is imported."""

from tflite import BuiltinOperator

from nnhal.tflite.call import Call, converter
from nnhal.tflite.errors import TfliteError


@converter(BuiltinOperator.IF, BuiltinOperator.WHILE, BuiltinOperator.CALL, BuiltinOperator.CALL_ONCE)
def other_subgraph(call: Call) -> None:
    """Refuses."""
    raise TfliteError("refers to another subgraph; only the main one is imported")
