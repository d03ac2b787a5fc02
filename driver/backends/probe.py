"""Tries a dynamic backend in a process of its own before it is loaded into the service.

A candidate may crash, hang, or end the process while it is loaded; that must not happen to the service. The child loads
it as `driver.backends.loading` does and writes what it is doing and what came of it to a file, line by line: what the
last line says is where it stopped.

    python -P -m driver.backends.probe KIND LOCATION ORIGIN SECONDS FILE
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from driver.backends.discovery import Candidate, Kind
from driver.backends.loading import LoadError, load
from driver.backends.report import Report, State

SECONDS = 10.0
"""That a candidate has to load."""


@dataclass(frozen=True, slots=True)
class Probed:
    """What was learnt of a candidate. `hooks`: optional parts of the interface, and whether it has them."""

    report: Report
    hooks: Mapping[str, bool] = field(default_factory=dict)


def probe(candidate: Candidate, seconds: float = SECONDS) -> Probed:
    """Loads a candidate in a child process. Raises nothing on account of the candidate.

    Args:
        seconds: that it has, the start of the process aside.
    """
    with tempfile.TemporaryDirectory(prefix="nnhal-probe-") as folder, tempfile.TemporaryFile() as log:
        notes = Path(folder, "notes")
        notes.touch()
        ended = _run(candidate, seconds, notes, log)
        lines = [json.loads(line) for line in notes.read_text().splitlines()]
        if lines and "state" in lines[-1]:
            return _probed(candidate, lines[-1])
        doing = lines[-1]["doing"] if lines else "starting"
        reason = f"{ended} while {doing}{_last_words(log)}"
        return Probed(Report("", State.FAILED, candidate.origin, reason))


def _run(candidate: Candidate, seconds: float, notes: Path, log: IO[bytes]) -> str:
    """Runs the child to its end; says how it ended."""
    arguments = [candidate.kind.value, candidate.location, candidate.origin, str(seconds), str(notes)]
    command = [sys.executable, "-P", "-m", "driver.backends.probe", *arguments]
    # a session of its own, so that whatever the plug-in starts is ended with it; a file for what it says, so that none
    # of that can hold a pipe open
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        return _ending(process.wait(seconds + _START_S), seconds)
    except subprocess.TimeoutExpired:
        return f"it hung for {seconds:g} s"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


_START_S = 30.0
"""That Python may take to start and import the driver; a cold disk is slow."""


def _ending(code: int, seconds: float) -> str:
    if code == -signal.SIGALRM:
        return f"it hung for {seconds:g} s"
    if code < 0:
        return f"it crashed the process with {signal.Signals(-code).name}"
    return f"it ended the process with exit code {code}"


def _last_words(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read()[-4096:].decode(errors="replace").splitlines()
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"; its last words: {last}" if last else ""


def _probed(candidate: Candidate, told: Mapping[str, Any]) -> Probed:
    report = Report(
        told["id"],
        State(told["state"]),
        candidate.origin,
        told["reason"],
        told["version"],
        told["api_version"],
        told["capabilities"],
    )
    return Probed(report, told["hooks"])


def _child(kind: str, location: str, origin: str, seconds: str, notes: str) -> None:
    """Loads a candidate and tells what came of it. An alarm ends this process where it hangs, also within C."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, float(seconds))
    with open(notes, "w") as file:

        def tell(fields: Mapping[str, object]) -> None:
            file.write(json.dumps(fields) + "\n")
            file.flush()

        tell(_outcome(Candidate(Kind(kind), location, origin), lambda doing: tell({"doing": doing})))
    os._exit(0)  # the plug-in's exit handlers, threads and what it keeps are not waited for


def _outcome(candidate: Candidate, note: Any) -> dict[str, object]:
    told: dict[str, object] = {
        "id": "",
        "state": State.FAILED.value,
        "reason": "",
        "version": "",
        "api_version": "",
        "capabilities": {},
        "hooks": {},
    }
    try:
        loaded = load(candidate, note)
        backend = loaded.backend
        note("asking for its capabilities")
        return told | {
            "id": backend.id,
            "state": State.READY.value,
            "version": backend.version,
            "api_version": "{}.{}".format(*loaded.api_version),
            "capabilities": {str(name): bool(value) for name, value in backend.capabilities().items()},
            "hooks": loaded.hooks,
        }
    except LoadError as error:
        return told | {"id": error.id, "reason": str(error)}
    except Exception as error:
        return told | {"reason": f"capabilities failed: {type(error).__name__}: {error}"}


if __name__ == "__main__":
    _child(*sys.argv[1:])
