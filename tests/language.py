"""Checks the English of the whole tree: words and openings that the style guide rules out.

`python -m tests.language PATH...` lists the violations below some paths.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

OPENINGS = frozenset(["What", "Whatever", "Whoever", "Who", "How", "As", "Where", "Whether", "Else", "Is", "Stands"])
"""First words that no docstring may have. Clauses that begin so replace the name of the thing."""
COMMENT_OPENINGS = frozenset(["What", "Whatever", "Whoever", "Who", "Whether", "Else", "Stands"])
"""First words that no comment and no paragraph of a document may have."""

PHRASES = re.compile(
    r"""(?ix)
    (?<! there\ ) \b (is|are|was|were) \s+ (?-i: no (ne\b | \b (?! \s+ (longer|more|less|fewer|other) \b)))
    | \b let (s|ting)? \s+ (it \s+ | them \s+)? go \b
    | \b (judge[sd]? | judging | mend(s|ed|ing)? | beyond)\b
    | \b by \s+ turns \b
    | \b in \s+ (a \s+)? (good|bad) \s+ hours? \b
    | \b (somebody | nobody | whoever | those \s+ who) \b
    | \b (slept \s+ for | of \s+ which \s+ (only | no) | but \s+ for | tells \s+ also | until \s+ when) \b
    """
)
"""Words and phrases that the guide replaces: style.md, "English", rules 3 and 5."""

RETIRED_NAMES = re.compile(
    r"\b([m]oulds?|[l]ane|[a]lertness|[p]atience|[k]eeper|[s]uccession|[E]nds|[D]oors|[L]ifeline)\b"
)
"""Names of our own that gave way to standard terms. In brackets, so that a search for them does not find this line."""

SUFFIXES = frozenset(
    {".py", ".md", ".proto", ".c", ".h", ".toml", ".sh", ".txt", ".yaml", ".yml", ".html", ".js", ".css"}
)
NAMES = frozenset({"Makefile", "Dockerfile", "run"})
EXEMPT = frozenset({"tests/language.py", "tests/test_language.py", "LICENSE"})
GENERATED = ("client/nnhal/v1/", "client/nnhal/admin/v1/", "client/nnhal/inference/")


class Violation(NamedTuple):
    """A place in the tree and what is wrong there."""

    path: str
    line: int
    text: str


class Prose(NamedTuple):
    """Text that people read. `openings` are the first words that it may not have."""

    line: int
    text: str
    openings: frozenset[str] = frozenset()


def _python(source: str) -> Iterator[Prose]:
    docstrings = {
        node.value.lineno
        for node in _statements(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    before = -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type == tokenize.COMMENT:
            own_line = token.line[: token.start[1]].strip() == "" and before != line - 1
            yield Prose(line, token.string.lstrip("# "), COMMENT_OPENINGS if own_line else frozenset())
            before = line
        elif token.type == tokenize.STRING:
            text = token.string.lstrip("rbfRBF").strip("\"'")
            yield Prose(line, text, OPENINGS if line in docstrings else frozenset())


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a module, without their expressions: these are nine tenths of the nodes."""
    for blocks in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, blocks, ())
        for statement in inner if isinstance(inner, list) else ():
            yield statement
            yield from _statements(statement)


def _markdown(source: str) -> Iterator[Prose]:
    fenced, paragraph = False, False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            text = re.sub(r"`[^`]*`", "``", line.lstrip("-*|> "))
            starts = not paragraph or line.lstrip().startswith(("- ", "* "))
            yield Prose(number, text, COMMENT_OPENINGS if starts and not line.startswith("#") else frozenset())
        paragraph = bool(line.strip())


def _comments(source: str) -> Iterator[Prose]:
    """Yield the comments of C, protobuf, TOML and shell files, line by line; for other files every line."""
    for number, line in enumerate(source.splitlines(), 1):
        if found := re.search(r"(?:#|//|/\*|^\s*\*)\s*(.*)", line):
            yield Prose(number, found.group(1))


def prose(path: str, source: str) -> Iterator[Prose]:
    """Yield the text of a file that people read."""
    if path.endswith(".py"):
        yield from _python(source)
    elif path.endswith(".md"):
        yield from _markdown(source)
    else:
        yield from _comments(source)


def violations(path: str, source: str) -> list[Violation]:
    """Return the words and openings of a file that the guide rules out."""
    found = []
    for part in prose(path, source):
        first = re.match(r"\W*(\w+)", part.text)
        if first and first.group(1) in part.openings:
            found.append(Violation(path, part.line, f"opens with {first.group(1)!r}"))
        found += [
            Violation(path, part.line + part.text[: match.start()].count("\n"), repr(match.group()))
            for match in PHRASES.finditer(part.text)
        ]
    if path.endswith(".py"):
        found += [
            Violation(path, source[: match.start()].count("\n") + 1, f"retired name {match.group()!r}")
            for match in RETIRED_NAMES.finditer(source)
        ]
    return found


def files(*below: str) -> Iterator[str]:
    """Yield the tracked text files below some paths, generated code aside."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *below]
    for path in subprocess.check_output(command, text=True).split("\0"):
        kind = Path(path)
        if (
            (kind.suffix in SUFFIXES or kind.name in NAMES)
            and path not in EXEMPT
            and not path.startswith(GENERATED)
            and (ROOT / path).is_file()
        ):
            yield path


def main(paths: Sequence[str]) -> None:
    """Print the violations below some paths."""
    for name in files(*paths):
        for path, line, text in violations(name, (ROOT / name).read_text()):
            print(f"{path}:{line}: {text}")


if __name__ == "__main__":
    main(sys.argv[1:])
