"""Names of subgraphs, operands and operations in error messages, for example "operand 3 of main (TENSOR_FLOAT32)"."""

from nnhal.types import Model, Operand, operation_name, type_name

KINDS = {False: "input", True: "output"}
"""Kinds of arguments, by whether they are outputs."""


def subgraph_location(number: int) -> str:
    """Return the name of a subgraph: 0 is main, i + 1 is referenced[i]."""
    return "main" if number == 0 else f"referenced subgraph {number - 1}"


def operand_location(number: int, index: int, operand: Operand) -> str:
    """Return the name of operand `index` of subgraph `number`."""
    return f"operand {index} of {subgraph_location(number)} ({type_name(operand.type)})"


def operation_location(model: Model, number: int, index: int) -> str:
    """Return the name of operation `index` of subgraph `number`."""
    type_ = model.subgraphs[number].operations[index].type
    return f"operation {index} of {subgraph_location(number)} ({operation_name(type_, model.extension_names)})"
