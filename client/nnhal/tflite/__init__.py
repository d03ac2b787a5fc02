"""Import of TensorFlow Lite models: `load` a .tflite file, or `parse` its bytes, into a `Model`.

The stages of an import, each in a module: `reader` parses the flatbuffer. `variables` turns resource variables into
inputs and outputs. `fold` evaluates what depends on constants only. `lower` converts operators to NNAPI operations with
the functions in `operators`, and groups those that NNAPI lacks into regions, which `submodel` writes as operations of
the LiteRT extension. `report` tells what became of each operator.

Large constants are not copied: a pool of the model is a window on the file. The import does not depend on a connection.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nnhal.tflite.errors import TfliteError, prefix_errors
from nnhal.types import Bytes, Model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nnhal.tflite.model_metadata import ModelMetadata
    from nnhal.tflite.report import ImportReport
    from nnhal.tflite.shapes import Shapes

__all__ = ["TfliteError", "inspect", "load", "metadata", "parse", "signatures"]


_ADVICE = "nnhal.litert.Interpreter has LiteRT run in the program what no device runs"


class _Options(NamedTuple):
    """Arguments of `import_model`."""

    extension: bool
    shapes: "Shapes"
    subgraph: int | str
    folder: Path | None = None


def load(
    path: str | os.PathLike[str],
    *,
    extension: bool = True,
    shapes: "Mapping[str, Sequence[int | None]] | None" = None,
    signature: str | None = None,
) -> Model:
    """Import a .tflite file.

    The file is mapped, not read: it must stay unchanged while the model is in use.

    Args:
        path: the file.
        extension: whether operators that NNAPI lacks become operations of the LiteRT extension, which not every device
            supports.
        shapes: shapes of inputs, by their names, in place of those of the file: `{"image": (8, 224, 224, 3)}`. None is
            an unknown dimension: each execution may have another length.
        signature: key of the subgraph to import, see `signatures`; by default the main one. Inputs and outputs have
            the names of the signature.

    Returns:
        A model with the inputs and outputs of the file, in the same order and with the names of their tensors. Further
        inputs and outputs are the variables of the file: see `Model.states`. If the batch of a shape is unknown, the
        shape is the concrete one of the file. Tensors of int64 become TENSOR_INT32 where an NNAPI operation uses them,
        and tensors of rank 0 get shape [1].

    Raises:
        TfliteError: the file is damaged, or a part of it is not supported. The message names each such operator.
        OSError: the file cannot be opened.
    """
    options = _Options(extension, shapes or {}, _subgraph(signature), Path(path).parent)
    model = _import_model(_map_file(path), Path(path).name, options)
    return replace(model, name=os.fsencode(Path(path).stem).decode(errors="replace"))  # no half surrogate pairs


def parse(
    data: bytes,
    name: str = "model",
    *,
    extension: bool = True,
    shapes: "Mapping[str, Sequence[int | None]] | None" = None,
    signature: str | None = None,
) -> Model:
    """Import a model from the bytes of a .tflite file, like `load`. The model refers to them without a copy.

    `name` is that of the file in error messages.

    Raises:
        TfliteError: the contents are damaged, or a part of them is not supported.
    """
    from nnhal.tflite.other_formats import check_format  # noqa: PLC0415

    contents = np.frombuffer(data, np.uint8)
    check_format(Path(name), contents)
    return _import_model(contents, name, _Options(extension, shapes or {}, _subgraph(signature)))


def inspect(
    path: str | os.PathLike[str],
    *,
    extension: bool = True,
    shapes: "Mapping[str, Sequence[int | None]] | None" = None,
    signature: str | None = None,
) -> "ImportReport":
    """Return what `load` makes of each operator of a file, and why it cannot import the file if so.

    The arguments are those of `load`.

    Raises:
        TfliteError: the file is damaged, or a shape does not match the file.
        OSError: the file cannot be opened.
    """
    return _run_stages(
        _map_file(path), Path(path).name, _Options(extension, shapes or {}, _subgraph(signature), Path(path).parent)
    )[1]


def metadata(path: str | os.PathLike[str]) -> "ModelMetadata | None":
    """Return the TFLite metadata of a file: labels, normalization and contents of its inputs and outputs.

    It is None if the file has none.

    Raises:
        TfliteError: the file or its metadata is damaged.
        OSError: the file cannot be opened.
    """
    from nnhal.tflite.model_metadata import parse_metadata  # noqa: PLC0415

    with prefix_errors(Path(path).name):
        return parse_metadata(_map_file(path).data)


def signatures(path: str | os.PathLike[str]) -> list[str]:
    """Return the keys of the signatures of a file, which `load` can import.

    Raises:
        TfliteError: the file is damaged.
        OSError: the file cannot be opened.
    """
    from nnhal.tflite.reader import read  # noqa: PLC0415

    with prefix_errors(Path(path).name):
        graphs = read(_map_file(path), Path(path).parent)
        return [signature.key for graph in graphs for signature in graph.signatures]


def _subgraph(signature: str | None) -> int | str:
    """Return the subgraph of a signature, for `import_model`."""
    return 0 if signature is None else signature


def __dir__() -> list[str]:
    return __all__


def _map_file(path: str | os.PathLike[str]) -> Bytes:
    from nnhal.tflite.other_formats import check_folder, check_format  # noqa: PLC0415

    check_folder(Path(path))
    mapped = np.memmap(path, np.uint8, "r") if os.path.getsize(path) else np.empty(0, np.uint8)
    check_format(Path(path), mapped)
    return mapped.view(np.ndarray)


def _import_model(data: Bytes, name: str, options: _Options) -> Model:
    model, report = _run_stages(data, name, options)
    if model is None:
        refusals = report.refusals()
        more = f" (and {len(refusals) - 1} more: see `nnhal explain`)" if len(refusals) > 1 else ""
        raise TfliteError(f"{name}: {refusals[0]}{more}; {_ADVICE}")
    return model


def _run_stages(data: Bytes, name: str, options: _Options) -> "tuple[Model | None, ImportReport]":
    from nnhal.tflite.import_model import import_model  # noqa: PLC0415

    with prefix_errors(name):
        return import_model(data, **options._asdict())
