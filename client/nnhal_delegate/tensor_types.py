"""Types of tensors: LiteRT numbers them differently in its structures than in files."""

from nnhal.tflite_schema import TensorType

_TYPES = """
    FLOAT32 INT32 UINT8 INT64 STRING BOOL INT16 COMPLEX64 INT8 FLOAT16 FLOAT64 COMPLEX128 UINT64 RESOURCE VARIANT UINT32
    UINT16 INT4 BFLOAT16 INT2 UINT4 FLOAT8_E4M3FN FLOAT8_E5M2
"""
_NUMBERS = {number: TensorType[name] for number, name in enumerate(_TYPES.split(), 1)}
"""Numbers in files by those in LiteRT's structures."""


def tensor_type(number: int) -> int:
    """Return the number in files of a type in LiteRT's structures; -1 if there is none."""
    return _NUMBERS.get(number, -1)
