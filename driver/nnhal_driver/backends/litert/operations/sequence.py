"""Layers that run a cell over a sequence.

The engine keeps states in variables, which are zeros before each execution. So a sequence must start from zeros, and
nothing may read its last state.
"""

from collections.abc import Sequence

from nnhal.types import OperandType
from nnhal_driver.backends.litert.lowering import FLOAT, Lowering
from nnhal_driver.backends.litert.shape_analysis import Unsupported
from nnhal_driver.operations.sequence import TANH

CELL_ACTIVATIONS = (1, 2, 3, TANH)
"""Activations that the engine computes for LSTM cells; they have the same numbers there."""


def emit_layer(lower: Lowering, operator: str, names: Sequence[str], options: str, fields: dict[str, object]) -> None:
    """Emit a layer whose states start from zeros, with the inputs `names` and a table of options."""
    if lower.type("input") != OperandType.TENSOR_FLOAT32:
        raise Unsupported("the engine computes these layers in float32")
    inputs = [_state(lower, name) if "_state" in name else _optional(lower, name) for name in names]
    arguments = lower.call.view.arguments
    assert arguments is not None
    count = 1 if fields.get("merge_outputs", operator.startswith("UNI")) else 2
    for name in arguments.outputs[count:]:
        if not lower.has_readers(name, 0):
            raise Unsupported(f"the engine does not return {name}")
    outputs = [lower.output(name) for name in arguments.outputs[:count]]
    lower.emit(operator, inputs, outputs, options, **fields)


def _optional(lower: Lowering, name: str) -> int:
    return lower.input(name) if lower.call.has(name) else -1


def _state(lower: Lowering, name: str) -> int:
    """Return a variable for a state. The variable is zeros before each execution."""
    if not lower.is_constant(name) or lower.call.array(name).any():
        raise Unsupported(f"{name} is not a constant of zeros", f"{name} of constant zeros")
    return lower.writer.tensor(FLOAT, lower.shape(name), is_variable=True)
