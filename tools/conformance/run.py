"""Runs suites against a device, several checks at once, and sums up."""

import json
import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tools.conformance import registry
from tools.conformance.check import CheckFailed, NotServiceSpecific, Result, Status, fail, judged
from tools.conformance.ids import SUITES
from tools.conformance.registry import DEVICE_CHECKS, VECTOR_CHECKS, DeviceCheck
from tools.conformance.selection import Selection, sample
from tools.conformance.target import Target
from tools.conformance.vectors import Case

STRICT_SUITES = ("nnhal",)
"""Suites that run only with --strict, or where they are named."""

EVERYTHING = Selection()


@dataclass(frozen=True)
class Where:
    """The device under test.

    Attributes:
        address: of the server.
        device: name of the device on it; "" for the first.
        restart_command: for the shell, restarts the server; "" where there is none.
        paths: see Target.
    """

    address: str
    device: str = ""
    restart_command: str = ""
    paths: Sequence[str] = ()

    def open(self) -> Target:
        """A session on it."""
        return Target(self.address, self.device, self.restart_command, self.paths)


@dataclass(frozen=True)
class Task:
    """One piece of work on one session. `alone`: nothing else may run at the same time."""

    name: str
    suite: str
    work: Callable[[Target], Iterable[Result]]
    alone: bool = False


def suites(names: Sequence[str] = (), *, strict: bool = False) -> tuple[str, ...]:
    """Names of suites: those given, or all.

    Raises:
        ValueError: there is no such suite.
    """
    if unknown := sorted(set(names) - set(SUITES)):
        raise ValueError(f"there is no suite {unknown[0]!r}; there are {', '.join(SUITES)}")
    return tuple(names) or tuple(suite for suite in SUITES if strict or suite not in STRICT_SUITES)


def tasks(
    names: Sequence[str], cases: Sequence[Case], selection: Selection = EVERYTHING, count: int | None = None
) -> list[Task]:
    """What running suites over cases comes to: checks of the device first, then the vectors, suite by suite.

    Args:
        names: of suites.
        cases: the vectors.
        selection: of vectors, and of the checks that need none.
        count: how many vectors each suite takes of those with the same operations and types; None for all.
    """
    registry.load()
    found: list[Task] = []
    for suite in names:
        here = [check for check in DEVICE_CHECKS if check.suite == suite and selection.takes_check(check)]
        found += [Task(check.name, suite, _device_work(check), check.alone) for check in here]
    for suite in names:
        if suite in VECTOR_CHECKS:
            chosen = [case for case in cases if selection.takes_case(case) and VECTOR_CHECKS[suite].applies(case)]
            if count is not None:
                chosen = sample(chosen, count)
            found += [Task(case.name, suite, _vector_work(suite, case)) for case in chosen]
    return found


def _nothing() -> None:
    pass


def run(where: Where, work: Sequence[Task], jobs: int, done: Callable[[], None] = _nothing) -> Iterator[Result]:
    """Does tasks, `jobs` at once, each on a session of its own. Results come as they are made.

    Those that must be alone come last. Ends early, with a failure of COM-02, when the device does not answer any more.

    Args:
        done: called after each task.

    Raises:
        NotServiceSpecific: nobody answers at the address.
    """
    yield from _run(where, [task for task in work if not task.alone], jobs, done)
    yield from _run(where, [task for task in work if task.alone], 1, done)


def _run(where: Where, work: Sequence[Task], jobs: int, done: Callable[[], None]) -> Iterator[Result]:
    waiting: queue.SimpleQueue[Task] = queue.SimpleQueue()
    news: queue.SimpleQueue[News] = queue.SimpleQueue()
    for task in work:
        waiting.put(task)
    with ExitStack() as stack:
        targets = [stack.enter_context(where.open()) for _ in range(min(jobs, len(work)))]
        for target in targets:
            threading.Thread(target=_worker, args=(target, waiting, news), daemon=True).start()
        running = len(targets)
        while running:
            match news.get():
                case None:
                    running -= 1
                case Task():
                    done()
                case BaseException() as error:
                    raise error
                case Result() as result:
                    yield result


News: TypeAlias = Result | Task | BaseException | None
"""What a worker tells: a result; a task that is done; that it cannot go on; None, that it has ended."""


def _worker(target: Target, waiting: "queue.SimpleQueue[Task]", news: "queue.SimpleQueue[News]") -> None:
    """Does tasks until there are none or the device is gone."""
    try:
        while True:
            task = waiting.get_nowait()
            try:
                target.ping()
            except NotServiceSpecific as error:
                news.put(_gone(task, error))
                break
            for result in task.work(target):
                news.put(result)
            news.put(task)
    except queue.Empty:
        pass
    except BaseException as error:
        news.put(error)
    news.put(None)


def _gone(task: Task, error: Exception) -> Result:
    result = Result(task.name, task.suite, "", Status.PASSED)
    return fail(result, CheckFailed("COM-02", "a ping before the check", "an answer", error))


def _device_work(check: DeviceCheck) -> Callable[[Target], Iterable[Result]]:
    def work(target: Target) -> Iterable[Result]:
        result = Result(check.name, check.suite, "", Status.PASSED)
        yield judged(result, check.id, lambda judge: check.body(target, judge))

    return work


def _vector_work(suite: str, case: Case) -> Callable[[Target], Iterable[Result]]:
    return lambda target: VECTOR_CHECKS[suite].body(target, case)


def summary(results: Sequence[Result]) -> str:
    """The last line: `N passed, M failed, K skipped`, and how many the device does not offer, if any."""
    counts = Counter(result.status for result in results)
    parts = [Status.PASSED, Status.FAILED, Status.SKIPPED]
    if counts[Status.UNSUPPORTED]:
        parts.append(Status.UNSUPPORTED)
    return ", ".join(f"{counts[status]} {status}" for status in parts)


def write_json(path: Path, where: Where, results: Sequence[Result]) -> None:
    """One entry for each result, and the summary."""
    report = {
        "target": where.address,
        "device": where.device,
        "summary": summary(results),
        "results": [result.as_json() for result in sorted(results, key=lambda r: (r.suite, r.name, r.path))],
    }
    path.write_text(json.dumps(report, indent=1) + "\n")
