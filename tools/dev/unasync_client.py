"""Generate modules of the synchronous client from those of the asyncio client.

`python -m tools.dev.unasync_client` writes the folders `sync/` of the client; `--check` fails when a committed module
is stale. A comment `# sync: CODE` on a line of its own in a source becomes CODE. The few modules that differ in more
than async and await are written by hand in both folders, and have the same names in them.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import unasync

from tools.dev.documents.markdown import ROOT, stale, write

CLIENT = ROOT / "client/nnhal/client"
HAND_WRITTEN = ("__init__", "burst", "concurrency", "device", "grpc_calls", "replicated_burst", "result_queue")
"""Modules whose two forms differ in more than async and await."""
FOLDERS = (CLIENT, CLIENT / "replicas")
"""Folders that have `aio/` and `sync/`."""
NAMES = {
    "aio": "sync",
    "AsyncCloseable": "Closeable",
    "asynccontextmanager": "contextmanager",
    "aio_channel": "channel",
}
"""Names to replace, besides those that unasync knows."""
HEADER = "# Generated from aio/{name}.py by `python -m tools.dev.unasync_client`. Do not edit.\n"

_DIRECTIVE = re.compile(r"^( *)# sync: ", re.MULTILINE)
_DOCSTRING = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"""')


def generate(folder: Path) -> dict[Path, str]:
    """Return the generated modules of a folder by path."""
    with tempfile.TemporaryDirectory() as temporary:
        source, target = Path(temporary, "aio"), Path(temporary, "sync")
        source.mkdir()
        for path in folder.glob("aio/*.py"):
            if path.stem not in HAND_WRITTEN:
                text = _DIRECTIVE.sub(r"\1", path.read_text())
                (source / path.name).write_text(_DOCSTRING.sub(_synchronous_docstring, text))
        rule = unasync.Rule(f"{source}/", f"{target}/", NAMES)
        unasync.unasync_files([str(path) for path in source.glob("*.py")], [rule])
        targets = folder / "sync"
        return {
            targets / path.name: _format(HEADER.format(name=path.stem) + path.read_text(), targets / path.name)
            for path in target.glob("*.py")
        }


def _synchronous_docstring(match: re.Match[str]) -> str:
    """Remove async and await from a docstring, with the parentheses of `(await ...)[0]`, and name the other client."""
    text = re.sub(r"\(await ([^()]*\([^()]*\))\)", r"\1", match[0])
    text = re.sub(r"\b(await|async) (?=\w)", "", text)
    text = text.replace("nnhal.client.aio.", "nnhal.client.sync.").replace("nnhal.aio.", "nnhal.")
    return text.replace(" asynchronous context manager", " context manager").replace("an context", "a context")


def _format(text: str, path: Path) -> str:
    """Sort the imports, use `yield from`, and format the code, as for a module in the target folder."""
    ruff = [str(Path(sys.executable).parent / "ruff")]
    file = ["--stdin-filename", str(path), "-"]
    for command in (["check", "--quiet", "--select", "I,UP028", "--fix", "--unsafe-fixes"], ["format", "--quiet"]):
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
    modules = {path: text for folder in FOLDERS for path, text in generate(folder).items()}
    if not check:
        write(modules)
        print(f"{len(modules)} modules written")
        return
    if outdated := stale(modules):
        names = ", ".join(path.name for path in outdated)
        raise SystemExit(f"stale: {names}; run `python -m tools.dev.unasync_client`")
    print(f"{len(modules)} generated modules are fresh")


if __name__ == "__main__":
    main()
