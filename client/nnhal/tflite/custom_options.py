"""Options of custom operators, which are bytes in the file."""

import struct
from dataclasses import dataclass
from enum import IntEnum

from nnhal.tflite.errors import TfliteError
from nnhal.tflite.graph import Operator

_TRANSPOSE_CONV = struct.Struct("<3i")
"""Padding, horizontal stride and vertical stride, as in TfLiteTransposeConvParams."""


class CustomPadding(IntEnum):
    """Paddings in options of custom operators. They have NNAPI's numbers."""

    SAME = 1
    VALID = 2


@dataclass(frozen=True, slots=True)
class TransposeConvOptions:
    """Options of Convolution2DTransposeBias."""

    padding: CustomPadding
    stride_width: int
    stride_height: int


def transpose_conv_options(operator: Operator) -> TransposeConvOptions:
    """Return the options of Convolution2DTransposeBias.

    Raises:
        TfliteError: there are too few bytes, or the padding is unknown.
    """
    data = operator.custom_options
    if len(data) < _TRANSPOSE_CONV.size:
        raise TfliteError(f"has {len(data)} bytes of options; expected at least {_TRANSPOSE_CONV.size}")
    padding, width, height = _TRANSPOSE_CONV.unpack_from(data)
    if padding not in tuple(CustomPadding):
        raise TfliteError(f"padding {padding} is neither SAME nor VALID")
    return TransposeConvOptions(CustomPadding(padding), width, height)
