"""Time that mistakes on the command line take in addition to the bare start of the command line.

`python -m tests.benchmark.mistakes` runs each mistake of `tests.end_to_end.mistakes.table` in a process of its own, and
`nnhal --version` before each. For each mistake it prints the smallest difference of a few rounds, in wall time and in
CPU time, the longest last. Wall time counts: on an idle machine, a mistake whose cause is known at once takes less than
a second. CPU time shows on a busy machine what the wall time would be.
"""

import argparse
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.end_to_end.mistakes.places import Places, environment_of, open_places, write_files
from tests.end_to_end.mistakes.table import MISTAKES, Mistake
from tests.end_to_end.support.service_process import start_service, stop_service

PROGRAM = [sys.executable, "-P", "-m", "nnhal"]
LIMIT_S = 1.0
"""Time that a mistake may take if no service has to start for it."""


@dataclass(frozen=True)
class Cost:
    """Seconds of a process, in wall time and in CPU time."""

    wall: float
    cpu: float

    def minus(self, other: "Cost") -> "Cost":
        """Return the difference."""
        return Cost(max(self.wall - other.wall, 0), max(self.cpu - other.cpu, 0))

    def least(self, other: "Cost") -> "Cost":
        """Return the smaller of both times."""
        return Cost(min(self.wall, other.wall), min(self.cpu, other.cpu))


def _measure(arguments: list[str], folder: Path, environment: dict[str, str]) -> Cost:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [*PROGRAM, *arguments], cwd=folder, env=environment, capture_output=True, check=False, stdin=subprocess.DEVNULL
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def _measure_mistake(mistake: Mistake, places: Places) -> tuple[Cost, Cost]:
    """Return the cost of a mistake, and that of a bare start."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder)
        if mistake.config:
            (folder / "nnhal.toml").write_text(mistake.config)
        environment = environment_of(mistake, folder)
        bare = _measure(["--version"], folder, environment)
        return _measure([argument.format_map(places) for argument in mistake.arguments], folder, environment), bare


def main() -> None:
    """Measure all mistakes, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    mistakes = [mistake for mistake in MISTAKES if not mistake.missing]  # all packages are installed here
    extra: dict[str, Cost] = {}
    starts: list[Cost] = []
    with TemporaryDirectory() as name:
        folder = Path(name)
        service = start_service(folder)
        with open_places(service.target, folder) as places:
            for mistake in mistakes * rounds:
                cost, bare = _measure_mistake(mistake, places)
                starts.append(bare)
                addition = cost.minus(bare)
                extra[mistake.label] = addition.least(extra.get(mistake.label, addition))
        stop_service(service)
    _report(starts, extra, {mistake.label for mistake in mistakes if mistake.starts})


def _report(starts: list[Cost], extra: dict[str, Cost], starting: set[str]) -> None:
    wall, cpu = (median(getattr(start, name) for start in starts) * 1e3 for name in ("wall", "cpu"))
    print(f"nnhal --version: {wall:.0f} ms, of CPU {cpu:.0f} ms (medians of {len(starts)})\nin addition: wall, CPU")
    for label, cost in sorted(extra.items(), key=lambda item: item[1].wall):
        note = ", starts a process" if label in starting else ""
        print(f"{cost.wall * 1e3:+6.0f} ms {cost.cpu * 1e3:+6.0f} ms  {label}{note}")
    late = {label for label, cost in extra.items() if cost.wall > LIMIT_S} - starting
    wall, cpu = (median(getattr(cost, name) for cost in extra.values()) * 1e3 for name in ("wall", "cpu"))
    print(f"{len(extra)} mistakes: medians {wall:+.0f} ms and {cpu:+.0f} ms; {len(late)} above {LIMIT_S:g} s")


if __name__ == "__main__":
    main()
