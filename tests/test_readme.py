"""Runs the snippets of README.md, and of the guide for programs in Python, in order, as a reader pastes them.

Shell snippets are indented, and Python snippets are fenced. The comment `<!-- not run: REASON -->` before a snippet
excludes it. Two things differ from what a reader has: the current folder only looks like the clone, so that snippets
may write into it, and the service listens on a free port instead of 50051.
"""

import codeop
import contextlib
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
GUIDE = ROOT / "docs" / "python-programs.md"
SERVE = "nnhal serve\n"
"""The snippet that runs until the end, in a terminal of its own."""
NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
EXPECTED_OUTPUT = re.compile(r"^\s*print\(.*\)  # (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Snippet:
    """Snippet of a document.

    Attributes:
        language: "shell" or "python".
        line: the number of its first line.
        code: its lines.
        not_run: the reason why it is not run, or "".
    """

    language: str
    line: int
    code: str
    not_run: str = ""


def read_snippets(text: str) -> Iterator[Snippet]:
    """Yield the snippets of a document.

    Raises:
        ValueError: a fenced snippet is not Python.
    """
    lines = text.splitlines()
    number, reason = 0, ""
    while number < len(lines):
        start, line = number, lines[number]
        number += 1
        if match := NOT_RUN.fullmatch(line):
            reason = match.group(1)
        elif line.startswith("```"):
            if line != "```python":
                raise ValueError(f"line {number}: found {line}; expected ```python, or an indented shell snippet")
            number = lines.index("```", number) + 1
            yield Snippet("python", start + 2, "\n".join([*lines[start + 1 : number - 1], ""]), reason)
            reason = ""
        elif line.startswith("    "):
            while number < len(lines) and lines[number].startswith("    "):
                number += 1
            yield Snippet("shell", start + 1, "".join(f"{line[4:]}\n" for line in lines[start:number]), reason)
            reason = ""
        elif line and reason:
            raise ValueError(f"line {number}: found {line!r}; expected the snippet that is not run")


def snippets_of(language: str, document: Path = README) -> list[Snippet]:
    """Return the snippets of a document in a language that are run."""
    snippets = list(read_snippets(document.read_text()))
    return [snippet for snippet in snippets if snippet.language == language and not snippet.not_run]


# ---- Shell ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with links to what lies in the clone."""
    folder = tmp_path_factory.mktemp("clone")
    for path in ROOT.iterdir():
        (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """Return environment variables with which the shell finds `nnhal`, and `nnhal serve` a free port."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "NNHAL_LISTEN": "127.0.0.1:0", "PYTHONUNBUFFERED": "1"}


@pytest.fixture(scope="module")
def port(clone: Path, environment: dict[str, str]) -> Iterator[str]:
    """Run the README's service and yield its port."""
    assert SERVE in [snippet.code for snippet in snippets_of("shell")]
    command = ["bash", "-c", f"exec {SERVE}"]
    with subprocess.Popen(command, cwd=clone, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            listening, _, port = process.stdout.readline().rpartition(":")
            assert listening == "listening on 127.0.0.1"
            yield port.strip()
        finally:
            process.terminate()
            process.wait(timeout=60)


@pytest.mark.slow
def test_shell_snippets_run_in_order(clone: Path, environment: dict[str, str], port: str) -> None:
    snippets = [snippet for snippet in snippets_of("shell") if snippet.code != SERVE]
    lines = [""] * README.read_text().count("\n")  # so that the shell's messages name the README's lines
    for snippet in snippets:
        code = snippet.code.replace(":50051", f":{port}").splitlines()
        lines[snippet.line - 1 : snippet.line - 1 + len(code)] = code
    lines[0] = "set -euo pipefail; trap 'echo \"README.md:$LINENO: $BASH_COMMAND\" >&2' ERR"
    command = ["bash", "-c", "\n".join(lines)]
    result = subprocess.run(
        command, cwd=clone, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    written = {file for snippet in snippets for file in re.findall(r"--(?:html|trace) (\S+)", snippet.code)}
    assert written and all((clone / file).stat().st_size > 0 for file in written)


# ---- Python -----------------------------------------------------------------------------------------------


def statements(snippet: Snippet) -> Iterator[tuple[int, str]]:
    """Yield the statements of a snippet, split as the interactive interpreter splits them, with their first lines.

    Raises:
        SyntaxError: the snippet cannot be pasted, for example because a block is followed by code without a blank line.
    """
    pending: list[str] = []
    for number, line in enumerate([*snippet.code.splitlines(), ""], snippet.line):
        if not pending and not line:
            continue
        pending.append(line)
        if codeop.compile_command("\n".join(pending), f"{README.name}:{number}", "single") is not None:
            yield number - len(pending) + 1, "\n".join(pending)
            pending = []
    assert not pending, "incomplete"


def run_python(snippet: Snippet, namespace: dict[str, Any], document: Path = README) -> None:
    """Run a snippet and check what it prints against the comments behind `print`, where `...` is any text."""
    for line, source in statements(snippet):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * (line - 1) + source, str(document), "exec"), namespace)
        if expected := EXPECTED_OUTPUT.findall(source):
            pattern = "".join(f"{re.escape(text)}\n" for text in expected).replace(re.escape("..."), ".*")
            assert re.fullmatch(pattern, printed.getvalue()), f"{document.name}:{line}: printed {printed.getvalue()!r}"


@pytest.mark.slow
@pytest.mark.parametrize("document", [README, GUIDE], ids=lambda path: path.name)
def test_python_snippets_run_in_order(port: str, document: Path) -> None:
    namespace: dict[str, Any] = {}
    try:
        for snippet in snippets_of("python", document):
            code = snippet.code.replace(":50051", f":{port}")
            run_python(Snippet("python", snippet.line, code), namespace, document)
    finally:
        if "device" in namespace:
            namespace["device"].close()


@pytest.mark.nightly
@pytest.mark.parametrize("document", [README, GUIDE], ids=lambda path: path.name)
def test_python_snippets_are_typed(tmp_path: Path, document: Path) -> None:
    code = "".join(snippet.code for snippet in snippets_of("python", document))
    (tmp_path / "readme.py").write_text(code)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "readme.py"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


# ---- The checks themselves --------------------------------------------------------------------------------


def test_snippets_are_found_in_order() -> None:
    text = "a\n\n    b\n    c\n\n<!-- not run: d -->\n\n```python\ne\n\n  f\n```\n\n    g\n"
    assert list(read_snippets(text)) == [
        Snippet("shell", 3, "b\nc\n"),
        Snippet("python", 9, "e\n\n  f\n", "d"),
        Snippet("shell", 14, "g\n"),
    ]


@pytest.mark.parametrize("text", ["```sh\nls\n```\n", "<!-- not run: a reason -->\n\ntext\n\n    ls\n"])
def test_unclear_snippets_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        list(read_snippets(text))


@pytest.mark.parametrize("code", ["for i in []:\n    i\nx = 1\n", "def f():\n    x = 1\n\n    return x\n"])
def test_snippets_that_cannot_be_pasted_are_refused(code: str) -> None:
    with pytest.raises(SyntaxError):
        run_python(Snippet("python", 1, code), {})


@pytest.mark.parametrize("comment", ["1 3", "1", "...3"])
def test_wrong_output_is_noticed(comment: str) -> None:
    run_python(Snippet("python", 1, "print(1, 2)  # 1 ...\n"), {})
    with pytest.raises(AssertionError, match="printed '1 2"):
        run_python(Snippet("python", 1, f"print(1, 2)  # {comment}\n"), {})
