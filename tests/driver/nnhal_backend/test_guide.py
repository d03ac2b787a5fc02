"""The guide for backend authors names everything of the public interface, in Python and in C."""

import re
from enum import Enum
from pathlib import Path

import pytest

import nnhal_backend.v1
from nnhal_driver.backends.native import abi

GUIDE = Path(__file__).parents[3] / "docs" / "backends.md"
NAMES = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]+`|[*]{2}[^*]+|^    .+$", GUIDE.read_text(), re.MULTILINE))))
"""Words in code, or in bold."""


@pytest.mark.parametrize("name", nnhal_backend.v1.__all__)
def test_guide_names_everything_that_an_author_imports(name: str) -> None:
    assert name in NAMES


def members(class_: type) -> set[str]:
    own = {*vars(class_), *vars(class_).get("__annotations__", {})}
    return {name for name in own if not name.startswith("_")}


CLASSES = """
    Backend CompiledSubgraph CompileOptions Graph OperationCall OperationView Output PerOperationBackend Profile Run
    SubgraphView Operation Operand BackendOptions CustomAllocator
"""
"""Classes whose members a backend reads or writes one by one."""
INTERNAL = {"disabled_extensions", "drop_caches", "subgraph", "use_counts", "extensions"}
"""Members of Graph for the host."""


@pytest.mark.parametrize("name", CLASSES.split())
def test_guide_names_all_members(name: str) -> None:
    class_ = getattr(nnhal_backend.v1, name)
    assert not issubclass(class_, Enum)
    internal = INTERNAL if name == "Graph" else set()
    assert members(class_) - internal - NAMES == set()


def test_guide_names_the_optional_functions_of_native_backends() -> None:
    functions = {name for name, *_ in abi.BackendTable._fields_} - {"struct_size", "major", "minor", "state"}
    assert functions - NAMES == set()
