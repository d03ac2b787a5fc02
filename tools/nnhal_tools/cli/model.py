"""Loading of the model that a command is given."""

from pathlib import Path
from typing import TYPE_CHECKING

from nnhal_tools.cli.errors import CommandError, error_text

if TYPE_CHECKING:
    from nnhal.types import Model


def load_model(path: Path) -> "Model":
    """Return the model of a .tflite file.

    Raises:
        CommandError: the file is unreadable, or contains something that NNAPI cannot express.
    """
    from nnhal import tflite

    try:
        return tflite.load(path)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error_text(error)}") from error
    except tflite.TfliteError as error:
        raise CommandError(str(error)) from error
