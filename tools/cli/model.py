"""The model that a command is given."""

from pathlib import Path
from typing import TYPE_CHECKING

from tools.cli.errors import CommandError

if TYPE_CHECKING:
    from nnhal.types import Model


def load(path: Path) -> "Model":
    """The model of a .tflite file.

    Raises:
        CommandError: the file cannot be read, or NNAPI cannot say what is in it.
    """
    from nnhal import tflite
    from tools.cli.inputs import reason

    try:
        return tflite.load(path)
    except OSError as error:
        raise CommandError(f"cannot read {path}: {reason(error)}") from error
    except tflite.TfliteError as error:
        raise CommandError(str(error)) from error
