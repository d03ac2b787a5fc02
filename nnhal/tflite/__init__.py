"""Import of TensorFlow Lite models: `load` a .tflite file, or `parse` its bytes, into a `Model`.

The large constants stay where they are: a pool of the model is a window on the file. `reader` knows flatbuffers,
`operators` knows what each TFLite operator is in NNAPI; nothing here knows the service. Needs the extra
`nnhal[tflite]`.
"""

import os
from pathlib import Path

import numpy as np

from nnhal.tflite.convert import convert
from nnhal.tflite.errors import TfliteError, place
from nnhal.tflite.reader import read
from nnhal.types import Bytes, Model

__all__ = ["TfliteError", "load", "parse"]


def load(path: str | os.PathLike[str]) -> Model:
    """Imports the main subgraph of a .tflite file.

    The file is mapped, not read: it must stay unchanged while the model is in use.

    Returns:
        A model with the file's inputs and outputs, in its order, under the names of its tensors. Where a shape has an
        unknown batch, it is the concrete one of the file. int64 tensors have become TENSOR_INT32, and tensors of rank
        0 have shape [1].

    Raises:
        TfliteError: the file is damaged, or has something that NNAPI lacks.
        OSError: the file cannot be opened.
    """
    mapped = np.memmap(path, np.uint8, "r") if os.path.getsize(path) else np.empty(0, np.uint8)
    return _import(mapped.view(np.ndarray), Path(path).name)


def parse(data: bytes, name: str = "model") -> Model:
    """Imports a model from the bytes of a .tflite file; as `load`.

    Args:
        data: the file; not copied, the model refers to it.
        name: what error messages call it.

    Raises:
        TfliteError: the bytes are damaged, or have something that NNAPI lacks.
    """
    return _import(np.frombuffer(data, np.uint8), name)


def _import(data: Bytes, name: str) -> Model:
    with place(name):
        return convert(read(data))
