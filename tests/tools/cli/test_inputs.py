"""Inputs from images, arrays and random numbers."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nnhal.types import AnyArray, Operand, OperandLifeTime, OperandType
from nnhal_tools.cli import inputs
from nnhal_tools.cli.errors import CommandError


def image_operand(type_: OperandType, *dimensions: int) -> Operand:
    return Operand(type_, dimensions, 0.5, 0, OperandLifeTime.SUBGRAPH_INPUT)


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (OperandType.TENSOR_QUANT8_ASYMM, np.array([0, 100, 255], np.uint8)),
        (OperandType.TENSOR_QUANT8_ASYMM_SIGNED, np.array([-128, -28, 127], np.int8)),
        (OperandType.TENSOR_FLOAT32, np.array([0, 100 / 255, 1], np.float32)),
    ],
)
def test_pixels_become_elements(type_: OperandType, expected: AnyArray, tmp_path: Path) -> None:
    Image.new("RGB", (6, 5), (0, 100, 255)).save(tmp_path / "plain.png")
    array = inputs.read_image(tmp_path / "plain.png", [image_operand(type_, 1, 4, 2, 3)])
    assert array.shape == (1, 4, 2, 3) and array.dtype == expected.dtype
    np.testing.assert_array_equal(array, np.broadcast_to(expected, array.shape))


def test_image_keeps_its_orientation_and_is_resized_smoothly(tmp_path: Path) -> None:
    pixels = np.zeros((2, 4), np.uint8)
    pixels[0, 3] = 255
    Image.fromarray(pixels).save(tmp_path / "corner.png")
    array = inputs.read_image(tmp_path / "corner.png", [image_operand(OperandType.TENSOR_QUANT8_ASYMM, 1, 2, 4, 1)])
    np.testing.assert_array_equal(array[0, :, :, 0], pixels)
    wider = inputs.read_image(tmp_path / "corner.png", [image_operand(OperandType.TENSOR_QUANT8_ASYMM, 1, 2, 8, 1)])
    assert set(wider.ravel()) - {0, 255}


@pytest.mark.parametrize(
    "operands",
    [
        [],
        [image_operand(OperandType.TENSOR_FLOAT32, 1, 4, 4, 3)] * 2,
        [image_operand(OperandType.TENSOR_FLOAT32, 1, 640)],
        [image_operand(OperandType.TENSOR_FLOAT32, 1, 4, 4, 2)],
        [image_operand(OperandType.TENSOR_FLOAT32, 1, 0, 4, 3)],
        [image_operand(OperandType.TENSOR_INT32, 1, 4, 4, 3)],
    ],
)
def test_models_without_an_image_input_are_rejected(operands: list[Operand], tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "plain.png")
    with pytest.raises(CommandError, match="needs a model with one input"):
        inputs.read_image(tmp_path / "plain.png", operands)


def test_damaged_image_is_rejected(tmp_path: Path) -> None:
    Image.new("RGB", (64, 64), "red").save(tmp_path / "whole.png")
    (tmp_path / "half.png").write_bytes((tmp_path / "whole.png").read_bytes()[:80])
    with pytest.raises(CommandError, match=r"cannot read the image .*half\.png"):
        inputs.read_image(tmp_path / "half.png", [image_operand(OperandType.TENSOR_FLOAT32, 1, 4, 4, 3)])


def test_random_inputs_cover_the_range_and_repeat() -> None:
    types = [OperandType.TENSOR_FLOAT32, OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED]
    operands = [image_operand(type_, 0, 5000) for type_ in (*types, OperandType.TENSOR_INT32, OperandType.TENSOR_BOOL8)]
    arrays, again = inputs.random_inputs(operands), inputs.random_inputs(operands)
    for first, second in zip(arrays, again, strict=True):
        np.testing.assert_array_equal(first, second)
    assert [array.shape for array in arrays] == [(1, 5000)] * 5
    assert [array.dtype for array in arrays] == [np.float32, np.uint8, np.int8, np.int32, np.bool_]
    assert [(int(a.min()), int(a.max())) for a in arrays[1:]] == [(0, 255), (-128, 127), (0, 1), (0, 1)]
    assert 0 <= arrays[0].min() < arrays[0].max() <= 1
