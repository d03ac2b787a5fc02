"""Mistakes on the command line: each is reported in one line, at once.

No duration is compared. A command that cannot be late shows that by what it does not do, see `forked_commands`.
"""

import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from nnhal_tools.demo.digits import MODEL
from tests.end_to_end.mistakes.forked_commands import ForkedCommands, running
from tests.end_to_end.mistakes.table import MISTAKES, Mistake, unreadable_file, write_files
from tests.end_to_end.support.service_process import Service
from tests.other_server import listening

Places = Mapping[str, object]
"""Values of the names in braces."""

REAL_PROCESSES = (
    "info --target localhost",
    "run text",
    "run a --repeat x",
    "serve --threads 0",
    "serve --listen {busy}",
)
"""Commands that also run in a process that the system starts."""


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedCommands]:
    with running(tmp_path_factory.mktemp("output")) as commands:
        yield commands


@pytest.fixture(scope="module")
def places(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """Yield addresses of servers of all kinds, and paths."""
    folder = tmp_path_factory.mktemp("places")
    other = grpc.server(ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    with ExitStack() as stack:
        stack.callback(lambda: other.stop(0).wait())
        live = stack.enter_context(socket.socket(socket.AF_UNIX))
        live.bind(str(folder / "live"))
        live.listen()
        with socket.create_server(("127.0.0.1", 0)) as server:
            closed = server.getsockname()[1]
        yield {
            "digits": MODEL,
            "service": service.target,
            "busy": service.target,
            "live": folder / "live",
            "closed": f"127.0.0.1:{closed}",
            "ssh": stack.enter_context(listening(b"SSH-2.0-OpenSSH_9.2\r\n")),
            "grpc": f"127.0.0.1:{port}",
            "unreadable": unreadable_file(folder),
        }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the current folder of the commands."""
    write_files(tmp_path)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "stale.sock"))
    return tmp_path


def environment_of(mistake: Mistake, folder: Path) -> dict[str, str]:
    return {
        "HOME": str(folder),
        "NNHAL_CACHE_DIR": str(folder / "cache"),
        "NNHAL_STATE_DIR": str(folder / "state"),
        **mistake.environment,
    }


def assert_reported(mistake: Mistake, places: Places, code: int, stdout: str, stderr: str) -> None:
    """Check that the one line of output is the message: no traceback, nothing from gRPC, no usage."""
    message = re.escape(f"nnhal: {mistake.message.format_map(places)}\n").replace(re.escape("<*>"), ".*")
    assert re.fullmatch(message, stderr), stderr
    assert (code, stdout) == (mistake.code, "")


def label(mistake: Mistake) -> str:
    details = [*mistake.environment, mistake.config.partition("=")[0], mistake.missing]
    return " ".join(filter(None, (mistake.command[:60], *details)))


@pytest.mark.parametrize("mistake", MISTAKES, ids=label)
def test_mistake_is_reported_in_one_line_at_once(
    mistake: Mistake, commands: ForkedCommands, places: Places, folder: Path
) -> None:
    if mistake.config:
        (folder / "nnhal.toml").write_text(mistake.config)
    before = {path: path.stat().st_size for path in folder.iterdir()}
    arguments = [argument.format_map(places) for argument in mistake.arguments]
    finished = commands.run(arguments, environment_of(mistake, folder), folder, missing=mistake.missing)
    assert_reported(mistake, places, finished.code, finished.stdout, finished.stderr)
    assert len(finished.events) == bool(mistake.starts), finished.events
    assert all(mistake.starts in event for event in finished.events)
    if not mistake.starts:
        assert {path: path.stat().st_size for path in folder.iterdir() if path.name not in ("cache", "state")} == before


@pytest.mark.parametrize("command", REAL_PROCESSES)
def test_mistake_is_reported_in_a_process_of_its_own(command: str, places: Places, folder: Path) -> None:
    (mistake,) = [mistake for mistake in MISTAKES if mistake.command == command]
    program = [sys.executable, "-P", "-m", "nnhal", *(argument.format_map(places) for argument in mistake.arguments)]
    finished = subprocess.run(
        program, cwd=folder, env=environment_of(mistake, folder), capture_output=True, text=True, check=False
    )
    assert_reported(mistake, places, finished.returncode, finished.stdout, finished.stderr)


def test_table_has_sixty_different_mistakes() -> None:
    assert len({label(mistake) for mistake in MISTAKES}) == len(MISTAKES) >= 60


@pytest.mark.parametrize(
    ("output", "code", "message"), [("/dev/full", 1, "cannot write the output: No space left on device")]
)
@pytest.mark.parametrize("command", ["--version", "info --target {service}", "serve --print-config"])
def test_output_that_cannot_be_written(output: str, code: int, message: str, command: str, places: Places) -> None:
    arguments = command.format_map(places).split()
    with open(output, "w") as stdout:
        finished = subprocess.run(
            [sys.executable, "-P", "-m", "nnhal", *arguments],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (finished.returncode, finished.stderr) == (code, f"nnhal: {message}\n")
