"""Skeleton of a new backend with its tests.

`nnhal new-backend` runs this module as

python -P -m nnhal_driver.backends.plugins.skeleton VENDOR NAME python|c FOLDER
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from nnhal_driver.backends.api import API_VERSION

_TEMPLATES = Path(__file__).parent / "templates"
_NATIVE = Path(__file__).parent.parent / "native"


class SkeletonError(Exception):
    """The skeleton cannot be written. The message gives the reason."""


def write_skeleton(vendor: str, name: str, language: str, folder: Path) -> list[Path]:
    """Write the files of a new backend into a folder, which is created, and return their paths.

    Raises:
        SkeletonError: vendor or name break the naming rule, or a file exists already.
    """
    for part, text in (("vendor", vendor), ("name", name)):
        if not re.fullmatch("[A-Za-z][A-Za-z0-9]*", text):
            raise SkeletonError(f"the {part} {text!r} must be letters and digits, with a letter first")
    files = {path: text for path, text in _FILES[language](vendor, name).items()}
    if existing := next((path for path in files if (folder / path).exists()), None):
        raise SkeletonError(f"{folder / existing} exists already")
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        (folder / path).write_text(text)
    return [folder / path for path in files]


def _python(vendor: str, name: str) -> dict[str, str]:
    file = f"{vendor}_{name}_backend.py"
    return {
        file: _fill("python_backend.py.txt", vendor, name, file),
        f"test_{name.lower()}.py": _fill("test_backend.py.txt", vendor, name, file),
    }


def _c(vendor: str, name: str) -> dict[str, str]:
    """Return the C example under other names, with its header."""
    file = f"{vendor}_{name}_backend.so"
    example = (_NATIVE / "example" / "Example_Simple_backend.c").read_text()
    for old, new in (
        ("com.example.simple", f"com.{vendor}.{name}".lower()),
        ("Example_Simple", f"{vendor}_{name}"),
        ('"Simple"', f'"{name}"'),
    ):
        example = example.replace(old, new)
    return {
        f"{vendor}_{name}_backend.c": example,
        "nnhal_backend.h": (_NATIVE / "nnhal_backend.h").read_text(),
        "Makefile": _fill("Makefile.txt", vendor, name, file),
        f"test_{name.lower()}.py": _fill("test_backend.py.txt", vendor, name, file),
    }


_FILES: dict[str, Callable[[str, str], dict[str, str]]] = {"python": _python, "c": _c}


def _fill(template: str, vendor: str, name: str, file: str) -> str:
    text = (_TEMPLATES / template).read_text()
    values = {"VENDOR": vendor, "NAME": name, "FILE": file, "MAJOR": str(API_VERSION[0]), "MINOR": str(API_VERSION[1])}
    return re.sub("@([A-Z]+)@", lambda match: values[match[1]], text)


def _main(vendor: str, name: str, language: str, folder: str) -> None:
    try:
        for path in write_skeleton(vendor, name, language, Path(folder)):
            print(path)
    except SkeletonError as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(f"cannot write to {folder}: {error.strerror}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
