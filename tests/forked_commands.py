"""Processes of the command line that are forked from one process, which has imported its packages once.

Each command has its own process, arguments, environment, folder and output, as if the shell had started it, but starts
in a few milliseconds. Two mechanisms show that a command does not waste time, without measuring it:

- Its timeouts for connections are ten minutes long, so that no answer can be due to a timeout.
- An audit hook records each process that it starts and each time that it sleeps.
"""

import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

_PACKAGES = ("grpc", "nnhal.client.sync.device", "nnhal_service.server", "nnhal_tools.cli", "numpy", "rich.console")
_CONNECTING = ("backends", "compare", "conformance", "explain", "info", "run")
"""Modules of commands that connect to a service."""
_CONNECT_S = 600.0
_EVENTS = {"subprocess.Popen", "time.sleep"}


@dataclass(frozen=True)
class Finished:
    """A command that has ended.

    Attributes:
        code: its exit code; negative for the signal that ended it.
        stdout, stderr: its output.
        events: the processes that it started and the times that it slept.
    """

    code: int
    stdout: str
    stderr: str
    events: Sequence[str]


class ForkedCommands:
    """The process that starts commands. Use `running`."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path) -> None:
        self._process = process
        self._folder = folder

    def run(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        folder: Path,
        *,
        missing: str = "",
        stdout: str = "",
    ) -> Finished:
        """Run a command in a folder.

        Args:
            arguments: the arguments.
            environment: additional environment variables.
            folder: the current folder.
            missing: a package that seems not to be installed.
            stdout: a terminal for the output, which is not in the result then.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        order = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": str(folder),
            "output": str(self._folder),
            "missing": missing,
            "stdout": stdout or str(self._folder / "stdout"),
        }
        print(json.dumps(order), file=self._process.stdin, flush=True)
        code = int(self._process.stdout.readline())
        out = "" if stdout else (self._folder / "stdout").read_text()
        err, events = ((self._folder / name).read_text() for name in ("stderr", "events"))
        return Finished(code, out, err, events.splitlines())


@contextmanager
def running(folder: Path) -> Iterator[ForkedCommands]:
    """Start the process within the context.

    Args:
        folder: an empty folder for the output of commands.
    """
    command = [
        sys.executable,
        "-P",
        "-c",
        f"import sys; sys.path.append({os.getcwd()!r}); import {__name__} as m; m.serve()",
    ]
    # pytest-xdist sets the width of a terminal for its workers
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield ForkedCommands(process, folder)
        process.stdin.close()  # type: ignore[union-attr]


def serve() -> None:
    """Read orders from stdin, and print the exit code of each command."""
    for name in _PACKAGES:
        importlib.import_module(name)
    for line in sys.stdin:
        order = json.loads(line)
        if not (child := os.fork()):
            _run(order)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(order: dict[str, Any]) -> NoReturn:
    """Run a command in this process, which is its own."""
    code: object = 70
    try:
        _redirect(Path(order["output"]), order["stdout"])
        os.environ.update(order["environment"])
        os.chdir(order["folder"])
        for module in _CONNECTING:
            sys.modules[f"nnhal_tools.cli.{module}"].CONNECT_S = _CONNECT_S  # type: ignore[attr-defined]
        if order["missing"]:
            _forget(order["missing"])
        sys.argv = ["nnhal", *order["arguments"]]
        from nnhal_tools.__main__ import main

        main()
        code = 0
    except SystemExit as stopped:
        code = stopped.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _forget(package: str) -> None:
    """Make each import of a package fail, also by the project's modules that were imported in advance."""
    for name in list(sys.modules):
        if name.split(".")[0] == package or name.startswith(("nnhal_service", "nnhal.tflite")):
            del sys.modules[name]
    sys.modules[package] = None  # type: ignore[assignment]


def _redirect(folder: Path, stdout: str) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOCTTY
    stderr, events = os.open(folder / "stderr", flags), os.open(folder / "events", flags)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(stdout, flags), 1)
    os.dup2(stderr, 2)

    def record(event: str, arguments: tuple[object, ...]) -> None:
        if event in _EVENTS:
            os.write(events, f"{event} {arguments!r}\n".encode())

    sys.addaudithook(record)
