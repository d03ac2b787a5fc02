"""Models of other formats: what a file is that is not a .tflite file, and the command that converts it."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nnhal.tflite.errors import TfliteError
from nnhal.types import Bytes


class OtherFormat(NamedTuple):
    """A format of models.

    Attributes:
        suffixes: suffixes of its files.
        contents: bytes that tell it, if its suffix does not: at the beginning, and anywhere in the first 64 KiB.
        command: converts the file NAME.
    """

    description: str
    suffixes: Sequence[str]
    contents: tuple[bytes, bytes]
    command: str


_PYTORCH = (
    'python -c \'import litert_torch, torch; m = torch.export.load("NAME").module(); '
    'litert_torch.convert(m, SAMPLE_INPUTS).export("model.tflite")\''
)
_TENSORFLOW = (
    "python -c 'import tensorflow as tf; "
    'open("model.tflite", "wb").write(tf.lite.TFLiteConverter.from_SOURCE.convert())\''
)
_KERAS = _TENSORFLOW.replace("SOURCE", 'keras_model(tf.keras.models.load_model("NAME"))')
_SAVED_MODEL = _TENSORFLOW.replace("SOURCE", 'saved_model("NAME")')

FORMATS = (
    OtherFormat("an ONNX model", (".onnx",), (b"\x08", b"onnx"), "onnx2tf -i NAME"),
    OtherFormat("a PyTorch model", (".pt2",), (b"PK", b"serialized_exported_program"), _PYTORCH),
    OtherFormat(
        "a PyTorch model (its weights need the code of the model)",
        (".pt", ".pth", ".safetensors"),
        (b"PK", b"data.pkl"),
        "torch.export.save(torch.export.export(MODEL.eval(), SAMPLE_INPUTS), 'model.pt2'), and then "
        + _PYTORCH.replace("NAME", "model.pt2"),
    ),
    OtherFormat("a Keras model", (".keras",), (b"PK", b"config.json"), _KERAS),
    OtherFormat("a Keras model", (".h5", ".hdf5"), (b"\x89HDF", b""), _KERAS),
    OtherFormat("a TensorFlow model", (".pb",), (b"\x08\x01", b"serve"), _SAVED_MODEL.replace("NAME", "FOLDER")),
)
"""The formats, in the order in which they are tried."""


def check_format(path: Path, data: Bytes) -> None:
    """Check that the contents of a file are those of a .tflite file.

    Raises:
        TfliteError: they are not. If they are a model of another format, the message has the command that converts it.
    """
    start = data[: 1 << 16].tobytes()
    if start[4:8] == b"TFL3" or not start:
        return
    for other in FORMATS:
        if path.suffix.lower() in other.suffixes:
            raise _error(other, path)
    for other in FORMATS:
        if start.startswith(other.contents[0]) and other.contents[1] in start:
            raise _error(other, path)


def check_folder(path: Path) -> None:
    """Check that a path is not a folder with a SavedModel of TensorFlow.

    Raises:
        TfliteError: it is one.
    """
    if (path / "saved_model.pb").exists():
        raise _error(OtherFormat("a SavedModel of TensorFlow", (), (b"", b""), _SAVED_MODEL), path)


def _error(other: OtherFormat, path: Path) -> TfliteError:
    command = other.command.replace("NAME", str(path)).replace("FOLDER", str(path.parent))
    text = f"{path.name}: is {other.description}, not a .tflite file; convert it (docs/converting.md)"
    return TfliteError(f"{text}: {command}")
