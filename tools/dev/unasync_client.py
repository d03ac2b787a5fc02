"""Generate modules of the synchronous client from those of the asyncio client.

`python -m tools.dev.unasync_client` writes client/nnhal/client/sync/; `--check` fails when a committed module is stale.
A comment `# sync: CODE` on a line of its own in a source becomes CODE.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import unasync

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "client/nnhal/client/aio"
TARGETS = ROOT / "client/nnhal/client/sync"
MODULES = (
    "buffer",
    "definitions",
    "device_queries",
    "fallback",
    "fence",
    "memory_objects",
    "partitioned_model",
    "plain_execution",
    "preparation",
    "prepared_model",
    "reconnect",
    "reusable",
    "stream",
)
"""Modules whose two forms differ in nothing but async and await."""

NAMES = {"aio": "sync", "AsyncCloseable": "Closeable"}
"""Names to replace, besides those that unasync knows."""
HEADER = "# Generated from aio/{name}.py by `python -m tools.dev.unasync_client`. Do not edit.\n"

_DIRECTIVE = re.compile(r"^( *)# sync: ", re.MULTILINE)
_DOCSTRING = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"""')


def generate(names: tuple[str, ...] = MODULES) -> dict[Path, str]:
    """Return the generated modules by path."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "aio"), Path(folder, "sync")
        source.mkdir()
        for name in names:
            text = _DIRECTIVE.sub(r"\1", (SOURCES / f"{name}.py").read_text())
            Path(source, f"{name}.py").write_text(_DOCSTRING.sub(_synchronous_docstring, text))
        rule = unasync.Rule(f"{source}/", f"{target}/", NAMES)
        unasync.unasync_files([str(path) for path in source.glob("*.py")], [rule])
        return {
            TARGETS / f"{name}.py": _format(HEADER.format(name=name) + (target / f"{name}.py").read_text(), name)
            for name in names
        }


def _synchronous_docstring(match: re.Match[str]) -> str:
    """Remove async and await from the examples in a docstring, with the parentheses of `(await ...)[0]`."""
    text = re.sub(r"\(await ([^()]*\([^()]*\))\)", r"\1", match[0])
    return re.sub(r"\b(await|async) (?=\w)", "", text)


def _format(text: str, name: str) -> str:
    """Sort the imports and format the code, as for a module in the target folder."""
    ruff = [str(Path(sys.executable).parent / "ruff")]
    file = ["--stdin-filename", str(TARGETS / f"{name}.py"), "-"]
    for command in (["check", "--quiet", "--select", "I", "--fix"], ["format", "--quiet"]):
        done = subprocess.run(
            [*ruff, *command, *file], input=text, capture_output=True, text=True, check=True, cwd=ROOT
        )
        text = done.stdout
    return text


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a committed module is stale")
    check = parser.parse_args().check
    modules = generate()
    if not check:
        for path, text in modules.items():
            path.write_text(text)
        print(f"{len(modules)} modules written")
        return
    if stale := [path.name for path, text in modules.items() if not path.exists() or path.read_text() != text]:
        raise SystemExit(f"stale: {', '.join(stale)}; run `python -m tools.dev.unasync_client`")
    print(f"{len(modules)} generated modules are fresh")


if __name__ == "__main__":
    main()
