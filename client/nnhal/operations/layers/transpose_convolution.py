"""Transposed convolutions: TRANSPOSE_CONV_2D."""

from nnhal.operations.layers.convolution import CONVOLUTION_TYPES, PADDING, STRIDES, filter_channel_dimension
from nnhal.operations.signature import signature
from nnhal.types import OperationType

_OPTIONS = f"{STRIDES} activation layout:BOOL"

signature(
    OperationType.TRANSPOSE_CONV_2D,
    inputs={
        "explicit padding": f"input:T filter:F bias:B {PADDING} {_OPTIONS}",
        "implicit padding": f"input:T filter:F bias:B output_shape:SHAPE padding_scheme {_OPTIONS}",
    },
    types=CONVOLUTION_TYPES,
    checks=[filter_channel_dimension(0)],
)
