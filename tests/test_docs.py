"""Checks the Markdown documents: links and paths exist, and lines wrap at 100 columns."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE_ROOTS = ("client", "driver", "cache", "service", "tools")
MAX_COLUMNS = 100
DOCUMENTS = subprocess.check_output(["git", "-C", str(ROOT), "ls-files", "*.md"], text=True).split()

TOP_LEVEL = {path.name for path in ROOT.iterdir()}


def _prose(document: str) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines outside of fenced and indented code."""
    fenced = False
    for number, line in enumerate((ROOT / document).read_text().splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line


def _links(document: str) -> Iterator[str]:
    for _, line in _prose(document):
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if "://" not in target and not target.startswith("#"):
                yield target.split("#")[0]


def _paths(document: str) -> Iterator[str]:
    """Yield the repository paths in backticks, for example `driver/nnhal_driver/device.py`."""
    for _, line in _prose(document):
        for text in re.findall(r"`([\w./-]+/[\w./-]*)`", line):
            if text.split("/")[0] in TOP_LEVEL:
                yield text


def _modules(document: str) -> list[str]:
    """Return the modules of the project that a document names, in prose and in commands."""
    text = (ROOT / document).read_text()
    return re.findall(r"\b(nnhal_(?!backend\.h)\w+(?:\.[A-Za-z]\w+)+|nnhal\.(?:client|shm|rules)(?:\.\w+)+)", text)


def _module_exists(name: str) -> bool:
    """Return whether a dotted name is a module, or an attribute of one."""
    parts = name.split(".")
    for root in SOURCE_ROOTS:
        for length in (len(parts), len(parts) - 1, len(parts) - 2):
            path = ROOT / root / "/".join(parts[:length])
            if length > 0 and (path.with_suffix(".py").is_file() or (length == len(parts) and path.is_dir())):
                return True
            if 0 < length < len(parts) and (path / "__init__.py").is_file():
                return parts[length][0].isupper() or parts[length] in (path / "__init__.py").read_text()
    return False


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_resolve(document: str) -> None:
    broken = [target for target in _links(document) if not (ROOT / document).parent.joinpath(target).exists()]
    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_exist(document: str) -> None:
    assert [path for path in _paths(document) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_modules_exist(document: str) -> None:
    assert sorted({name for name in _modules(document) if not _module_exists(name)}) == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_named_tests_exist(document: str) -> None:
    """Documents cite tests as `native/test_execution.py::test_save`. The path may omit its first folders."""
    cited = set(re.findall(r"([\w/]+\.py)::(test_\w+)", (ROOT / document).read_text()))
    sources = {f"/{path.relative_to(ROOT)}": path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    missing = [
        f"{file}::{name}"
        for file, name in sorted(cited)
        if not any(path.endswith(f"/{file}") and f"def {name}(" in source for path, source in sources.items())
    ]
    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_lines_wrap(document: str) -> None:
    long = [
        number
        for number, line in _prose(document)
        if len(line) > MAX_COLUMNS and not line.startswith(("|", "#", "<!--")) and " " in line[:MAX_COLUMNS].strip()
    ]
    assert long == []
