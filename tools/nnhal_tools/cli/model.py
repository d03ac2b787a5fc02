"""Loading of the model that a command is given."""

from pathlib import Path
from typing import TYPE_CHECKING

from nnhal_tools.cli.errors import CommandError, error_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nnhal.tflite.model_metadata import ModelMetadata
    from nnhal.types import Model


def load_model(path: Path, shapes: "Mapping[str, Sequence[int | None]] | None" = None) -> "Model":
    """Return the model of a .tflite file.

    Args:
        path: the file.
        shapes: shapes of inputs by name, in place of those of the file.

    Raises:
        CommandError: the file is unreadable, or contains something that NNAPI cannot express.
    """
    from nnhal import tflite

    try:
        return tflite.load(path, shapes=shapes)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error_text(error)}") from error
    except tflite.TfliteError as error:
        raise CommandError(str(error)) from error


def read_metadata(path: Path) -> "ModelMetadata | str":
    """Return the metadata of a .tflite file that has been loaded, or a note on why it has none."""
    from nnhal import tflite

    try:
        return tflite.metadata(path) or "the file has no metadata"
    except (OSError, tflite.TfliteError) as error:
        return f"metadata ignored: {error}"
