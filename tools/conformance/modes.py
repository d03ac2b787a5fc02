"""`nnhal conformance --mode`: instead of judging vectors, lists who takes their operations, or times them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from nnhal.types import ErrorStatus
from nnhal.v1 import device_pb2
from tools.conformance.request import requesting
from tools.conformance.target import Run, Target, called
from tools.conformance.vectors import Case

if TYPE_CHECKING:
    from rich.table import Table

NOBODY = "nobody"
_RUNS = 5
_MEASURED = Run(measure=True)


@dataclass(frozen=True)
class Timed:
    """One vector: its operations, the backends that run them, and the fastest of some runs on the device."""

    name: str
    operations: Sequence[str]
    backends: Sequence[str]
    device_us: float


def claims(target: Target, cases: Iterable[Case]) -> Mapping[str, Counter[str]]:
    """For each operation how often each backend takes it in main, or NOBODY. Models to refuse are left out."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for case in cases:
        if case.expect_failure:
            continue
        request = device_pb2.GetSupportedOperationsRequest(
            session=target.session, device=target.name, model=target.own_pools(case.model()), explain=True
        )
        answer, response = called(target.device.GetSupportedOperations, request)
        target.release_pools(request.model.pools)
        if answer.status != ErrorStatus.NONE:
            continue
        placed = [one.backend for one in response.placement.operations if one.subgraph == 0]
        backends = placed or ["the device" if taken else "" for taken in response.supported]
        for name, backend in zip(case.main_operations, backends, strict=True):
            found[name][backend or NOBODY] += 1
    return dict(sorted(found.items()))


def times(target: Target, cases: Iterable[Case]) -> list[Timed]:
    """The time of every vector that the device runs, slowest first."""
    found = []
    for case in cases:
        if case.expect_failure:
            continue
        model = target.own_pools(case.model())
        prepared = target.prepare(model)
        if prepared.model:
            with requesting(target, case) as request:
                runs = [target.execute(prepared.model, request, _MEASURED) for _ in range(_RUNS)]
            took = [run.timing[0] for run in runs if run.answer.status == ErrorStatus.NONE]
            if took:
                backends = tuple(dict.fromkeys(prepared.backends))
                found.append(Timed(case.name, case.main_operations, backends, min(took) / 1e3))
            target.release(prepared.model)
        target.release_pools(model.pools)
    return sorted(found, key=lambda one: -one.device_us)


def claims_table(found: Mapping[str, Counter[str]]) -> "Table":
    """A row for each operation, a column for each backend."""
    from rich.table import Table

    names = sorted(
        {backend for counts in found.values() for backend in counts}, key=lambda name: (name == NOBODY, name)
    )
    table = Table("operation")
    for name in ("total", *names):
        table.add_column(name, justify="right")
    for operation, counts in found.items():
        table.add_row(operation, str(counts.total()), *(str(counts[name] or "") for name in names))
    return table


def times_table(found: Sequence[Timed]) -> "Table":
    """A row for each operation: vectors of that one operation, their median, and the slowest of them."""
    from rich.table import Table

    groups: dict[str, list[Timed]] = defaultdict(list)
    for one in found:
        groups[one.operations[0] if len(one.operations) == 1 else "several operations"].append(one)
    table = Table("operation", "backends")
    for heading in ("vectors", "median µs", "slowest µs"):
        table.add_column(heading, justify="right")
    table.add_column("which")
    for operation, group in sorted(groups.items()):
        backends = ", ".join(dict.fromkeys(backend for one in group for backend in one.backends))
        middle = median(one.device_us for one in group)
        slowest = group[0]
        figures = (str(len(group)), f"{middle:,.1f}", f"{slowest.device_us:,.1f}")
        table.add_row(operation, backends, *figures, slowest.name)
    return table
