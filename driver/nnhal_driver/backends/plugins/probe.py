"""Test of a dynamic backend in a child process, before it is loaded into the service.

A candidate may crash, hang or end the process while it is loaded, which must not happen to the service. The child loads
it with `nnhal_driver.backends.plugins.loading` and writes each step and the result to a file, line by line. The last
line is the step at which it stopped.

    python -P -m nnhal_driver.backends.plugins.probe KIND LOCATION ORIGIN SECONDS FILE [OPTIONS]

OPTIONS is a file with the options of each device in JSON: the candidate is loaded once for each.
`nnhal_driver.compilation.trial` takes the same arguments, and tries its operations as well.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

from nnhal.types import DeviceType
from nnhal_driver.backends import lifetime
from nnhal_driver.backends.api import Backend
from nnhal_driver.backends.identity import full_version
from nnhal_driver.backends.options import OptionError, OptionValues
from nnhal_driver.backends.plugins.discovery import Candidate, CandidateKind
from nnhal_driver.backends.plugins.loading import LoadError, ProgressCallback, load
from nnhal_driver.backends.report import CandidateState, Report

TIMEOUT_S = 10.0
"""Timeout for loading a candidate."""

_MODULE, TRIAL_MODULE = "nnhal_driver.backends.plugins.probe", "nnhal_driver.compilation.trial"
_Trial = Callable[[Backend], tuple[str, Sequence[str]]]


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Result of a test.

    Attributes:
        hooks: for each optional function, whether the candidate has it.
        device_type: name of the type of its hardware; "" if it cannot be loaded.
        options: keys of its options.
        rejected_option: key of an option that the candidate rejects, with the reason in the report; or "".
        operations, failures: result of the trial of its operations, if there was one.
    """

    report: Report
    hooks: Mapping[str, bool] = field(default_factory=dict)
    device_type: str = ""
    options: Sequence[str] = ()
    rejected_option: str = ""
    operations: str = ""
    failures: Sequence[str] = ()


def probe(
    candidate: Candidate,
    seconds: float = TIMEOUT_S,
    option_sets: Sequence[OptionValues] = ({},),
    module: str = _MODULE,
) -> ProbeResult:
    """Load a candidate in a child process. A fault of the candidate is a report, not an exception.

    The timeout is without the start of the process. The candidate must load with the options of each device.
    `module`: what runs in the process, _MODULE or TRIAL_MODULE.
    """
    with tempfile.TemporaryDirectory(prefix="nnhal-probe-") as folder, tempfile.TemporaryFile() as log:
        progress = Path(folder, "progress")
        progress.touch()
        options = Path(folder, "options")  # a command line could be read by other users
        options.write_text(json.dumps(option_sets))
        failure = _run(candidate, seconds, (progress, options), log, module)
        lines = [json.loads(line) for line in progress.read_text().splitlines()]
        if lines and "report" in lines[-1]:
            return _result(candidate, lines[-1])
        step = lines[-1]["step"] if lines else "starting"
        log.seek(0)
        output = [line.strip() for line in log.read()[-4096:].decode(errors="replace").splitlines() if line.strip()]
        last = f"; last line of its output: {output[-1]}" if output else ""
        return ProbeResult(Report("", CandidateState.FAILED, candidate.origin, f"{failure} while {step}{last}"))


def _run(candidate: Candidate, seconds: float, files: Sequence[Path], log: IO[bytes], module: str) -> str:
    """Run the child and return how it ended."""
    arguments = [candidate.kind.value, candidate.location, candidate.origin, str(seconds), *map(str, files)]
    command = [sys.executable, "-P", "-m", module, *arguments]
    # The child has its own session, so that processes of the plug-in are killed too. Its output goes to a file, because
    # such a process could keep a pipe open.
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        code = process.wait(seconds + _START_S)
    except subprocess.TimeoutExpired:
        code = -signal.SIGALRM
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if code == -signal.SIGALRM:
        return f"it hung for {seconds:g} s"
    if code < 0:
        return f"it crashed the process with {signal.Signals(-code).name}"
    return f"it ended the process with exit code {code}"


_START_S = 30.0
"""Timeout for starting Python and importing the driver, which is slow from a cold disk."""


def _result(candidate: Candidate, fields: dict[str, Any]) -> ProbeResult:
    """Return the result that the child wrote with `asdict`."""
    report = fields.pop("report")
    state = CandidateState(report.pop("state"))
    return ProbeResult(Report(state=state, **report | {"origin": candidate.origin}), **fields)


def load_and_exit(
    kind: str,
    location: str,
    origin: str,
    seconds: str,
    progress: str,
    options: str = "",
    *,
    trial: _Trial | None = None,
) -> None:
    """Load a candidate and write the result. An alarm ends this process if it hangs, even within C."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, float(seconds))
    option_sets: list[OptionValues] = json.loads(Path(options).read_text()) if options else [{}]
    candidate = Candidate(CandidateKind(kind), location, origin)
    with open(progress, "w") as file:

        def write(fields: Mapping[str, object]) -> None:
            file.write(json.dumps(fields, default=lambda state: state.value) + "\n")
            file.flush()

        write(asdict(_outcome(candidate, lambda step: write({"step": step}), option_sets, trial)))
    os._exit(0)  # do not wait for exit handlers and threads of the plug-in


def _outcome(
    candidate: Candidate, report_step: ProgressCallback, option_sets: Sequence[OptionValues], trial: _Trial | None
) -> ProbeResult:
    failed = Report("", CandidateState.FAILED, candidate.origin)
    try:
        loaded = load(candidate, report_step, option_sets[0])
        backend = loaded.backend
        for others in _distinct(option_sets, backend.id)[1:]:
            lifetime.close(load(candidate, report_step, others).backend)
        report_step("asking for its capabilities")
        report = Report(
            backend.id,
            CandidateState.READY,
            candidate.origin,
            version=full_version(backend),
            api_version="{}.{}".format(*loaded.api_version),
            capabilities={str(name): bool(value) for name, value in backend.capabilities().items()},
        )
        result = ProbeResult(report, loaded.hooks, DeviceType(backend.device_type).name, loaded.options)
    except LoadError as error:
        return ProbeResult(replace(failed, id=error.id, reason=str(error)))
    except OptionError as error:
        return ProbeResult(replace(failed, id=error.id, reason=str(error)), rejected_option=error.key)
    except Exception as error:
        return ProbeResult(replace(failed, reason=f"capabilities failed: {type(error).__name__}: {error}"))
    if trial is not None:
        report_step("trying its operations")
        operations, failures = trial(backend)
        result = replace(result, operations=operations, failures=failures)
    report_step("closing it")
    lifetime.close(backend)
    return result


def _distinct(option_sets: Sequence[OptionValues], id_: str) -> Sequence[OptionValues]:
    """Return the options that differ for one backend, the first device's first."""
    distinct: dict[str, OptionValues] = {}
    for options in option_sets:
        distinct.setdefault(json.dumps(options.get(id_, {}), sort_keys=True), options)
    return list(distinct.values())


if __name__ == "__main__":
    load_and_exit(*sys.argv[1:])
