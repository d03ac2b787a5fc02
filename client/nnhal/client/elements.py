"""Elements of inputs and outputs: conversion from and to real values, and from pictures."""

import os
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from nnhal.errors import argument_error
from nnhal.types import DTYPES, AnyArray, Bytes, Normalization, Operand, OperandType, type_name

if TYPE_CHECKING:
    from PIL.Image import Image

Picture: TypeAlias = "str | os.PathLike[str] | Image | ArrayLike"
"""A picture: the path of a file, an image of Pillow, or pixels [H,W], [H,W,C] or [1,H,W,C] in 0..255."""

QUANTIZED = {
    OperandType.TENSOR_QUANT8_ASYMM,
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED,
    OperandType.TENSOR_QUANT8_SYMM,
    OperandType.TENSOR_QUANT16_ASYMM,
    OperandType.TENSOR_QUANT16_SYMM,
}

_PIXEL_TYPES: dict[int, int] = {
    OperandType.TENSOR_QUANT8_ASYMM: 0,
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: -128,
    OperandType.TENSOR_INT32: 0,
    OperandType.TENSOR_FLOAT32: 0,
    OperandType.TENSOR_FLOAT16: 0,
}
"""Types of inputs that take pixels, and what is added to a pixel unless the type has fractions."""
MODES = {1: "L", 3: "RGB"}
"""Pillow's mode of images by the number of channels."""


def dequantize(operand: Operand, elements: ArrayLike) -> AnyArray:
    """Return the real values of elements, in float32. Elements that are not quantized are returned as they are."""
    array = np.asarray(elements)
    if operand.type not in QUANTIZED:
        return array
    return np.asarray((array.astype(np.int32) - operand.zero_point) * np.float32(operand.scale), np.float32)


def quantize(operand: Operand, values: ArrayLike, dtype: np.dtype[Any]) -> AnyArray:
    """Return the elements nearest to real values, rounded as by QUANTIZE: halves away from zero."""
    if operand.type not in QUANTIZED:
        return np.asarray(values, dtype)
    steps = np.asarray(values, np.float32) / np.float32(operand.scale)
    rounded = np.trunc(steps + np.copysign(np.float32(0.5), steps)) + operand.zero_point
    limits = np.iinfo(dtype)
    return np.asarray(np.clip(rounded, limits.min, limits.max), dtype)


def image_layout(operand: Operand) -> tuple[int, int, int, bool] | None:
    """Return height, width, channels and whether they are last, of an input that takes images; None for others."""
    if operand.type in _PIXEL_TYPES:
        match operand.dimensions:
            case (_, height, width, channels) if height and width and channels in MODES:
                return height, width, channels, True
            case (_, channels, height, width) if height and width and channels in MODES:
                return height, width, channels, False
    return None


def image_elements(operand: Operand, picture: Picture, normalization: Normalization | None) -> AnyArray:
    """Return a picture as the elements of an input of one image.

    Raises:
        HalError: INVALID_ARGUMENT: the input does not take images, or the array has no form of pixels.
        ImportError: Pillow is missing, and the picture is a file or has another size.
        OSError: the file is not an image.
    """
    layout = image_layout(operand)
    if layout is None:
        found = f"{type_name(operand.type)} {list(operand.dimensions)}"
        raise argument_error(f"an image needs an input [1,H,W,1], [1,H,W,3] or [1,3,H,W]; this one is {found}")
    height, width, channels, are_channels_last = layout
    pixels = _read_pixels(picture, height, width, channels).reshape(1, height, width, channels)
    elements = _normalized(operand, pixels, normalization)
    return elements if are_channels_last else np.ascontiguousarray(elements.transpose(0, 3, 1, 2))


def _normalized(operand: Operand, pixels: Bytes, normalization: Normalization | None) -> AnyArray:
    dtype = DTYPES[operand.type]
    if dtype.kind != "f":
        return np.asarray(pixels.astype(np.int32) + _PIXEL_TYPES[operand.type]).astype(dtype)
    mean, std = normalization or ((0.0,), (255.0,))
    return np.asarray((pixels - np.array(mean)) / np.array(std)).astype(dtype)


def valid_normalization(operand: Operand, normalization: Normalization | None) -> Normalization | None:
    """Return a normalization if an input of images can use it: one value, or one for each channel; else None."""
    layout = image_layout(operand)
    if layout is None or normalization is None or DTYPES[operand.type].kind != "f":
        return None
    mean, std = normalization
    is_valid = {len(mean), len(std)} <= {1, layout[2]} and all(np.isfinite([*mean, *std])) and 0 not in std
    return normalization if is_valid else None


def _read_pixels(picture: Picture, height: int, width: int, channels: int) -> Bytes:
    if not isinstance(picture, str | os.PathLike) and not hasattr(picture, "convert"):
        picture = _check_pixels(np.asarray(picture))
        if picture.shape == (height, width, channels):
            return picture
    from PIL import Image  # noqa: PLC0415

    if isinstance(picture, np.ndarray):
        picture = Image.fromarray(picture.squeeze(2) if picture.shape[2] == 1 else picture)
    with picture if isinstance(picture, Image.Image) else Image.open(picture) as image:  # type: ignore[arg-type]
        resized = image.convert(MODES[channels]).resize((width, height), Image.Resampling.BILINEAR)
        return np.asarray(resized, np.uint8).reshape(height, width, channels)


def _check_pixels(array: AnyArray) -> Bytes:
    """Return pixels as uint8 [H,W,C]."""
    pixels = array[0] if array.ndim == 4 and array.shape[0] == 1 else array
    pixels = pixels[..., np.newaxis] if pixels.ndim == 2 else pixels
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4) or not pixels.size:
        raise argument_error(f"pixels have shape {list(array.shape)}; expected [H,W], [H,W,1], [H,W,3] or [H,W,4]")
    if pixels.dtype != np.uint8:
        raise argument_error(f"pixels are {array.dtype}; expected uint8, from 0 to 255")
    return np.ascontiguousarray(pixels)
