"""Diagnosis of a plug-in.

`nnhal backends doctor FILE` runs this module as

    python -P -m nnhal_driver.backends.plugins.doctor FILE [KEY=VALUE...]

It loads the plug-in in a process of its own, and tries its operations. The exit code is 0 if the plug-in would be used
and does nothing wrong, 1 if not, and 2 if there is no such file.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

from nnhal_driver.backends import registry
from nnhal_driver.backends.api import API_VERSION
from nnhal_driver.backends.native import abi
from nnhal_driver.backends.plugins.discovery import NAME_RULE, CandidateKind, file_candidate, has_backend_name
from nnhal_driver.backends.plugins.probe import TRIAL_MODULE, ProbeResult, probe
from nnhal_driver.backends.report import CandidateState, Report

_NO_OPTIONS: Mapping[str, str] = {}
_OFFERED = {CandidateKind.PYTHON: API_VERSION, CandidateKind.NATIVE: (abi.MAJOR, abi.MINOR)}

_DEFAULTS = {
    "capabilities": "it has none",
    "performance": "it counts as fast as the CPU",
    "extensions": "no vendor extensions",
    "save": "a warm start compiles again",
    "load": "a warm start compiles again",
    "optimize": "subgraphs are compiled as they are",
    "fingerprint": "a warm start depends on its version and its files",
    "allocate_buffer": "the host allocates outputs",
    "wait_finish": "an execution is complete when execute returns",
    "layouts": "inputs and outputs are in the model's layout",
    "device_type": "its hardware is a CPU",
    "operand_types": "its extensions have no operand types",
}
"""Consequence of a missing optional hook. Other hooks are not called."""

_CAPABILITY_DEFAULTS = {
    "ConcurrentExecution": "it executes one at a time",
    "StridedInputs": "the host copies inputs with gaps",
    "CopiesInputs": "the host copies inputs in memory that a client shares",
}
"""Capabilities of native backends that this host uses, and the consequence if one is missing."""


def diagnose(path: Path, options: Mapping[str, str] = _NO_OPTIONS) -> tuple[list[str], bool]:
    """Return lines for the author, and whether the plug-in is ready for use. Its factory gets the options.

    Raises:
        OSError: the file does not exist.
    """
    candidate = file_candidate(path)
    probed = probe(candidate, module=TRIAL_MODULE)
    if options and probed.report.id:
        probed = probe(candidate, option_sets=[{probed.report.id: options}], module=TRIAL_MODULE)
    faults = _faults(path.name, probed)
    offered = "{}.{}".format(*_OFFERED[candidate.kind])
    report = probed.report
    lines = [
        f"file         {path}",
        f"kind         {candidate.kind.value}",
        f"id           {report.id or 'unknown'}",
        f"version      {report.version or 'unknown'}",
        f"interface    made for {report.api_version or 'unknown'}, this host offers {offered}",
    ]
    lines += [f"type         {probed.device_type}"] if probed.device_type else []
    lines += [f"option       {key}" for key in probed.options]
    lines += [f"capability   {line}" for line in _capabilities(candidate.kind, report)]
    for name, present in probed.hooks.items():
        consequence = "present" if present else f"absent, {_DEFAULTS.get(name, 'it is not called')}"
        lines.append(f"hook         {name}: {consequence}")
    lines += [f"operations   {probed.operations}"] if probed.operations else []
    lines += [f"fault        {fault}" for fault in (*faults, *probed.failures)]
    verdict = "it would not be used" if faults else "it would be used, and fails" if probed.failures else "ready"
    return [*lines, f"verdict      {verdict}"], verdict == "ready"


def _faults(name: str, probed: ProbeResult) -> list[str]:
    faults = [] if has_backend_name(name) else [f"it would not be found: {NAME_RULE}"]
    if probed.report.state is CandidateState.FAILED:
        faults.append(f"it would not be loaded: {probed.report.reason}")
    elif probed.report.id in registry.registered_ids():
        faults.append(f"it would not be registered: the id {probed.report.id} is taken by a built-in backend")
    return faults


def _capabilities(kind: CandidateKind, report: Report) -> list[str]:
    known = _CAPABILITY_DEFAULTS if kind is CandidateKind.NATIVE and report.state is CandidateState.READY else {}
    values = dict.fromkeys(known, False) | dict(report.capabilities)
    return [
        f"{name}: {'yes' if value else f'no, {known[name]}' if name in known else 'no'}"
        for name, value in values.items()
    ]


def _main(file: str, *options: str) -> None:
    values = {key: value for key, _, value in (option.partition("=") for option in options)}
    try:
        lines, ready = diagnose(Path(file), values)
    except OSError as error:
        print(f"{file}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    print("\n".join(lines))
    sys.exit(0 if ready else 1)


if __name__ == "__main__":
    _main(*sys.argv[1:])
