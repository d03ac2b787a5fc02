"""`nnhal conformance --self-test`: every fault must be caught by its ids, and no check may fail without a fault."""

import fnmatch
from collections.abc import Sequence
from contextlib import ExitStack
from difflib import get_close_matches

from nnhal_tools.conformance.device.control import NO_CONTROL, ServiceControl
from nnhal_tools.conformance.device.data_connection import is_data_socket_reachable
from nnhal_tools.conformance.runner import TargetConfig
from tests.tools.conformance.selftest.fault import FAULTS, Fault
from tests.tools.conformance.selftest.faults import load
from tests.tools.conformance.selftest.restartable import RestartableService
from tests.tools.conformance.selftest.trial import TrialResult, run_clean_trial, run_trial

CLEAN_ROW = "(clean proxy)"
_ROW = "{:<42} {:<31} {:<8} {:>5}"
_INDENT = " " * 4


def main(target: str = "", device: str = "", patterns: Sequence[str] = (), control: ServiceControl = NO_CONTROL) -> int:
    """Print a table of the faults with whether they were caught. The last line is `N caught, M missed`.

    Args:
        target: the address of the real device's server; "" for an embedded one.
        device: the name of the device; "" for the first.
        patterns: glob patterns of the faults to try; none for all. The clean proxy always runs.
        control: the commands that restart, kill and stop the target. Faults that need one that is missing are left
            out, and those of the data socket if the target is on another machine.

    Returns:
        The exit status: 0 if every fault was caught and no check failed on the clean proxy.

    Raises:
        ValueError: no fault matches the patterns.
    """
    faults = select_faults(patterns)
    with ExitStack() as stack:
        if not target:
            service = RestartableService()
            stack.callback(service.close)
            target, control = service.target, service.control
        config = TargetConfig(target, device, control)
        faults = _injectable(faults, control, has_data_socket=_has_data_socket(config))
        print(_ROW.format("FAULT", "MUST FAIL", "CAUGHT", "S"))
        clean_failed = _print_clean(run_clean_trial(config, faults))
        missed = sum(_print_fault(fault, run_trial(config, fault)) for fault in faults)
    print(f"{len(faults) - missed} caught, {missed} missed")
    return 1 if missed or clean_failed else 0


def select_faults(patterns: Sequence[str] = ()) -> list[Fault]:
    """Return the faults whose names match a pattern, or all if there is none.

    Raises:
        ValueError: no fault matches.
    """
    load()
    faults = [fault for fault in FAULTS.values() if not patterns or _matches(fault.name, patterns)]
    if not faults:
        pattern = patterns[0]
        similar = get_close_matches(pattern, FAULTS, cutoff=0.3) or list(FAULTS)[:3]
        raise ValueError(f"no fault matches {pattern!r}; similar names of {len(FAULTS)}: {', '.join(similar)}")
    return faults


def _injectable(faults: Sequence[Fault], control: ServiceControl, *, has_data_socket: bool) -> list[Fault]:
    """Return the faults that can show on a target."""
    return [
        fault
        for fault in faults
        if all(getattr(control, command) for command in fault.needs)
        and (has_data_socket or not fault.needs_data_socket)
    ]


def _has_data_socket(config: TargetConfig) -> bool:
    with config.open() as target:
        return is_data_socket_reachable(target)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _print_clean(result: TrialResult) -> bool:
    """Print the row of the clean proxy, and return whether a check failed."""
    failed = bool(result.failed)
    print(_ROW.format(CLEAN_ROW, "none", "FAILED" if failed else "none", f"{result.seconds:.1f}"), flush=True)
    for check, reason in result.failed.items():
        print(f"{_INDENT}{check} failed: {reason}")
    return failed


def _print_fault(fault: Fault, result: TrialResult) -> bool:
    """Print the row of a fault, and return whether an id missed it."""
    caught = "NO" if result.missed else "yes"
    print(_ROW.format(fault.name, " ".join(fault.checks), caught, f"{result.seconds:.1f}"), flush=True)
    if result.missed:
        print(f"{_INDENT}{fault.description}")
        print(f"{_INDENT}did not fail: {', '.join(result.missed)}; failed: {', '.join(result.failed) or 'none'}")
    return bool(result.missed)
