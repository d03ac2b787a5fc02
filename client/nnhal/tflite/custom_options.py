"""Options of custom operators, which are bytes in the file."""

import struct
from dataclasses import dataclass
from enum import IntEnum

from nnhal.tflite.errors import TfliteError
from nnhal.tflite.graph import Operator

_WINDOW = struct.Struct("<3i")
"""Padding, horizontal stride and vertical stride, as in TfLiteTransposeConvParams and TfLitePoolParams."""
_FLEXBUFFER_INTEGERS = (1, 2)
"""Types of flexbuffers: signed and unsigned integers."""


class CustomPadding(IntEnum):
    """Paddings in options of custom operators. They have NNAPI's numbers."""

    SAME = 1
    VALID = 2


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """Options of Convolution2DTransposeBias, MaxPoolingWithArgmax2D and MaxUnpooling2D."""

    padding: CustomPadding
    stride_width: int
    stride_height: int


def integer_option(operator: Operator, name: str) -> int:
    """Return an integer of the options of a custom operator that has a map in the format of flexbuffers.

    Raises:
        TfliteError: it is absent, or has another type.
    """
    try:
        return _flexbuffer_integers(operator.custom_options)[name]
    except (KeyError, IndexError, ValueError):
        raise TfliteError(f"has no integer {name} in its options") from None


def _flexbuffer_integers(data: bytes) -> dict[str, int]:
    """Return the integers that a map has, without those that are stored outside of it.

    A map is a vector of values, then a byte with the type of each. In front are the offset and the width of the vector
    of keys, and the number of both. Offsets count backwards, and widths are those of the elements.
    """

    def number(position: int, width: int, *, signed: bool = False) -> int:
        return int.from_bytes(data[position : position + width], "little", signed=signed)

    width, values = 1 << (data[-2] & 3), len(data) - 2 - data[-1]
    values -= number(values, data[-1])
    size, key_width, first = (number(values - i * width, width) for i in (1, 2, 3))
    keys, result = values - 3 * width - first, {}
    for i in range(size):
        begin = keys + i * key_width
        begin -= number(begin, key_width)
        if data[values + size * width + i] >> 2 in _FLEXBUFFER_INTEGERS:
            result[data[begin : data.index(0, begin)].decode()] = number(values + i * width, width, signed=True)
    return result


def window_options(operator: Operator) -> WindowOptions:
    """Return padding and strides of a custom operator.

    Raises:
        TfliteError: there are too few bytes, or the padding is unknown.
    """
    data = operator.custom_options
    if len(data) < _WINDOW.size:
        raise TfliteError(f"has {len(data)} bytes of options; expected at least {_WINDOW.size}")
    padding, width, height = _WINDOW.unpack_from(data)
    if padding not in tuple(CustomPadding):
        raise TfliteError(f"padding {padding} is neither SAME nor VALID")
    return WindowOptions(CustomPadding(padding), width, height)
