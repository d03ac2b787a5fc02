"""Runner of suites against a device, with several checks at once."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeAlias

from nnhal_tools.conformance.check import CheckFailed, NotServiceSpecific, Result, Status, record_failure, run_check
from nnhal_tools.conformance.device.control import NO_CONTROL, ServiceControl
from nnhal_tools.conformance.device.interposer import NO_FAULTS, Interposer
from nnhal_tools.conformance.device.ndk_library import NdkLibrary
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.ids import SUITES
from nnhal_tools.conformance.registry import DEVICE_CHECKS, VECTOR_CHECKS, DeviceCheck
from nnhal_tools.conformance.selection import Selection, sample_cases
from nnhal_tools.conformance.suites import load
from nnhal_tools.conformance.vectors.case import Case

STRICT_SUITES = ("nnhal", "host", "resilience")
"""Suites that run only with --strict, or if they are named."""

EVERYTHING = Selection()


@dataclass(frozen=True)
class TargetConfig:
    """Location of the device under test, and options of its sessions; see Target. `device`: "" for the first."""

    address: str
    device: str = ""
    control: ServiceControl = NO_CONTROL
    paths: Sequence[str] = ()
    interposer: Interposer = NO_FAULTS
    ndk: NdkLibrary | None = None

    def open(self) -> Target:
        """Open a session."""
        return Target(self.address, self.device, self.control, self.paths, self.interposer, self.ndk)


@dataclass(frozen=True)
class CheckTask:
    """Check, or check of one vector, to be run on a session. `exclusive`: nothing else may run at the same time."""

    name: str
    suite: str
    run: Callable[[Target], Iterable[Result]]
    exclusive: bool = False


def select_suites(names: Sequence[str] = (), *, strict: bool = False) -> tuple[str, ...]:
    """Return the named suites, or the default ones.

    Raises:
        ValueError: a name is unknown.
    """
    if unknown := sorted(set(names) - set(SUITES)):
        raise ValueError(f"unknown suite {unknown[0]!r}; the suites are {', '.join(SUITES)}")
    return tuple(names) or tuple(suite for suite in SUITES if strict or suite not in STRICT_SUITES)


def plan_tasks(
    suites: Sequence[str], cases: Sequence[Case], selection: Selection = EVERYTHING, count: int | None = None
) -> list[CheckTask]:
    """Return the tasks of suites: device checks first, then the vectors, suite by suite.

    `count`: the number of vectors of each signature that each suite uses; None for all.
    """
    load()
    suites = [suite for suite in suites if not selection.excludes_suite(suite)]
    tasks: list[CheckTask] = []
    for suite in suites:
        checks = [check for check in DEVICE_CHECKS if check.suite == suite and selection.matches_check(check)]
        tasks += [CheckTask(check.name, suite, _device_task(check), check.exclusive) for check in checks]
    for suite in suites:
        if suite in VECTOR_CHECKS:
            selected = [case for case in cases if selection.matches_case(case) and VECTOR_CHECKS[suite].applies(case)]
            if count is not None:
                selected = sample_cases(selected, count)
            tasks += [CheckTask(case.name, suite, _vector_task(suite, case)) for case in selected]
    return tasks


def run_tasks(
    config: TargetConfig, tasks: Sequence[CheckTask], jobs: int, on_done: Callable[[], None] = lambda: None
) -> Iterator[Result]:
    """Run tasks, `jobs` at once and each on a session of its own, and yield their results as they come.

    Exclusive tasks run last. If the device stops responding, the run ends early with a failure of COM-02. `on_done` is
    called after each task.

    Raises:
        NotServiceSpecific: there is no server at the address.
    """
    yield from _run(config, [task for task in tasks if not task.exclusive], jobs, on_done)
    yield from _run(config, [task for task in tasks if task.exclusive], 1, on_done)


def _run(config: TargetConfig, tasks: Sequence[CheckTask], jobs: int, on_done: Callable[[], None]) -> Iterator[Result]:
    pending: queue.SimpleQueue[CheckTask] = queue.SimpleQueue()
    events: queue.SimpleQueue[_WorkerEvent] = queue.SimpleQueue()
    for task in tasks:
        pending.put(task)
    with ExitStack() as stack:
        targets = [stack.enter_context(config.open()) for _ in range(min(jobs, len(tasks)))]
        for target in targets:
            threading.Thread(target=_worker, args=(target, pending, events), daemon=True).start()
        running = len(targets)
        while running:
            match events.get():
                case None:
                    running -= 1
                case CheckTask():
                    on_done()
                case BaseException() as error:
                    raise error
                case Result() as result:
                    yield result


_WorkerEvent: TypeAlias = Result | CheckTask | BaseException | None
"""Message of a worker: a result, a finished task, the error that stopped it, or None when it has ended."""


def _worker(target: Target, pending: "queue.SimpleQueue[CheckTask]", events: "queue.SimpleQueue[_WorkerEvent]") -> None:
    """Run tasks until none is pending or the device stops responding."""
    try:
        while True:
            task = pending.get_nowait()
            try:
                target.ping()
            except NotServiceSpecific as error:
                events.put(_no_response(task, error))
                break
            for result in task.run(target):
                events.put(result)
            events.put(task)
    except queue.Empty:
        pass
    except BaseException as error:
        events.put(error)
    events.put(None)


def _no_response(task: CheckTask, error: Exception) -> Result:
    result = Result(task.name, task.suite, "", Status.PASSED)
    return record_failure(result, CheckFailed("COM-02", "a ping before the check", "a response", error))


def _device_task(check: DeviceCheck) -> Callable[[Target], Iterable[Result]]:
    def run(target: Target) -> Iterable[Result]:
        result = Result(check.name, check.suite, "", Status.PASSED)
        yield run_check(result, check.id, lambda recorder: check.body(target, recorder))

    return run


def _vector_task(suite: str, case: Case) -> Callable[[Target], Iterable[Result]]:
    return lambda target: VECTOR_CHECKS[suite].body(target, case)
