"""Loading of the model that a command is given."""

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from nnhal_tools.cli.errors import CommandError, error_text, print_error
from nnhal_tools.cli.options import CONNECT_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nnhal.tflite.model_metadata import ModelMetadata
    from nnhal.tflite.report import ImportReport
    from nnhal.types import Model


def load_model(
    path: Path,
    shapes: "Mapping[str, Sequence[int | None]] | None" = None,
    *,
    extension: bool = True,
    signature: str | None = None,
) -> "Model":
    """Return the model of a .tflite file, with the extension also if NNAPI lacks some of its operators.

    `shapes` are shapes of inputs by name, in place of those of the file. `signature` is the key of the subgraph, by
    default the main one: a file with several signatures then says on stderr which there are.

    Raises:
        CommandError: the file is unreadable, or contains something that NNAPI cannot express.
    """
    from nnhal import tflite

    with _reading(path):
        if signature is None and len(keys := tflite.signatures(path)) > 1:
            print_error(f"{path.name} has the signatures {', '.join(keys)}; using its main subgraph")
        return tflite.load(path, shapes=shapes, extension=extension, signature=signature)


def named_model(path: Path, target: str | None) -> str:
    """Return the name of a model that a service has, or "" for a file."""
    return str(path) if target and path.suffix != ".tflite" and not path.exists() else ""


def describe_named(name: str, target: str | None) -> "tuple[Model, Sequence[str]]":
    """Return inputs and outputs of a model that a service has, and the names of its classes, or ()."""
    import nnhal

    with nnhal.connect(target, timeout=CONNECT_S) as device:
        prepared = device.model(name)
        return prepared.model, prepared.labels


def inspect_model(
    path: Path,
    shapes: "Mapping[str, Sequence[int | None]] | None" = None,
    *,
    extension: bool = True,
    signature: str | None = None,
) -> "ImportReport":
    """Return what the import makes of each operator of a .tflite file. Arguments are those of `load_model`.

    Raises:
        CommandError: the file is unreadable or damaged.
    """
    from nnhal import tflite

    with _reading(path):
        return tflite.inspect(path, shapes=shapes, extension=extension, signature=signature)


@contextmanager
def _reading(path: Path) -> "Iterator[None]":
    """Turn errors of the import into CommandError."""
    from nnhal import tflite

    try:
        yield
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error_text(error)}") from error
    except tflite.TfliteError as error:
        raise CommandError(str(error)) from error


def read_metadata(path: Path) -> "ModelMetadata":
    """Return the metadata of a .tflite file, which is empty if it has none. Damaged metadata is reported on stderr."""
    from nnhal import tflite
    from nnhal.tflite.model_metadata import ModelMetadata

    try:
        return tflite.metadata(path) or ModelMetadata()
    except (OSError, tflite.TfliteError) as error:
        print_error(f"{error_text(error)}; continuing without metadata")
        return ModelMetadata()
