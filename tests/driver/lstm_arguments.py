"""Arguments for tests of float LSTMs: cells with any parts, drawn at random."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tests.driver.one_operation import Value, float32, int32
from tests.driver.recurrent_arguments import drawn, omitted

TANH = 4


@dataclass(frozen=True)
class Parts:
    """What a cell has."""

    input_gate: bool = True
    peephole: bool = True
    norm: bool = True
    projection: bool = True
    projection_bias: bool = True


Sizes = tuple[int, int, int, int]
"""Batches, size of the input, units, output size."""

parts = st.builds(Parts, st.booleans(), st.booleans(), st.booleans(), st.booleans(), st.booleans())


def cell(rng: np.random.Generator, parts_: Parts, size: Sizes) -> list[Value]:
    """Arguments 1 to 17 of an LSTM."""
    _, inputs, units, output = size
    gate, bias = parts_.input_gate, parts_.projection and parts_.projection_bias

    def one(given_: bool, *shape: int) -> Value:
        return drawn(rng, *shape) if given_ else omitted(len(shape))

    return [
        *(one(gate or i > 0, units, inputs) for i in range(4)),
        *(one(gate or i > 0, units, output) for i in range(4)),
        *(one(parts_.peephole and (gate or i > 0), units) for i in range(3)),
        *(one(gate or i > 0, units) for i in range(4)),
        one(parts_.projection, output, units),
        one(bias, output),
    ]


def norms(rng: np.random.Generator, parts_: Parts, units: int) -> list[Value]:
    """The four layer normalisation weights."""
    wanted = [parts_.norm and (parts_.input_gate or i > 0) for i in range(4)]
    return [drawn(rng, units) if each else omitted(1) for each in wanted]


def states(rng: np.random.Generator, size: Sizes) -> list[Value]:
    batches, _, units, output = size
    return [drawn(rng, batches, output), drawn(rng, batches, units)]


def scalars(activation: int = TANH, cell_clip: float = 0, proj_clip: float = 0) -> list[Value]:
    return [int32(activation), float32(cell_clip), float32(proj_clip)]


def fitted(size: Sizes, parts_: Parts) -> Sizes:
    """Without projection the output is as large as the cell."""
    return size if parts_.projection else (*size[:3], size[2])


def bidirectional(
    rng: np.random.Generator, parts_: Parts, sequence: tuple[int, Sizes], aux: str = "none"
) -> list[Value]:
    """Arguments 0 to 47 of BIDIRECTIONAL_SEQUENCE_LSTM, time-major.

    Args:
        rng: where values come from.
        parts_: of both cells.
        sequence: time steps, and sizes.
        aux: "none", or "cross" with an aux input as large as the input.
    """
    steps, size = sequence
    batches, inputs, units, _ = size
    arguments = [drawn(rng, steps, batches, inputs), *cell(rng, parts_, size), *cell(rng, parts_, size)]
    arguments += [*states(rng, size), *states(rng, size)]
    if aux == "none":
        return [*arguments, omitted(3), *[omitted(2)] * 8]
    weights = [[drawn(rng, units, inputs) for _ in range(4)] for _ in range(2)]
    if not parts_.input_gate:
        weights = [[omitted(2), *each[1:]] for each in weights]
    return [*arguments, drawn(rng, steps, batches, inputs), *weights[0], *weights[1]]
