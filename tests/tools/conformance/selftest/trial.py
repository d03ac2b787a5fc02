"""Trials of faults: the checks of a fault run against a device that has it."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from nnhal_tools.conformance.check import Status
from nnhal_tools.conformance.device.interposer import Interposer
from nnhal_tools.conformance.runner import TargetConfig, plan_tasks, run_tasks
from nnhal_tools.conformance.selection import Selection
from nnhal_tools.conformance.vectors import builtin
from tests.tools.conformance.selftest.fault import Fault
from tests.tools.conformance.selftest.proxy import Hook, Proxy

NO_HOOKS: dict[str, Hook] = {}
"""Hooks of the clean proxy."""


@dataclass(frozen=True)
class TrialResult:
    """Result of a trial.

    Attributes:
        failed: the ids that failed, each with the reason of the first failure.
        missed: the ids that should have failed and did not.
        seconds: the duration.
    """

    failed: dict[str, str]
    missed: tuple[str, ...]
    seconds: float


def run_trial(config: TargetConfig, fault: Fault) -> TrialResult:
    """Run the checks that must catch a fault, through a proxy that injects it."""
    if fault.recovery_s is not None:
        config = replace(config, control=replace(config.control, recovery_s=fault.recovery_s))
    config = replace(config, paths=fault.paths, interposer=_interposer(fault))
    return _run(config, fault.hooks, fault.suites, (*fault.checks, *fault.select), expected=fault.checks)


def _interposer(fault: Fault) -> Interposer:
    """Return what injects a fault into the services that checks start themselves."""

    @contextmanager
    def proxy(address: str) -> Iterator[str]:
        with Proxy(address, fault.hooks) as interposed:
            yield interposed.address

    return Interposer(proxy, fault.edit_trace)


def run_clean_trial(config: TargetConfig, faults: Sequence[Fault]) -> TrialResult:
    """Run the checks of several faults through a proxy without a fault. No check may fail."""
    suites = tuple(dict.fromkeys(suite for fault in faults for suite in fault.suites))
    names = tuple(dict.fromkeys(name for fault in faults for name in (*fault.checks, *fault.select)))
    return _run(config, NO_HOOKS, suites, names, expected=())


def _run(
    config: TargetConfig,
    hooks: dict[str, Hook],
    suites: tuple[str, ...],
    patterns: tuple[str, ...],
    expected: tuple[str, ...],
) -> TrialResult:
    started = time.perf_counter()
    failed: dict[str, str] = {}
    with Proxy(config.address, hooks) as proxy:
        tasks = plan_tasks(suites, builtin.cases(), Selection(patterns))
        for result in run_tasks(replace(config, address=proxy.address), tasks, jobs=1):
            if result.status is Status.FAILED:
                failed = dict.fromkeys(result.checks, f"{result.name}: {result.reason}") | failed
    missed = tuple(check for check in expected if check not in failed)
    return TrialResult(failed, missed, time.perf_counter() - started)
