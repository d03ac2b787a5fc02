"""Checks of tensors: shape, size, constant bytes and quantization."""

from typing import NoReturn

import numpy as np

from nnhal_driver.backends.litert.submodel.limits import SubModelLimits
from nnhal_driver.backends.litert.submodel.model import InvalidSubModel, SubModelQuantization, SubModelTensor

_ZERO_POINTS = {
    "INT4": (-8, 7),
    "INT8": (-128, 127),
    "UINT8": (0, 255),
    "INT16": (-32768, 32767),
    "INT32": (0, 0),
    "INT64": (0, 0),
}
"""Types that may be quantized, with the range of their zero points. Kernels expect 0 for the wide ones."""
_MIN_SCALE, _MAX_SCALE = 2.0**-64, 2.0**64
"""Scales outside of this range overflow or vanish when kernels multiply and divide them in float32."""
_MIN_BIAS_SCALE = 2.0**-120
"""The scale of a bias is a product of two."""


def check_tensor(tensor: SubModelTensor, path: str, limits: SubModelLimits) -> None:
    """Check a tensor.

    Raises:
        InvalidSubModel: the tensor is invalid, or larger than the limits.
    """
    shape = tensor.shape
    if len(shape) > limits.rank:
        raise InvalidSubModel(f"{path}: shape has {len(shape)} dimensions; at most {limits.rank} are supported")
    if shape and min(shape) < 1:
        raise InvalidSubModel(f"{path}: shape is {list(shape)}; every dimension must be known and at least 1")
    size = tensor.byte_size
    if size > limits.tensor_bytes:
        raise InvalidSubModel(f"{path}: shape {list(shape)} takes {size} bytes; at most {limits.tensor_bytes}")
    if tensor.data is not None:
        _check_data(tensor, size, path)
    if tensor.quantization is not None:
        _check_quantization(tensor, tensor.quantization, path)


def _check_data(tensor: SubModelTensor, size: int, path: str) -> None:
    data = tensor.data
    assert data is not None
    if len(data) != size:
        raise InvalidSubModel(f"{path}: buffer has {len(data)} bytes; shape {list(tensor.shape)} takes {size}")
    if tensor.is_variable:
        raise InvalidSubModel(f"{path}: is_variable is set; a constant cannot be a variable")
    if tensor.type == "BOOL" and int(data.max()) > 1:
        raise InvalidSubModel(f"{path}: buffer has a Boolean of {data.max()}; expected 0 or 1")


def _check_quantization(tensor: SubModelTensor, quantization: SubModelQuantization, path: str) -> None:
    def fail(problem: str) -> NoReturn:
        raise InvalidSubModel(f"{path}: {problem}")

    if tensor.type not in _ZERO_POINTS:
        fail(f"type {tensor.type} cannot be quantized")
    scales, points, dimension = quantization.scales, quantization.zero_points, quantization.dimension
    if len(scales) != len(points):
        fail(f"zero_point has {len(points)} elements; expected {len(scales)} as scale has")
    if not 0 <= dimension < max(len(tensor.shape), 1):
        fail(f"quantized_dimension is {dimension}; the tensor has rank {len(tensor.shape)}")
    if len(scales) != 1 and (not tensor.shape or len(scales) != tensor.shape[dimension]):
        fail(f"scale has {len(scales)} elements; expected 1, or one for each index of dimension {dimension}")
    lowest = _MIN_BIAS_SCALE if tensor.type in ("INT32", "INT64") else _MIN_SCALE
    if not np.isfinite(scales).all() or float(scales.min()) < lowest or float(scales.max()) > _MAX_SCALE:
        fail(f"scale is {_extreme(scales.min(), scales.max())}; expected {lowest:g} to {_MAX_SCALE:g}")
    low, high = _ZERO_POINTS[tensor.type]
    if int(points.min()) < low or int(points.max()) > high:
        fail(f"zero_point is {_extreme(points.min(), points.max())}; expected {low} to {high} for {tensor.type}")


def _extreme(low: object, high: object) -> str:
    return str(low) if str(low) == str(high) else f"{low} to {high}"
