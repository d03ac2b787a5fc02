"""Runs suites over cases, several at once, and sums up."""

import json
import queue
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tools.conformance import generated
from tools.conformance.check import Result, Status
from tools.conformance.target import Target
from tools.conformance.vectors import Case


@dataclass(frozen=True)
class Where:
    """The device under test: address of the server, and name of the device on it ("" for the first)."""

    address: str
    device: str = ""


def run_generated(where: Where, cases: Sequence[Case], jobs: int) -> Iterator[Result]:
    """The suite `generated` over cases, `jobs` at once, each on a session of its own. Results come as they are made."""
    waiting: queue.SimpleQueue[Case] = queue.SimpleQueue()
    done: queue.SimpleQueue[Result | BaseException] = queue.SimpleQueue()
    for case in cases:
        waiting.put(case)

    def work(target: Target) -> None:
        try:
            while True:
                done.put(generated.run(target, waiting.get_nowait()))
        except queue.Empty:
            return
        except BaseException as error:
            done.put(error)

    with ExitStack() as stack:
        targets = [stack.enter_context(Target(where.address, where.device)) for _ in range(jobs)]
        threads = [threading.Thread(target=work, args=(target,), daemon=True) for target in targets]
        for thread in threads:
            thread.start()
        for _ in cases:
            result = done.get()
            if isinstance(result, BaseException):
                raise result
            yield result
        for thread in threads:
            thread.join()


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
        "results": [result.as_json() for result in sorted(results, key=lambda result: result.name)],
    }
    path.write_text(json.dumps(report, indent=1) + "\n")
