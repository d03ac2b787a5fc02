"""Types of the elements of tensors."""

from collections.abc import Mapping
from typing import Any

import numpy as np

DTYPES: Mapping[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "COMPLEX128": np.dtype("<c16"),
    "COMPLEX64": np.dtype("<c8"),
    "FLOAT16": np.dtype("<f2"),
    "FLOAT32": np.dtype("<f4"),
    "FLOAT64": np.dtype("<f8"),
    "INT8": np.dtype("i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "UINT8": np.dtype("u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
}
"""The types that numpy has, by their names in TensorType. Files are little-endian."""
