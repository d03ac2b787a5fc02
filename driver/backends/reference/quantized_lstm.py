"""Kernels of QUANTIZED_LSTM and QUANTIZED_16BIT_LSTM: cells in 16-bit fixed point.

Arrays are int64 that hold int16 values; Fk below is an int16 with k integer bits (see gemmlowp).
"""

from dataclasses import dataclass
from math import trunc

import numpy as np

from driver.backends.reference.fixed_point import Integers, encode, rdiv, rescale
from driver.backends.reference.gemmlowp import change, logistic, product, saturated, tanh
from driver.operations.call import Call
from driver.operations.lstm import BIASES, GATES, gates_of
from driver.operations.quantized_lstm import state_exponent
from nnhal.types import AnyArray, OperationType

_WORD = 16
_GATE_BITS = 3
"""Integer bits of a gate before its activation."""
_NORM_BITS = 10
"""Fraction bits of normalised values."""


# ---- QUANTIZED_LSTM -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Cell:
    """The scales of a cell. `exponent`: binary logarithm of the cell state's scale."""

    call: Call
    exponent: int

    def gate(self, name: str, state: Integers) -> Integers:
        """A gate before its activation, F3: products, peephole, layer normalisation."""
        call, scale = self.call, np.float32(self.call.number(f"{name}_intermediate_scale"))
        norm = f"{name}_layer_norm_weights"
        bias = 0 if call.has(norm) else call.array(BIASES[name]).astype(np.int64)
        value = saturated(rescale(_sums(call, "input", f"input_to_{name}_weights") + bias, *self._encoded("input", f"input_to_{name}_weights", scale)), _WORD)
