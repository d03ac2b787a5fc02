"""Says what a plug-in has against what this host offers. `nnhal backends doctor FILE` runs it as

    python -P -m driver.backends.doctor FILE

The plug-in is loaded in a process of its own. The exit code is 0 when it would be used, 1 when not, 2 for no file.
"""

import sys
from pathlib import Path

from driver.backends import registry
from driver.backends.api import API_VERSION
from driver.backends.discovery import NAME_FAULT, Kind, file_candidate, has_backend_name
from driver.backends.native import abi
from driver.backends.probe import Probed, probe
from driver.backends.report import Report, State

_OFFERED = {Kind.PYTHON: API_VERSION, Kind.NATIVE: (abi.MAJOR, abi.MINOR)}

_DEFAULTS = {
    "capabilities": "it says nothing of itself",
    "performance": "it counts as fast as the CPU",
    "extensions": "no vendor extensions",
    "save": "a warm start compiles again",
    "load": "a warm start compiles again",
    "optimize": "subgraphs are compiled as they are",
    "fingerprint": "a warm start depends on its version alone",
    "allocate_buffer": "outputs lie in memory of the host",
    "wait_finish": "execute has finished when it returns",
    "layouts": "values come and go in the model's layout",
    "operand_types": "its extensions have no operand types",
}
"""What the absence of an optional hook means; of those that are not here: it is not called."""

_WITHOUT = {
    "ConcurrentExecution": "it executes one at a time",
    "StridedInputs": "inputs with gaps are copied before",
    "CopiesInputs": "inputs in memory that a client shares are copied before",
}
"""The capabilities of native backends that this host knows, and what it means not to have them."""


def diagnose(path: Path) -> tuple[list[str], bool]:
    """Lines for the author, and whether the plug-in would be used.

    Raises:
        OSError: there is no such file.
    """
    candidate = file_candidate(path)
    probed = probe(candidate)
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
    lines += [f"capability   {line}" for line in _capabilities(candidate.kind, report)]
    lines += [f"hook         {_hook(name, there)}" for name, there in probed.hooks.items()]
    return [*lines, *(f"fault        {fault}" for fault in faults), f"verdict      {_verdict(faults)}"], not faults


def _faults(name: str, probed: Probed) -> list[str]:
    faults = [] if has_backend_name(name) else [f"it would not be found: {NAME_FAULT}"]
    if probed.report.state is State.FAILED:
        faults.append(f"it would not be loaded: {probed.report.reason}")
    elif probed.report.id in registry.ids():
        faults.append(f"it would not be registered: the id {probed.report.id} is taken by a built-in backend")
    return faults


def _capabilities(kind: Kind, report: Report) -> list[str]:
    known = _WITHOUT if kind is Kind.NATIVE and report.state is State.READY else {}
    values = dict.fromkeys(known, False) | dict(report.capabilities)
    return [
        f"{name}: {'yes' if value else f'no, {known[name]}' if name in known else 'no'}"
        for name, value in values.items()
    ]


def _hook(name: str, there: bool) -> str:
    return f"{name}: present" if there else f"{name}: absent, {_DEFAULTS.get(name, 'it is not called')}"


def _verdict(faults: list[str]) -> str:
    return "it would not be used" if faults else "ready"


def _main(file: str) -> None:
    try:
        lines, ready = diagnose(Path(file))
    except OSError as error:
        print(f"{file}: {error.strerror}", file=sys.stderr)
        sys.exit(2)
    print("\n".join(lines))
    sys.exit(0 if ready else 1)


if __name__ == "__main__":
    _main(*sys.argv[1:])
