"""One fault on trial: the suites of its ids run against a device that has it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tools.conformance import builtin
from tools.conformance.check import Status
from tools.conformance.run import Where, run, tasks
from tools.conformance.selection import Selection
from tools.conformance.selftest.fault import Fault
from tools.conformance.selftest.proxy import Hook, Proxy

CLEAN: dict[str, Hook] = {}
"""The hooks of the clean proxy."""


@dataclass(frozen=True)
class Verdict:
    """What a trial brought.

    Attributes:
        failed: the ids that failed, each with the first reason.
        missed: the ids that should have failed and did not.
        seconds: how long it took.
    """

    failed: dict[str, str]
    missed: tuple[str, ...]
    seconds: float


def trial(where: Where, fault: Fault) -> Verdict:
    """Runs the checks that must catch a fault, through a proxy that has it."""
    where = replace(where, paths=fault.paths)
    return _verdict(where, fault.hooks, fault.suites, (*fault.checks, *fault.select), must_fail=fault.checks)


def clean_trial(where: Where, faults: Sequence[Fault]) -> Verdict:
    """Runs the checks of all these faults through a proxy without any: `failed` must stay empty."""
    suites = tuple(dict.fromkeys(suite for fault in faults for suite in fault.suites))
    names = tuple(dict.fromkeys(name for fault in faults for name in (*fault.checks, *fault.select)))
    return _verdict(where, CLEAN, suites, names, must_fail=())


def _verdict(
    where: Where,
    hooks: dict[str, Hook],
    suites: tuple[str, ...],
    names: tuple[str, ...],
    must_fail: tuple[str, ...],
) -> Verdict:
    started = time.perf_counter()
    failed: dict[str, str] = {}
    with Proxy(where.address, hooks) as proxy:
        work = tasks(suites, builtin.cases(), Selection(names))
        for result in run(replace(where, address=proxy.address), work, jobs=1):
            if result.status is Status.FAILED:
                failed = dict.fromkeys(result.checks, f"{result.name}: {result.reason}") | failed
    missed = tuple(check for check in must_fail if check not in failed)
    return Verdict(failed, missed, time.perf_counter() - started)
