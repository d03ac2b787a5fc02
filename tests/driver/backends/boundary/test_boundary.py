"""The host calls backends through the boundary only, so that no exception and no answer passes it by."""

import ast
from collections.abc import Iterator
from pathlib import Path

from nnhal_driver.backends.api import Backend

ROOT = Path(__file__).resolve().parents[4]

METHODS = {name for name, value in vars(Backend).items() if callable(value) and not name.startswith("_")}

OWN_CODE = ("litert", "native", "reference", "plugins/templates")
"""Folders with backends, whose classes call their own methods."""
ALLOWED = {
    "driver/nnhal_driver/backends/api.py": {"compile"},  # the default of `load`
    "driver/nnhal_driver/backends/identity.py": {"fingerprint"},  # called by the boundary
    "driver/nnhal_driver/backends/plugins/probe.py": {"capabilities"},  # in a process of its own
}


def calls(path: Path) -> Iterator[str]:
    """Yield the methods of backends that a module calls on a variable or attribute with the name of a backend."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=method)):
                pass
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=owner), attr=method)):
                pass
            case _:
                continue
        if method in METHODS and owner.strip("_").endswith("backend"):
            yield method


def test_methods_of_backends_are_called_at_the_boundary() -> None:
    found = {}
    for folder in ("driver/nnhal_driver", "service/nnhal_service"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if any(name.startswith(f"driver/nnhal_driver/backends/{own}/") for own in (*OWN_CODE, "boundary")):
                continue
            if others := set(calls(path)) - ALLOWED.get(name, set()):
                found[name] = others
    assert found == {}


def test_calls_are_found(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "backend.supports(view)\nself._backend.performance()\nnotify(backend, backend.close)\nre.compile('')"
    )
    assert set(calls(file)) == {"supports", "performance"}
