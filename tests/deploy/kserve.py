"""Types of KServe, from its Python package. Its files are read, and not imported: it needs many other packages."""

import ast
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "build" / "kserve"
VERSION = "0.21.0"
TIMEOUT_S = 600


class _Type(NamedTuple):
    """Types by the names of fields, and the fields that must be there."""

    fields: dict[str, str]
    required: set[str]


@cache
def _package() -> zipfile.ZipFile:
    wheel = FOLDER / f"kserve-{VERSION}-py3-none-any.whl"
    if not wheel.is_file():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", f"--dest={FOLDER}"]
        command.append(f"kserve=={VERSION}")
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        if done.returncode:
            pytest.skip(f"the package of KServe is not to be had: {done.stderr.strip().splitlines()[-1:]}")
    return zipfile.ZipFile(wheel)


def _source(module: str) -> str:
    return _package().read(f"kserve/models/{module}.py").decode()


@cache
def _type(name: str) -> _Type | None:
    """Return a type of KServe; None for one that is not its own."""
    found = re.search(rf"^from kserve\.models\.(\w+) import {name}$", _source("__init__"), re.MULTILINE)
    if found is None:
        return None
    source = _source(found[1])
    types, names = (
        ast.literal_eval(re.findall(rf"{table} = (\{{.*?\}})", source, re.DOTALL)[0])
        for table in ("openapi_types", "attribute_map")
    )
    required = {names[field] for field in re.findall(r"Invalid value for `(\w+)`, must not be `None`", source)}
    return _Type({names[field]: types[field] for field in types}, required)


def faults(value: Any, type_: str, path: str) -> Iterator[str]:
    """Yield what is wrong with a value of a type, below a path: fields that are missing or unknown, and wrong types."""
    element = re.fullmatch(r"list\[(\w+)\]", type_)
    known = _type(type_)
    if element is not None and isinstance(value, list):
        for index, each in enumerate(value):
            yield from faults(each, element[1], f"{path}[{index}]")
    elif known is not None and isinstance(value, dict):
        yield from (f"{path}: no {name}" for name in known.required - value.keys())
        yield from (f"{path}.{name}: unknown" for name in value.keys() - known.fields.keys())
        for name in value.keys() & known.fields.keys():
            yield from faults(value[name], known.fields[name], f"{path}.{name}")
    elif element is not None or known is not None or not isinstance(value, _PLAIN.get(type_, object)):
        yield f"{path}: {value!r} is not a {type_}"


_PLAIN = {"str": str, "bool": bool, "int": int}
