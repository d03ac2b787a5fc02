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
    values = {
        **_values(vendor, name, file),
        "PY_MODULES": f'"{vendor}_{name}_backend"',
        "REFERENCE": ", its names by `python -m pydoc nnhal_backend.v1`",
        "INSTALL": "pip install --editable '.[test]'",
        "TEST": "pytest",
        "FILES": f"| `{file}` | the backend |",
    }
    return {file: _fill("python_backend.py.txt", values)} | _project(name, values)


def _c(vendor: str, name: str) -> dict[str, str]:
    """Return the C example under other names, with its header."""
    file = f"{vendor}_{name}_backend.so"
    source = f"{vendor}_{name}_backend.c"
    values = {
        **_values(vendor, name, file),
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
    return {
        source: example,
        **{name: (_NATIVE / name).read_text() for name in ("nnhal_backend.h", "nnhal_types.h")},
        "Makefile": _fill("Makefile.txt", values),
        "setup.py": _fill("setup.py.txt", values),
    } | _project(name, values)


_FILES: dict[str, Callable[[str, str], dict[str, str]]] = {"python": _python, "c": _c}


def _project(name: str, values: Mapping[str, str]) -> dict[str, str]:
    """Return the files that both languages have."""
    return {
        f"test_{name.lower()}.py": _fill("test_backend.py.txt", values),
        "pyproject.toml": _fill("pyproject.toml.txt", values),
        "README.md": _fill("README.md.txt", values),
        ".github/workflows/test.yml": _fill("workflow.yml.txt", values),
    }


def _values(vendor: str, name: str, file: str) -> dict[str, str]:
    return {
        "VENDOR": vendor,
        "NAME": name,
        "LOWER": name.lower(),
        "PACKAGE": f"{vendor}-{name}-nnhal-backend".lower(),
        "EXTENSION": f"com.{vendor}.{name}".lower(),
        "FILE": file,
        "MAJOR": str(API_VERSION[0]),
        "MINOR": str(API_VERSION[1]),
    }


def _fill(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its placeholders, words like @THIS@, replaced."""
    return re.sub("@([A-Z_]+)@", lambda match: values[match[1]], (_TEMPLATES / template).read_text())


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
