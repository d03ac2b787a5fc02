"""The structure of the source tree: layers without circles, small folders, one name for one thing."""

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE_ROOTS = ("client", "driver", "cache", "service", "tools")
MAX_MODULES = 20
GENERATED = ("client/nnhal/v1", "client/nnhal/admin/v1", "client/nnhal/inference")

HAL_NAMES = frozenset(
    [
        "Buffer",
        "Burst",
        "Device",
        "Execution",
        "Fence",
        "FencedExecution",
        "Memory",
        "Model",
        "Operand",
        "Operation",
        "PreparedModel",
        "Request",
        "Session",
    ]
)
"""Interfaces and values of the HAL: the client, the service and the driver each have a class of this name."""

LITERT_NAMES = frozenset(["Interpreter"])
"""Classes of LiteRT: the client has replacements, and a backend has wrappers."""


@cache
def _modules() -> Mapping[str, ast.Module]:
    """Syntax trees of the product's modules by path, generated code aside."""
    return {path: ast.parse((ROOT / path).read_text()) for path in _paths()}


def _paths() -> Sequence[str]:
    found = (path.relative_to(ROOT).as_posix() for root in SOURCE_ROOTS for path in (ROOT / root).rglob("*.py"))
    return sorted(path for path in found if not path.startswith(GENERATED))


def _dotted(path: str) -> str:
    name = path.split("/", 1)[1].removesuffix(".py").replace("/", ".")
    return name.removesuffix(".__init__")


@cache
def _imports() -> Mapping[str, frozenset[str]]:
    """Return the product modules that each module imports, also under TYPE_CHECKING and in functions."""
    names = {_dotted(path): path for path in _modules()}
    found: dict[str, set[str]] = defaultdict(set)
    for path, tree in _modules().items():
        for node in ast.walk(tree):
            for name in _imported(node):
                while name and name not in names:
                    name = name.rpartition(".")[0]
                if name and names[name] != path:
                    found[path].add(names[name])
    return {path: frozenset(imported) for path, imported in found.items()}


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _arrows(folder: str) -> dict[str, dict[str, str]]:
    """Arrows between the immediate children of a folder, each with one import that causes it."""
    prefix = folder + "/"
    arrows: dict[str, dict[str, str]] = defaultdict(dict)
    for path, imported in _imports().items():
        if not path.startswith(prefix):
            continue
        child = path[len(prefix) :].split("/")[0]
        for other in imported:
            if other.startswith(prefix):
                target = other[len(prefix) :].split("/")[0]
                if target != child and "__init__.py" not in (target, child):
                    arrows[child].setdefault(target, f"{path} -> {other}")
    return arrows


def _circle(arrows: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the imports of one circle, or nothing."""
    state: dict[str, int] = {}
    trail: list[str] = []

    def visit(node: str) -> list[str]:
        state[node] = 1
        trail.append(node)
        for target in arrows.get(node, {}):
            if state.get(target) == 1:
                nodes = [*trail[trail.index(target) :], target]
                return [arrows[a][b] for a, b in itertools.pairwise(nodes)]
            if target not in state and (circle := visit(target)):
                return circle
        trail.pop()
        state[node] = 2
        return []

    for node in list(arrows):
        if node not in state and (circle := visit(node)):
            return circle
    return []


FOLDERS = sorted({path.rpartition("/")[0] for path in _paths()})


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_children_of_a_folder_import_each_other_without_circles(folder: str) -> None:
    assert _circle(_arrows(folder)) == []


@pytest.mark.parametrize(
    "folder",
    sorted(
        {
            path.parent.relative_to(ROOT).as_posix()
            for root in (*SOURCE_ROOTS, "tests")
            for path in (ROOT / root).rglob("*.py")
        }
        - set(GENERATED)
    ),
)
def test_no_folder_has_too_many_modules(folder: str) -> None:
    modules = [path.name for path in (ROOT / folder).glob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= MAX_MODULES, modules


def _twins(paths: list[str]) -> bool:
    """Return whether two modules are the synchronous and the asyncio form of the same one."""
    return len(paths) == 2 and paths[0].replace("/aio/", "/sync/") == paths[1].replace("/aio/", "/sync/")


def test_a_class_name_occurs_in_one_module() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for path, tree in _modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].add(path)
    repeated = {
        name: sorted(paths)
        for name, paths in places.items()
        if len(paths) > 1 and name not in HAL_NAMES | LITERT_NAMES and not _twins(sorted(paths))
    }
    assert repeated == {}


_IMPORT_OF_TESTS = re.compile(
    r"^\W*(from|import) tests(\.\w+)*\.test_\w+\b|^\W*from tests(\.\w+)* import test_", re.MULTILINE
)


def test_test_modules_are_not_libraries() -> None:
    """Programs in strings count, too."""
    sources = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    assert [path for path, source in sources.items() if _IMPORT_OF_TESTS.search(source)] == []
    for line in ("from tests.a.test_b import c", '    "from tests.a import test_b"', "import tests.test_b as b"):
        assert _IMPORT_OF_TESTS.search(f"x = 1\n{line}\n")


def test_a_circle_is_found() -> None:
    arrows = {"a": {"b": "a -> b"}, "b": {"c": "b -> c"}, "c": {"a": "c -> a"}}
    assert _circle(arrows) == ["a -> b", "b -> c", "c -> a"]
    assert _circle({"a": {"b": "a -> b", "c": "a -> c"}, "b": {"c": "b -> c"}}) == []
