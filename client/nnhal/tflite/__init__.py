"""Import of TensorFlow Lite models: `load` a .tflite file, or `parse` its bytes, into a `Model`.

Large constants are not copied: a pool of the model is a window on the file. `reader` parses flatbuffers, and
`operators` converts each TFLite operator to NNAPI operations. The import does not depend on a connection.
It needs the extra `nnhal[tflite]`. Without the extra, this package can be imported, but `load` and `parse` fail.
"""

import os
from pathlib import Path

import numpy as np

from nnhal.tflite.errors import TfliteError, prefix_errors
from nnhal.types import Bytes, Model

__all__ = ["TfliteError", "load", "parse"]


def load(path: str | os.PathLike[str]) -> Model:
    """Import the main subgraph of a .tflite file.

    The file is mapped, not read: it must stay unchanged while the model is in use.

    Returns:
        A model with the inputs and outputs of the file, in the same order and with the names of their tensors. If the
        batch of a shape is unknown, the shape is the concrete one of the file. int64 tensors become TENSOR_INT32, and
        tensors of rank 0 get shape [1].

    Raises:
        TfliteError: the file is damaged, or NNAPI does not support a part of it.
        OSError: the file cannot be opened.
        ImportError: the extra `nnhal[tflite]` is missing.
    """
    mapped = np.memmap(path, np.uint8, "r") if os.path.getsize(path) else np.empty(0, np.uint8)
    return _import_model(mapped.view(np.ndarray), Path(path).name)


def parse(data: bytes, name: str = "model") -> Model:
    """Import a model from the bytes of a .tflite file, like `load`.

    Args:
        data: the contents of the file. The model refers to them without a copy.
        name: the name of the file in error messages.

    Raises:
        TfliteError: the contents are damaged, or NNAPI does not support a part of them.
        ImportError: the extra `nnhal[tflite]` is missing.
    """
    return _import_model(np.frombuffer(data, np.uint8), name)


def __dir__() -> list[str]:
    return __all__


def _import_model(data: Bytes, name: str) -> Model:
    try:
        from nnhal.tflite.convert import convert  # noqa: PLC0415
        from nnhal.tflite.reader import read  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"tflite", "flatbuffers"}:
            raise
        reason = f"{name}: .tflite files need an extra: pip install 'nnhal[tflite]'"
        raise ModuleNotFoundError(reason, name=error.name) from None
    with prefix_errors(name):
        return convert(read(data))
