"""Modes `support` and `perf` of `nnhal conformance`: list the backends of each operation, or time the vectors."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from nnhal.types import ErrorStatus
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.requests import case_request
from nnhal_tools.tables import make_table

if TYPE_CHECKING:
    from rich.table import Table

NO_BACKEND = "no backend"
_RUNS = 5
_MEASURED = RunOptions(measure=True)


@dataclass(frozen=True)
class CaseTiming:
    """Fastest of several runs of a vector on the device, with its operations and their backends."""

    name: str
    operations: Sequence[str]
    backends: Sequence[str]
    device_us: float


def count_support(target: Target, cases: Iterable[Case]) -> Mapping[str, Counter[str]]:
    """Return for each operation of main how often each backend supports it, or NO_BACKEND.

    Models that must be rejected are left out.
    """
    support: dict[str, Counter[str]] = defaultdict(Counter)
    for case in cases:
        if case.expect_failure:
            continue
        model = target.upload_large_pools(case.model())
        outcome, response = target.call("Device.GetSupportedOperations", model=model, explain=True)
        target.release_pools(model.pools)
        if outcome.status != ErrorStatus.NONE:
            continue
        placed = [operation.backend for operation in response.placement.operations if operation.subgraph == 0]
        backends = placed or ["the device" if supported else "" for supported in response.supported]
        for name, backend in zip(case.main_operations, backends, strict=True):
            support[name][backend or NO_BACKEND] += 1
    return dict(sorted(support.items()))


def measure_times(target: Target, cases: Iterable[Case]) -> list[CaseTiming]:
    """Return the time of each vector that the device runs, slowest first."""
    timings = []
    for case in cases:
        if case.expect_failure:
            continue
        model = target.upload_large_pools(case.model())
        preparation = target.prepare(model)
        if preparation.model:
            with case_request(target, case) as request:
                runs = [target.execute(preparation.model, request, _MEASURED) for _ in range(_RUNS)]
            times_ns = [run.timing[0] for run in runs if run.outcome.status == ErrorStatus.NONE]
            if times_ns:
                backends = tuple(dict.fromkeys(preparation.backends))
                timings.append(CaseTiming(case.name, case.main_operations, backends, min(times_ns) / 1e3))
            target.release(preparation.model)
        target.release_pools(model.pools)
    return sorted(timings, key=lambda timing: -timing.device_us)


def support_table(support: Mapping[str, Counter[str]]) -> "Table":
    """Return a row for each operation, and a column for each backend."""
    names = sorted(
        {backend for counts in support.values() for backend in counts}, key=lambda name: (name == NO_BACKEND, name)
    )
    table = make_table("operation", "total", *names, right=("total", *names))
    for operation, counts in support.items():
        table.add_row(operation, str(counts.total()), *(str(counts[name] or "") for name in names))
    return table


def timing_table(timings: Sequence[CaseTiming]) -> "Table":
    """Return a row for each operation: the number of vectors with only it, their median time, and the slowest one."""
    groups: dict[str, list[CaseTiming]] = defaultdict(list)
    for timing in timings:
        groups[timing.operations[0] if len(timing.operations) == 1 else "several operations"].append(timing)
    figures = ("vectors", "median µs", "slowest µs")
    table = make_table("operation", "backends", *figures, "slowest vector", right=figures)
    for operation, group in sorted(groups.items()):
        backends = ", ".join(dict.fromkeys(backend for timing in group for backend in timing.backends))
        middle = median(timing.device_us for timing in group)
        slowest = group[0]
        numbers = (str(len(group)), f"{middle:,.1f}", f"{slowest.device_us:,.1f}")
        table.add_row(operation, backends, *numbers, slowest.name)
    return table
