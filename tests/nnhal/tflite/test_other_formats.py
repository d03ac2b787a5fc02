"""Models of other formats are named, with the command that converts them."""

import io
import zipfile
from pathlib import Path

import pytest

from nnhal import tflite
from tests.nnhal.tflite.build import Op, Tensor, build
from tests.tools.cli.command import assert_fails, invoke


def archive(*names: str) -> bytes:
    """Return a ZIP archive with empty files."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as writer:
        for name in names:
            writer.writestr(name, "")
    return data.getvalue()


ONNX = b"\x08\x08\x12\x04onnx\x3a\x10"
CASES = [
    ("model.onnx", ONNX, "is an ONNX model", "onnx2tf -i {}"),
    ("model", ONNX, "is an ONNX model", "onnx2tf -i {}"),
    ("model.onnx", b"damaged", "is an ONNX model", "onnx2tf -i {}"),
    ("model.pt2", archive("m/serialized_exported_program.json"), "is a PyTorch model", 'torch.export.load("{}")'),
    ("model.pt", archive("model/data.pkl"), "its weights need the code", "torch.export.export(MODEL.eval()"),
    ("model", archive("archive/data.pkl"), "is a PyTorch model", "litert_torch.convert"),
    ("model.safetensors", b"\x40" + bytes(20), "is a PyTorch model", "litert_torch.convert"),
    ("model.keras", archive("config.json", "model.weights.h5"), "is a Keras model", 'load_model("{}")'),
    ("model", archive("metadata.json", "config.json"), "is a Keras model", "from_keras_model"),
    ("model.h5", b"\x89HDF\r\n\x1a\n", "is a Keras model", 'load_model("{}")'),
    ("model", b"\x89HDF\r\n\x1a\n", "is a Keras model", "from_keras_model"),
    ("frozen.pb", b"\x0a\x10", "is a TensorFlow model", "from_saved_model"),
]


@pytest.mark.parametrize(("name", "data", "words", "command"), CASES)
def test_command_that_converts_is_named(name: str, data: bytes, words: str, command: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    for load in (tflite.load, tflite.inspect, tflite.metadata, tflite.signatures):
        with pytest.raises(tflite.TfliteError) as caught:
            load(path)
        text = str(caught.value)
        assert text.startswith(f"{name}: ") and words in text and command.format(path) in text
        assert "not a .tflite file; convert it (docs/converting.md)" in text
    assert_fails(invoke("run", path), 2, words, "convert it")


def test_folder_of_a_saved_model(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"\x08\x01\x12\x05serve")
    for path in (tmp_path, tmp_path / "saved_model.pb"):
        with pytest.raises(tflite.TfliteError, match=rf'from_saved_model\("{tmp_path}"\)'):
            tflite.load(path)
    (tmp_path / "other").mkdir()
    with pytest.raises(IsADirectoryError):
        tflite.load(tmp_path / "other")


def test_bytes_are_recognized_by_their_contents() -> None:
    with pytest.raises(tflite.TfliteError, match="model: is an ONNX model"):
        tflite.parse(ONNX)
    with pytest.raises(tflite.TfliteError, match="the identifier TFL3 is missing"):
        tflite.parse(b"something else")


def test_contents_decide_not_the_suffix(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(build(Op("RELU", [Tensor((1, 2))], [Tensor((1, 2))])))
    assert len(tflite.load(path).main.operations) == 1
