"""Tests that a new operation or backend changes few files, which are found by their names.

The enumeration of the HAL (`client/nnhal/enums.py` and the contract) has all operations. At most four other modules
name an operation: its signature, its shape rule, its kernel and its converter. They are modules of the same family.
"""

import ast
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from nnhal.types import OperationType

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("client", "driver", "service", "cache", "tools")

PLACES = {
    "client/nnhal/operations/": "its signature",
    "driver/nnhal_driver/operations/": "its shape rule",
    "driver/nnhal_driver/backends/reference/": "its kernel",
    "driver/nnhal_driver/backends/litert/operations/": "its converter",
}
CONTROL_FLOW = {
    "client/nnhal/rules/control_flow.py": "its rules, for clients and the device",
    "client/nnhal_ndk/execution/assignment.py": "its performance, which capabilities state apart",
    "driver/nnhal_driver/compilation/placement.py": "it is not placed on a backend",
    "driver/nnhal_driver/execution/control_flow.py": "its node in the plan",
}
"""IF and WHILE have neither a signature nor a kernel."""
USERS = {
    "client/nnhal/tflite/operators/": "converters of TFLite's operators, a list of its own",
    "client/nnhal/tflite/call.py": "the interface of these converters",
    "driver/nnhal_driver/backends/gpu/operations.py": "what the GPU accelerator takes of the converted ones",
    "driver/nnhal_driver/backends/gpu/trial.py": "the model that a GPU is tried with",
    "driver/nnhal_driver/performance/benchmark_models.py": "models for benchmarks",
    "driver/nnhal_driver/performance/operation_models.py": "models for benchmarks of single operations",
}
"""Modules that use existing operations. A new operation needs no change there."""


@cache
def _modules() -> Mapping[str, ast.Module]:
    """Return the syntax trees of the modules by path, generated code aside."""
    paths = {path.relative_to(ROOT).as_posix(): path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    return {
        name: ast.parse(path.read_text())
        for name, path in sorted(paths.items())
        if not name.startswith(("client/nnhal/v1/", "client/nnhal/admin/v1/", "client/nnhal/inference/"))
    }


def operations_named(tree: ast.Module) -> set[str]:
    """Return the operations that a module names as members of OperationType, also if it is imported as another name."""
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == "OperationType"
    }
    members = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=member) if owner in names:
                members.add(member)
            case ast.Subscript(value=ast.Name(id=owner), slice=ast.Constant(value=str(member))) if owner in names:
                members.add(member)
    return members & set(OperationType.__members__)


def _prefix(module: str, prefixes: Mapping[str, str]) -> str | None:
    return next((prefix for prefix in prefixes if module.startswith(prefix)), None)


@pytest.fixture(scope="module")
def naming() -> Mapping[str, Sequence[str]]:
    """Return the modules that name each operation, except those that only use it."""
    modules = defaultdict(list)
    for module, tree in _modules().items():
        if not _prefix(module, USERS):
            for name in operations_named(tree):
                modules[name].append(module)
    return modules


@pytest.mark.parametrize("operation", OperationType, ids=lambda operation: operation.name)
def test_at_most_four_files_name_an_operation(operation: OperationType, naming: Mapping[str, Sequence[str]]) -> None:
    modules = naming[operation.name]
    places = CONTROL_FLOW if operation in (OperationType.IF, OperationType.WHILE) else PLACES
    assert 3 <= len(modules) <= 4, modules
    assert len({_prefix(module, places) for module in modules} - {None}) == len(modules), modules
    if places is PLACES:
        families = {module.removeprefix(str(_prefix(module, places))) for module in modules}
        assert len(families) == 1, families


@pytest.mark.parametrize(
    "text",
    [
        "from nnhal.types import OperationType\nX = OperationType.ADD",
        "from nnhal.types import OperationType as Op\ndef f(): return {Op.ADD: 1}",
        "from nnhal.enums import OperationType\nX = OperationType['ADD']",
    ],
)
def test_operations_named_finds_members(text: str) -> None:
    assert operations_named(ast.parse(text)) == {"ADD"}


# ---- Backends -------------------------------------------------------------------------------------------

BACKENDS = {
    "CpuAcc": (
        ("driver/nnhal_driver/backends/litert/", "driver/nnhal_driver/backends/gpu/"),  # they share the conversion
        ("CpuAcc", "nnhal_driver.backends.litert", "ai_edge_litert", "ai-edge-litert"),
    ),
    "CpuRef": (("driver/nnhal_driver/backends/reference/",), ("CpuRef", "nnhal_driver.backends.reference")),
}
"""Folders of each backend, and the words that refer to it."""

ANOTHER_ROLE = {
    "driver/nnhal_driver/performance/measurement.py": "the HAL's performance ratios are relative to CpuRef",
    "driver/nnhal_driver/backends/litert/folding.py": "CpuRef's kernels compute operations on constants",
    "driver/nnhal_driver/backends/litert/subgraph.py": "CpuRef runs operations that the engine fails to run",
    "tools/nnhal_tools/bench/paths.py": "measures services beside the engine alone",
    "client/nnhal/litert/local.py": "runs what no device runs, as the program does without nnhal",
    "client/nnhal_delegate/check.py": "tries the delegate in the program that it is for",
    "tools/nnhal_tools/cli/compare.py": "compares two backends, by default these",
    "tools/dev/documents/litert.py": "documents the interpreter that replaces the engine's",
    "tools/dev/documents/tflite.py": "documents TensorFlow Lite's operators and the extension that runs them",
    "tools/dev/train_digits.py": "writes the demo's model, and checks it with the engine alone",
}
"""Modules that name one particular backend or its engine. A new backend needs no change there."""


def words_of(tree: ast.Module) -> set[str]:
    """Return names, imported modules and strings of a module, without its docstrings."""
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
    """Only the default order of the service and the requirement of its engine name it outside its folder."""
    folders, marks = BACKENDS[backend]
    modules = [
        module
        for module, tree in _modules().items()
        if not module.startswith(folders)
        and module not in ANOTHER_ROLE
        and any(word.startswith(marks) for word in words_of(tree))
    ]
    project = (ROOT / "pyproject.toml").read_text()
    modules += ["pyproject.toml"] if any(mark in project for mark in marks) else []
    assert modules[0] == "service/nnhal_service/settings.py" and len(modules) <= 3, modules
