"""Elements of inputs and outputs: quantization as LiteRT does it, and pictures in every form."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from nnhal.client.core.arrays import TensorInfo
from nnhal.errors import HalError
from nnhal.types import Normalization, OperandType

Q8, S8, F32 = OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED, OperandType.TENSOR_FLOAT32
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)


def test_quantize_rounds_halves_away_from_zero_and_saturates() -> None:
    info = TensorInfo(S8, (7,), 0.5, 3)
    elements = info.quantize([-1000, -0.75, -0.25, 0, 0.25, 0.75, 1000])
    assert elements.dtype == np.int8 and elements.tolist() == [-128, 1, 2, 3, 4, 5, 127]
    assert info.dequantize(elements).tolist() == [-65.5, -1, -0.5, 0, 0.5, 1, 62]
    assert info.dequantize(elements).dtype == np.float32


@pytest.mark.parametrize(
    ("type_", "zero_point"),
    [(Q8, 7), (S8, -7), (OperandType.TENSOR_QUANT16_SYMM, 0), (OperandType.TENSOR_QUANT16_ASYMM, 9)],
)
def test_all_elements_survive_both_ways(type_: OperandType, zero_point: int) -> None:
    info = TensorInfo(type_, (), 0.0123, zero_point)
    assert info.dtype is not None
    limits = np.iinfo(info.dtype)
    elements = np.arange(limits.min, limits.max + 1).astype(info.dtype)
    np.testing.assert_array_equal(info.quantize(info.dequantize(elements)), elements)


def test_other_types_are_not_scaled() -> None:
    assert TensorInfo(F32, (2,)).quantize([1, 2.5]).tolist() == [1, 2.5]
    assert TensorInfo(OperandType.TENSOR_INT32, (2,)).dequantize(np.array([1, 2], np.int32)).dtype == np.int32


@pytest.mark.parametrize("form", ["path", "text", "image", "array", "batch", "noncontiguous"])
def test_picture_has_many_forms(form: str, tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    Image.fromarray(PIXELS).save(path)
    wide = np.zeros((4, 10, 3), np.uint8)
    wide[:, ::2] = PIXELS
    forms: dict[str, Any] = {"path": path, "text": str(path), "image": Image.fromarray(PIXELS), "array": PIXELS}
    forms |= {"batch": PIXELS[np.newaxis], "noncontiguous": wide[:, ::2]}
    elements = TensorInfo(Q8, (1, 4, 5, 3), 1 / 255).preprocess(forms[form])
    np.testing.assert_array_equal(elements, PIXELS[np.newaxis])


@pytest.mark.parametrize(
    ("normalization", "own", "expected"),
    [
        (None, None, PIXELS / 255),
        (((127.5,), (127.5,)), None, (PIXELS - 127.5) / 127.5),
        (((127.5,), (127.5,)), ((1, 2, 3), (4, 5, 6)), (PIXELS - np.array([1, 2, 3])) / [4, 5, 6]),
        (((1, 2), (3, 4)), None, PIXELS / 255),  # that of the file does not fit
    ],
)
def test_float_elements_are_normalized(
    normalization: Normalization | None, own: Normalization | None, expected: np.ndarray
) -> None:
    for shape, axes in (((1, 4, 5, 3), (0, 1, 2)), ((0, 3, 4, 5), (2, 0, 1))):
        info = TensorInfo(F32, shape, normalization=normalization)
        elements = info.preprocess(PIXELS, normalization=own)
        assert elements.dtype == np.float32 and elements.flags.c_contiguous
        np.testing.assert_allclose(elements[0], expected.transpose(axes), rtol=1e-6)


def test_size_and_channels_are_converted() -> None:
    assert TensorInfo(S8, (1, 2, 3, 1), 1).preprocess(PIXELS).shape == (1, 2, 3, 1)
    assert TensorInfo(S8, (1, 4, 5, 3), 1).preprocess(PIXELS[..., 0]).shape == (1, 4, 5, 3)
    assert TensorInfo(F32, (1, 4, 5, 3)).preprocess(np.dstack([PIXELS, PIXELS[..., 0]])).shape == (1, 4, 5, 3)


@pytest.mark.parametrize(
    ("info", "picture", "message"),
    [
        (
            TensorInfo(F32, (1, 10)),
            PIXELS,
            r"an image needs an input \[1,H,W,1\].*this one is TENSOR_FLOAT32 \[1, 10\]",
        ),
        (TensorInfo(F32, (1, 4, 5, 3)), PIXELS / 255, "pixels are float64; expected uint8"),
        (TensorInfo(F32, (1, 4, 5, 3)), PIXELS.ravel(), r"pixels have shape \[60\]; expected \[H,W\]"),
        (TensorInfo(F32, (1, 4, 5, 3)), np.zeros((0, 5, 3), np.uint8), r"pixels have shape \[0, 5, 3\]"),
    ],
)
def test_other_pictures_are_rejected(info: TensorInfo, picture: Any, message: str) -> None:
    with pytest.raises(HalError, match=message):
        info.preprocess(picture)


def test_normalization_that_does_not_fit_is_rejected() -> None:
    with pytest.raises(HalError, match="normalization is"):
        TensorInfo(F32, (1, 4, 5, 3)).preprocess(PIXELS, normalization=((1,), (0,)))
