"""`nnhal conformance --self-test`: every fault must be caught by its ids, and the clean proxy must trip none."""

import fnmatch
from collections.abc import Sequence
from contextlib import ExitStack

from tools.conformance.data_connection import is_here
from tools.conformance.run import Where
from tools.conformance.selftest.fault import FAULTS, Fault, load
from tools.conformance.selftest.restartable import RestartableService
from tools.conformance.selftest.trial import Verdict, clean_trial, trial

CLEAN = "(clean proxy)"
_ROW = "{:<42} {:<31} {:<8} {:>5}"
_MORE = " " * 4


def main(target: str = "", device: str = "", patterns: Sequence[str] = (), restart_command: str = "") -> int:
    """Prints a table of faults and whether they were caught; its last line is `N caught, M missed`.

    Args:
        target: address of the real device's server; "" for an embedded one.
        device: its name; "" for the first.
        patterns: on names of faults; none for all. The clean proxy is always tried.
        restart_command: for the shell, restarts the target. Without one the faults that need it are left out;
            so are those of the data socket where the target is on another machine.

    Returns:
        exit status: 0 only when every fault was caught and the clean proxy tripped nothing.

    Raises:
        ValueError: no fault has such a name.
    """
    chosen = selected(patterns)
    with ExitStack() as stack:
        if not target:
            service = RestartableService()
            stack.callback(service.close)
            target, restart_command = service.target, service.restart_command
        where = Where(target, device, restart_command)
        here = _has_data_socket(where)
        chosen = [fault for fault in chosen if (restart_command or not fault.restarts) and (here or not fault.local)]
        print(_ROW.format("FAULT", "MUST FAIL", "CAUGHT", "S"))
        tripped = _show_clean(clean_trial(where, chosen))
        missed = sum(_show(fault, trial(where, fault)) for fault in chosen)
    print(f"{len(chosen) - missed} caught, {missed} missed")
    return 1 if missed or tripped else 0


def selected(patterns: Sequence[str] = ()) -> list[Fault]:
    """The faults whose names fit a pattern; all where there is none.

    Raises:
        ValueError: none fits.
    """
    load()
    chosen = [fault for fault in FAULTS.values() if not patterns or _fits(fault.name, patterns)]
    if not chosen:
        raise ValueError(f"no fault is called {' or '.join(patterns)}; there are {', '.join(FAULTS)}")
    return chosen


def _has_data_socket(where: Where) -> bool:
    with where.open() as target:
        return is_here(target)


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _show_clean(verdict: Verdict) -> bool:
    """Prints the clean proxy's row; gives whether a check failed."""
    tripped = bool(verdict.failed)
    print(_ROW.format(CLEAN, "none", "TRIPPED" if tripped else "none", f"{verdict.seconds:.1f}"), flush=True)
    for check, reason in verdict.failed.items():
        print(f"{_MORE}{check} failed: {reason}")
    return tripped


def _show(fault: Fault, verdict: Verdict) -> bool:
    """Prints a fault's row; gives whether an id missed it."""
    caught = "NO" if verdict.missed else "yes"
    print(_ROW.format(fault.name, " ".join(fault.checks), caught, f"{verdict.seconds:.1f}"), flush=True)
    if verdict.missed:
        print(f"{_MORE}{fault.text}")
        print(f"{_MORE}did not fail: {', '.join(verdict.missed)}; failed: {', '.join(verdict.failed) or 'none'}")
    return bool(verdict.missed)
