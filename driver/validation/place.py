"""How reasons name what they judge: "main", "operand 3 of main (TENSOR_FLOAT32)", "operation 2 of main (CONV_2D)"."""

from nnhal.types import Operand, Operation, operation_name, type_name


def subgraph_place(number: int) -> str:
    """A subgraph by its number: 0 is main, i + 1 is referenced[i]."""
    return "main" if number == 0 else f"referenced subgraph {number - 1}"


def operand_place(number: int, index: int, operand: Operand) -> str:
    """Operand `index` of subgraph `number`."""
    return f"operand {index} of {subgraph_place(number)} ({type_name(operand.type)})"


def operation_place(number: int, index: int, operation: Operation) -> str:
    """Operation `index` of subgraph `number`."""
    return f"operation {index} of {subgraph_place(number)} ({operation_name(operation.type)})"
