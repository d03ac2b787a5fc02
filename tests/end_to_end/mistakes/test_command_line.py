"""Mistakes on the command line: each is reported in one line, at once.

No duration is compared. A command that cannot be late shows that by what it does not do, see `tests.forked_commands`.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.mistakes.places import Places, environment_of, open_places, write_files
from tests.end_to_end.mistakes.table import MISTAKES, Mistake
from tests.end_to_end.support.service_process import Service
from tests.forked_commands import ForkedCommands, running

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
    with open_places(service.target, tmp_path_factory.mktemp("places")) as places:
        yield places


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the current folder of the commands."""
    write_files(tmp_path)
    return tmp_path


def assert_reported(mistake: Mistake, places: Places, code: int, stdout: str, stderr: str) -> None:
    """Check that the one line of output is the message: no traceback, nothing from gRPC, no usage."""
    message = re.escape(f"nnhal: {mistake.message.format_map(places)}\n").replace(re.escape("<*>"), ".*")
    assert re.fullmatch(message, stderr), stderr
    assert (code, stdout) == (mistake.code, "")


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.label)
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
    assert len({mistake.label for mistake in MISTAKES}) == len(MISTAKES) >= 60


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
