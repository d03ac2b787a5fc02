"""Random arguments for tests of float LSTMs: cells with any optional parts."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tests.driver.one_operation import Value, float32, int32
from tests.driver.recurrent_arguments import omitted, random_floats

TANH = 4


@dataclass(frozen=True)
class Parts:
    """Optional parts of a cell."""

    input_gate: bool = True
    peephole: bool = True
    norm: bool = True
    projection: bool = True
    projection_bias: bool = True


Sizes = tuple[int, int, int, int]
"""Batches, size of the input, units, output size."""

parts = st.builds(Parts, st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.booleans())


def cell(rng: np.random.Generator, parts_: Parts, size: Sizes) -> list[Value]:
    """Return the arguments 1 to 17 of an LSTM."""
    _, inputs, units, output = size
    gate, bias = parts_.input_gate, parts_.projection and parts_.projection_bias

    def optional(present: bool, *shape: int) -> Value:
        return random_floats(rng, *shape) if present else omitted(len(shape))

    return [
        *(optional(gate or i > 0, units, inputs) for i in range(4)),
        *(optional(gate or i > 0, units, output) for i in range(4)),
        *(optional(parts_.peephole and (gate or i > 0), units) for i in range(3)),
        *(optional(gate or i > 0, units) for i in range(4)),
        optional(parts_.projection, output, units),
        optional(bias, output),
    ]


def norm_weights(rng: np.random.Generator, parts_: Parts, units: int) -> list[Value]:
    """Return the four layer normalization weights."""
    has_norm = [parts_.norm and (parts_.input_gate or i > 0) for i in range(4)]
    return [random_floats(rng, units) if present else omitted(1) for present in has_norm]


def states(rng: np.random.Generator, size: Sizes) -> list[Value]:
    batches, _, units, output = size
    return [random_floats(rng, batches, output), random_floats(rng, batches, units)]


def scalars(activation: int = TANH, cell_clip: float = 0, proj_clip: float = 0) -> list[Value]:
    return [int32(activation), float32(cell_clip), float32(proj_clip)]


def consistent_sizes(size: Sizes, parts_: Parts) -> Sizes:
    """Return sizes with the output size of the cell if there is no projection."""
    return size if parts_.projection else (*size[:3], size[2])


def bidirectional(
    rng: np.random.Generator, parts_: Parts, sequence: tuple[int, Sizes], aux: str = "none"
) -> list[Value]:
    """Return the arguments 0 to 47 of BIDIRECTIONAL_SEQUENCE_LSTM, time-major.

    Args:
        rng: source of random values.
        parts_: optional parts of both cells.
        sequence: time steps and sizes.
        aux: "none", or "cross" with an aux input as large as the input.
    """
    steps, size = sequence
    batches, inputs, units, _ = size
    arguments = [random_floats(rng, steps, batches, inputs), *cell(rng, parts_, size), *cell(rng, parts_, size)]
    arguments += [*states(rng, size), *states(rng, size)]
    if aux == "none":
        return [*arguments, omitted(3), *[omitted(2)] * 8]
    weights = [[random_floats(rng, units, inputs) for _ in range(4)] for _ in range(2)]
    if not parts_.input_gate:
        weights = [[omitted(2), *others] for _, *others in weights]
    return [*arguments, random_floats(rng, steps, batches, inputs), *weights[0], *weights[1]]
