"""Layers that run a cell over a sequence.

The engine keeps states in variables, which are zeros before each execution. A state that is an input of the subgraph is
written into its variable, and the last state of a layer of one direction is read from there.
"""

from collections.abc import Sequence

from nnhal.types import OperandLifeTime, OperandType
from nnhal_driver.backends.litert.lowering import FLOAT, Lowering
from nnhal_driver.backends.litert.shape_analysis import Unsupported
from nnhal_driver.operations.sequence import TANH

CELL_ACTIVATIONS = (1, 2, 3, TANH)
"""Activations that the engine computes for LSTM cells; they have the same numbers there."""


def emit_layer(lower: Lowering, operator: str, names: Sequence[str], options: str, fields: dict[str, object]) -> None:
    """Emit a layer whose states start from zeros, with the inputs `names` and a table of options."""
    if lower.type("input") != OperandType.TENSOR_FLOAT32:
        raise Unsupported("the engine computes these layers in float32")
    variables = {name: _state(lower, name) for name in names if "_state" in name}
    inputs = [variables[name] if name in variables else _optional(lower, name) for name in names]
    arguments = lower.call.view.arguments
    assert arguments is not None
    count = 1 if fields.get("merge_outputs", operator.startswith("UNI")) else 2
    for name, variable in zip(arguments.outputs[count:], variables.values(), strict=False):
        if lower.has_readers(name, 0):
            continue
        if not operator.startswith("UNI") or lower.use_count(name):
            raise Unsupported(f"the engine does not return {name} to an operation")
        lower.network.tensors[lower.positions[name]] = variable
    outputs = [lower.output(name) for name in arguments.outputs[:count]]
    lower.emit(operator, inputs, outputs, options, **fields)


def _optional(lower: Lowering, name: str) -> int:
    return lower.input(name) if lower.call.has(name) else -1


def _state(lower: Lowering, name: str) -> int:
    """Return a variable for a state. Without a value from outside, it is zeros before each execution."""
    tensors, position = lower.network.tensors, lower.positions[name]
    if lower.is_constant(name):
        if lower.call.array(name).any():
            raise Unsupported(f"{name} is a constant other than zeros", f"{name} of zeros or of a value from outside")
    elif lower.lifetime(name) != OperandLifeTime.SUBGRAPH_INPUT or lower.use_count(name) != 1:
        raise Unsupported(f"{name} is the result of an operation, or has other readers")
    variable = lower.writer.tensor(FLOAT, lower.shape(name), is_variable=True)
    if not lower.is_constant(name):
        tensors[position] = variable
    return variable
