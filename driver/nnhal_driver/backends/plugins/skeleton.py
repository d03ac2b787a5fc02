"""Skeleton of a new backend: its code, tests, package and CI.

`nnhal new-backend` runs this module as

python -P -m nnhal_driver.backends.plugins.skeleton VENDOR NAME python|c FOLDER
"""

import re
import sys
from collections.abc import Callable, Mapping
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
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return [folder / path for path in files]


def _python(vendor: str, name: str) -> dict[str, str]:
    file = f"{vendor}_{name}_backend.py"
    own = {
        "PY_MODULES": f'"{vendor}_{name}_backend"',
        "REFERENCE": ", its names by `python -m pydoc nnhal_backend.v1`",
        "INSTALL": "pip install --editable '.[test]'",
        "TEST": "pytest",
        "FILES": f"| `{file}` | the backend |",
    }
    return _fill(vendor, name, file, own, {file: "python_backend.py.txt"})


def _c(vendor: str, name: str) -> dict[str, str]:
    """Return the C example under other names, with its header."""
    file = f"{vendor}_{name}_backend.so"
    source = f"{vendor}_{name}_backend.c"
    own = {
        "PY_MODULES": "",
        "REFERENCE": " and in `nnhal_backend.h`",
        "INSTALL": "pip install '.[test]'",
        "TEST": "make test",
        "FILES": f"""\
| `{source}` | the backend |
| `nnhal_backend.h` | the interface, and all that the backend needs to compile |
| `nnhal_types.h` | the numbers of the HAL's operand and operation types |
| `Makefile` | builds `{file}` |
| `setup.py` | builds the backend for `pip install` |""",
    }
    example = (_NATIVE / "example" / "Example_Simple_backend.c").read_text()
    for old, new in (
        ("com.example.simple", f"com.{vendor}.{name}".lower()),
        ("Example_Simple", f"{vendor}_{name}"),
        ('"Simple"', f'"{name}"'),
    ):
        example = example.replace(old, new)
    headers = {header: (_NATIVE / header).read_text() for header in ("nnhal_backend.h", "nnhal_types.h")}
    built = _fill(vendor, name, file, own, {"Makefile": "Makefile.txt", "setup.py": "setup.py.txt"})
    return {source: example, **headers, **built}


_FILES: dict[str, Callable[[str, str], dict[str, str]]] = {"python": _python, "c": _c}


def _fill(vendor: str, name: str, file: str, own: Mapping[str, str], templates: Mapping[str, str]) -> dict[str, str]:
    """Return the files from templates of a language, and of both, with their placeholders, words like @THIS@."""
    values = {
        "VENDOR": vendor,
        "NAME": name,
        "LOWER": name.lower(),
        "PACKAGE": f"{vendor}-{name}-nnhal-backend".lower(),
        "EXTENSION": f"com.{vendor}.{name}".lower(),
        "FILE": file,
        "MAJOR": str(API_VERSION[0]),
        "MINOR": str(API_VERSION[1]),
        **own,
    }
    common = {
        f"test_{name.lower()}.py": "test_backend.py.txt",
        "pyproject.toml": "pyproject.toml.txt",
        "README.md": "README.md.txt",
        ".github/workflows/test.yml": "workflow.yml.txt",
    }
    return {
        path: re.sub("@([A-Z_]+)@", lambda match: values[match[1]], (_TEMPLATES / template).read_text())
        for path, template in {**templates, **common}.items()
    }


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
