"""What must be touched to add an operation or a backend: few files, each found by its name in the tree.

An operation has its number in the enumeration of the HAL (`nnhal/enums.py` and the contract, which are complete), and
at most four modules name it besides: its signature, its shape rule, its kernel and its converter, one family a module.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from nnhal.types import OperationType

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("nnhal", "driver", "service", "cache", "tools")

PLACES = {
    "nnhal/operations/": "its signature",
    "driver/operations/": "its shape rule, and what depends on shapes",
    "driver/backends/reference/": "its kernel",
    "driver/backends/litert/operations/": "its converter",
}
CONTROL_FLOW = {
    "nnhal/builder/control_flow.py": "its form, for clients",
    "driver/validation/control_flow.py": "its form, for the device",
    "driver/placement.py": "no backend is asked about it",
    "driver/control_flow.py": "it is a node of the plan",
}
"""IF and WHILE have neither a signature nor a kernel."""
USERS = {
    "nnhal/tflite/operators/": "the operators of TFLite, and what each becomes: a list of their own",
    "driver/workloads.py": "models that are timed",
    "driver/backends/example/": "an example for authors of backends",
    "tools/benchmark/": "models that are timed",
    "tools/conformance/selftest/": "devices with a fault in one operation",
}
"""They use operations that are there. A new one needs nothing in them."""


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith("nnhal/v1/"):
                yield name, ast.parse(path.read_text())


def operations_named(tree: ast.Module) -> set[str]:
    """The operations that a module names, as members of OperationType under whatever name it is imported."""
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == "OperationType"
    }
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=member) if owner in names:
                found.add(member)
            case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=str(member))) if owner in names:
                found.add(member)
    return found & set(OperationType.__members__)


def _place(module: str, places: Mapping[str, str]) -> str | None:
    return next((place for place in places if module.startswith(place)), None)


@pytest.fixture(scope="module")
def naming() -> Mapping[str, Sequence[str]]:
    """The modules that name each operation, but for those that only use it."""
    found = defaultdict(list)
    for module, tree in _modules():
        if not _place(module, USERS):
            for name in operations_named(tree):
                found[name].append(module)
    return found


@pytest.mark.parametrize("operation", OperationType, ids=lambda operation: operation.name)
def test_at_most_four_files_name_an_operation(operation: OperationType, naming: Mapping[str, Sequence[str]]) -> None:
    modules = naming[operation.name]
    places = CONTROL_FLOW if operation in (OperationType.IF, OperationType.WHILE) else PLACES
    assert 3 <= len(modules) <= 4, modules
    assert len({_place(module, places) for module in modules} - {None}) == len(modules), modules


@pytest.mark.parametrize(
    "text",
    [
        "from nnhal.types import OperationType\nX = OperationType.ADD",
        "from nnhal.types import OperationType as Op\ndef f(): return {Op.ADD: 1}",
        "from nnhal.enums import OperationType\nX = OperationType['ADD']",
    ],
)
def test_a_name_is_seen(text: str) -> None:
    assert operations_named(ast.parse(text)) == {"ADD"}


# ---- Backends -------------------------------------------------------------------------------------------

BACKENDS = {
    "CpuAcc": ("driver/backends/litert/", ("CpuAcc", "driver.backends.litert", "ai_edge_litert", "ai-edge-litert")),
    "CpuRef": ("driver/backends/reference/", ("CpuRef", "driver.backends.reference")),
}
"""The folder of each, and the words that lead to it."""

ANOTHER_ROLE = {
    "driver/performance.py": "the ratios that the HAL asks for are ratios to CpuRef",
    "driver/backends/litert/compiled.py": "CpuRef does what the engine fails to do",
    "tools/cli/compare.py": "names both as defaults: two backends are compared",
    "tools/benchmark/server_kinds.py": "a bare server with the engine, and none of ours",
    "tools/benchmark/warm_start.py": "the engine alone, which a warm start is compared with",
    "tools/demo/train_digits.py": "writes the demo's model, and asks the engine alone whether it is right",
}
"""They name a backend, or its engine, for what it is. A new one needs nothing in them."""


def words_of(tree: ast.Module) -> set[str]:
    """Names, imported modules and strings of a module, but for its docstrings."""
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    words: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in statements:
                words.add(text)
            case ast.Name(id=name) | ast.Attribute(attr=name):
                words.add(name)
            case ast.Import(names=names):
                words.update(alias.name for alias in names)
            case ast.ImportFrom(module=str(name), names=names):
                words.update((name, *(alias.name for alias in names)))
    return words


@pytest.mark.parametrize("backend", BACKENDS)
def test_at_most_three_files_name_a_backend(backend: str) -> None:
    """Outside of its own folder: the default order of the service, and the package that its engine comes from."""
    folder, marks = BACKENDS[backend]
    found = [
        module
        for module, tree in _modules()
        if not module.startswith(folder)
        and module not in ANOTHER_ROLE
        and any(word.startswith(marks) for word in words_of(tree))
    ]
    project = (ROOT / "pyproject.toml").read_text()
    found += ["pyproject.toml"] if any(mark in project for mark in marks) else []
    assert found[0] == "service/settings.py" and len(found) <= 3, found
