"""Inputs from images, arrays and random numbers."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from nnhal.client.core.arrays import TensorInfo
from nnhal.types import AnyArray, Model, ModelState, Normalization, Operand, OperandLifeTime, OperandType, Subgraph
from nnhal_tools.cli import inputs
from nnhal_tools.cli.errors import CommandError
from tests.tools.sounds import write_wav


def image_operand(type_: OperandType, *dimensions: int, normalization: Normalization | None = None) -> TensorInfo:
    return TensorInfo(type_, dimensions, 0.5, 0, OperandLifeTime.SUBGRAPH_INPUT, normalization=normalization)


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        (OperandType.TENSOR_QUANT8_ASYMM, np.array([0, 100, 255], np.uint8)),
        (OperandType.TENSOR_QUANT8_ASYMM_SIGNED, np.array([-128, -28, 127], np.int8)),
        (OperandType.TENSOR_INT32, np.array([0, 100, 255], np.int32)),
        (OperandType.TENSOR_FLOAT32, np.array([0, 100 / 255, 1], np.float32)),
    ],
)
def test_pixels_become_elements(type_: OperandType, expected: AnyArray, tmp_path: Path) -> None:
    Image.new("RGB", (6, 5), (0, 100, 255)).save(tmp_path / "plain.png")
    array = inputs.read_image(tmp_path / "plain.png", [image_operand(type_, 1, 4, 2, 3)])
    assert array.shape == (1, 4, 2, 3) and array.dtype == expected.dtype
    np.testing.assert_array_equal(array, np.broadcast_to(expected, array.shape))


def test_metadata_normalizes_pixels_of_float_inputs(tmp_path: Path) -> None:
    Image.new("RGB", (1, 1), (0, 100, 255)).save(tmp_path / "plain.png")
    plain = [0, 100 / 255, 1]

    def read(type_: OperandType, mean: tuple[float, ...], std: tuple[float, ...]) -> tuple[list[float], str]:
        operand = image_operand(type_, 1, 1, 1, 3, normalization=(mean, std))
        array = inputs.read_image(tmp_path / "plain.png", [operand])
        return array.ravel().tolist(), inputs.describe_image(operand)

    values, text = read(OperandType.TENSOR_FLOAT32, (127.5,), (127.5,))
    assert values == pytest.approx([-1, -27.5 / 127.5, 1])
    assert text == "resized to 1x1, (pixels - 127.5) / 127.5, from the metadata"
    values, text = read(OperandType.TENSOR_FLOAT32, (0, 50, 100), (1, 2, 5))
    assert values == pytest.approx([0, 25, 31]) and "(pixels - [0, 50, 100]) / [1, 2, 5]" in text
    for mean, std in (((), ()), ((0.0,), (0.0,)), ((0.0, 1.0), (1.0, 1.0)), ((float("nan"),), (1.0,))):
        values, text = read(OperandType.TENSOR_FLOAT32, mean, std)
        assert values == pytest.approx(plain) and "pixels / 255; the file does not tell" in text
    assert read(OperandType.TENSOR_QUANT8_ASYMM, (127.5,), (127.5,)) == ([0, 100, 255], "resized to 1x1")


def test_user_replaces_the_normalization_of_the_file() -> None:
    image = Operand(OperandType.TENSOR_FLOAT32, (1, 4, 2, 3), lifetime=OperandLifeTime.SUBGRAPH_INPUT)
    model = Model(Subgraph((image,), (), (0,), ()), normalizations=(((0.0,), (1.0,)),))
    for text, expected in (("127.5/2", ((127.5,), (2.0,))), ("1,2,3/4, 5,-6", ((1, 2, 3), (4, 5, -6)))):
        (operand,) = inputs.input_operands(inputs.with_normalization(model, text))
        assert operand.normalization == expected
        assert inputs.describe_image(operand, "--normalize").endswith(", from --normalize")
    for text in ("", "1", "1/2/3", "a/b", "1,/2"):
        with pytest.raises(CommandError, match=f"^invalid --normalize '{text}': expected MEAN/STD"):
            inputs.with_normalization(model, text)
    for text in ("1/0", "1,2/1", "nan/1", "1/inf"):
        with pytest.raises(CommandError, match=r"this one takes TENSOR_FLOAT32 \[1, 4, 2, 3\]"):
            inputs.with_normalization(model, text)


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
        [image_operand(OperandType.TENSOR_QUANT16_SYMM, 1, 4, 4, 3)],
    ],
)
def test_models_without_an_image_input_are_rejected(operands: list[TensorInfo], tmp_path: Path) -> None:
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


def two_inputs(*states: ModelState) -> Model:
    operand = Operand(OperandType.TENSOR_FLOAT32, (2,), lifetime=OperandLifeTime.SUBGRAPH_INPUT)
    return Model(Subgraph((operand, operand), (), (0, 1), (0, 1)), input_names=("a", "b"), states=states)


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a"), ("arr_0", "arr_1")])
def test_archive_has_inputs_by_name_or_in_order(names: tuple[str, str], tmp_path: Path) -> None:
    values = {"a": [1, 2], "b": [3, 4], "arr_0": [1, 2], "arr_1": [3, 4]}
    with zipfile.ZipFile(tmp_path / "in.npz", "w") as archive:
        for name in names:
            with archive.open(f"{name}.npy", "w") as file:
                np.save(file, np.array(values[name], np.float32))
    first, second = inputs.read_inputs(two_inputs(), None, [tmp_path / "in.npz"])
    assert (first.tolist(), second.tolist()) == ([1, 2], [3, 4])


def test_invalid_archives_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "in.npz"

    def check(message: str, *more: Path) -> None:
        with pytest.raises(CommandError, match=message):
            inputs.read_inputs(two_inputs(), None, [path, *more])

    np.savez(path, a=np.zeros(2, np.float32))
    check("there is no value for input 'b'")
    check("which has all inputs", path)
    np.savez(path, a=np.zeros(2, np.float32), c=np.zeros(2, np.float32))
    check("no input is named 'c'; there are a, b")
    np.savez(path, a=np.array([None]))
    check(r"cannot read a\.npy in .*in\.npz: it has Python objects")
    path.write_bytes(path.read_bytes()[:40])
    check("the archive is damaged")


def test_states_are_not_inputs(tmp_path: Path) -> None:
    model = two_inputs(ModelState("s", 0, 1, np.array([5, 6], np.float32)))
    np.savez(tmp_path / "in.npz", b=np.array([1, 2], np.float32))
    (array,) = inputs.read_inputs(model, None, [tmp_path / "in.npz"])
    assert array.tolist() == [1, 2] and len(inputs.random_inputs(inputs.input_operands(model))) == 1
    assert [value.tolist() for value in inputs.with_initial_states(model, [array])] == [[5, 6], [1, 2]]


def test_channels_may_come_first(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4), (0, 100, 255)).save(tmp_path / "plain.png")
    operand = image_operand(OperandType.TENSOR_FLOAT32, 1, 3, 4, 5)
    array = inputs.read_image(tmp_path / "plain.png", [operand])
    assert array.shape == (1, 3, 4, 5) and array[0, :, 0, 0].tolist() == pytest.approx([0, 100 / 255, 1])
    assert inputs.describe_image(operand).startswith("resized to 5x4, pixels / 255")


@pytest.mark.parametrize("given", [np.float64, np.int64])
def test_arrays_of_wider_types_are_converted_unless_that_changes_them(given: type, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", a=np.ones(2, given), b=np.ones(2, np.float32))
    first, second = inputs.check_inputs(two_inputs(), [tmp_path / "in.npz"])
    assert first.dtype == second.dtype == np.float32
    np.savez(tmp_path / "in.npz", a=np.ones(2, np.float32), b=np.full(2, 2**40 + 1, np.int64))
    with pytest.raises(CommandError, match=r"input 1 \(b\) is int64; the model takes float32"):
        inputs.check_inputs(two_inputs(), [tmp_path / "in.npz"])


def test_sounds_become_windows_of_the_length_of_the_input(tmp_path: Path) -> None:
    path = write_wav(tmp_path / "five.wav", [0, 0.25, 0.5, -0.5, -1])
    first, second = inputs.read_sound(path, [image_operand(OperandType.TENSOR_FLOAT32, 1, 3)])
    assert (first.tolist(), second.tolist()) == ([[0, 0.25, 0.5]], [[-0.5, -1, 0]])
    (whole,) = inputs.read_sound(path, [image_operand(OperandType.TENSOR_FLOAT32, 0)])
    assert whole.tolist() == [0, 0.25, 0.5, -0.5, -1]
    (faster,) = inputs.read_sound(path, [image_operand(OperandType.TENSOR_FLOAT32, 0)], 2 * inputs.SAMPLE_RATE)
    assert faster[:4].tolist() == [0, 0.125, 0.25, 0.375]
    for operands in ([], [image_operand(OperandType.TENSOR_FLOAT32, 1, 49, 10, 1)]):
        with pytest.raises(CommandError, match=r"five.wav needs a model with one float input of samples \[N\]"):
            inputs.read_sound(path, operands)
    (tmp_path / "text.wav").write_text("no sound")
    with pytest.raises(CommandError, match=r"text.wav: it is not a .wav file"):
        inputs.read_sound(tmp_path / "text.wav", [image_operand(OperandType.TENSOR_FLOAT32, 1, 3)])


def test_folders_stand_for_their_files(tmp_path: Path) -> None:
    for name in ("b.png", "a.JPG", "c.wav", "d.npy", "notes.txt"):
        (tmp_path / name).touch()
    (tmp_path / "empty").mkdir()
    found = inputs.find_files([tmp_path / "d.npy", tmp_path, tmp_path / "notes.txt"])
    assert [path.name for path in found] == ["d.npy", "a.JPG", "b.png", "c.wav", "notes.txt"]
    assert [inputs.kind_of(path) for path in found] == ["arrays", "image", "image", "sound", "image"]
    with pytest.raises(CommandError, match="there are no images, sounds"):
        inputs.find_files([tmp_path / "empty"])
