"""Counts of results by suite, operation, backend and check. All reports show these numbers."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from nnhal.types import BackendInfo, BackendState
from nnhal_tools.conformance.check import Result, Status
from nnhal_tools.conformance.run_info import RunInfo
from nnhal_tools.tables import counted

NEUTRAL = "ADD"
NEUTRAL_VARIATION = "all_inputs_as_internal"
"""Vectors with this in their names have an ADD of zero before each input. That ADD is not under test."""

_BUILT_IN = "built in"
"""Origin of backends that are part of a device."""
_SHOWN = 10
"""Number of different faults of backends that a run shows."""
_LITTLE = 0.05
"""Share of the operations below which a plug-in runs almost nothing."""

Counts = Counter[Status]
Groups = dict[str, Counts]


def summary_line(results: Sequence[Result]) -> str:
    """Return `N passed, M failed, K skipped`, with the number of unsupported results if there are any."""
    return counts_line(Counter(result.status for result in results))


def counts_line(counts: Counts) -> str:
    """Return the summary line of results that were counted before."""
    statuses = [Status.PASSED, Status.FAILED, Status.SKIPPED]
    if counts[Status.UNSUPPORTED]:
        statuses.append(Status.UNSUPPORTED)
    return ", ".join(f"{counts[status]} {status}" for status in statuses)


def counted_operations(result: Result) -> list[str]:
    """Return the operations that a result counts for: those of its model, each once, without neutral ADDs."""
    names = list(dict.fromkeys(name for name, _ in result.operations))
    if NEUTRAL_VARIATION in result.name and len(names) > 1:
        return [name for name in names if name != NEUTRAL]
    return names


def by_suite(results: Sequence[Result]) -> Groups:
    """Return the counts by suite, in the order in which the suites ran."""
    return _group(results, lambda result: [result.suite])


def by_operation(results: Sequence[Result]) -> Groups:
    """Return the counts by operation, most failures first, then by name.

    A result counts for each operation of its model. A result without a model does not count.
    """
    groups = _group(results, counted_operations)
    return dict(sorted(groups.items(), key=lambda group: (-group[1][Status.FAILED], group[0])))


@dataclass
class BackendShare:
    """Part of a run that one backend computed. Only the id of the backend is known if the device does not list it.

    Attributes:
        operations: the operations that it ran itself, by name.
        by_path: the same for each path of execution, in the order in which the paths ran.
        counts: the results of models in which it ran an operation.
    """

    backend: BackendInfo
    operations: set[str] = field(default_factory=set)
    by_path: dict[str, set[str]] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counter)

    def describe(self, total: int) -> str:
        """Return how many of a number of operations the backend ran itself."""
        return f"ran {len(self.operations)} of {counted(total, 'operation')}"

    def describe_paths(self) -> str:
        """Return how many operations the backend ran on each path, for example "SYNC 2, BURST 1"."""
        return ", ".join(f"{path} {len(operations)}" for path, operations in self.by_path.items())

    def add(self, operation: str, path: str) -> None:
        """Count an operation that the backend ran. `path`: "" if the check is not about a path."""
        self.operations.add(operation)
        if path:
            self.by_path.setdefault(path, set()).add(operation)


def by_backend(results: Sequence[Result], info: RunInfo) -> list[BackendShare]:
    """Return the shares of the backends, in the device's order; [] if the device does not tell who runs what.

    Backends that are ready but ran nothing have a share, too.
    """
    shares = {backend.id: BackendShare(backend) for backend in info.ready_backends}
    for result in results:
        names = counted_operations(result)
        pairs = {(name, backend) for name, backend in result.operations if backend and name in names}
        for name, backend in pairs:
            unlisted = BackendShare(BackendInfo(backend, "", BackendState.READY))
            shares.setdefault(backend, unlisted).add(name, result.path)
        for backend in {backend for _, backend in pairs}:
            shares[backend].counts[result.status] += 1
    return list(shares.values()) if any(share.operations for share in shares.values()) else []


def backend_warnings(results: Sequence[Result], info: RunInfo) -> list[str]:
    """Return what a summary of passed results hides: backends that failed, and plug-ins that ran almost nothing."""
    faults = Counter(fault for result in results for fault in result.faults)
    lines = [
        f"FAILED {fault} ({counted(count, 'result')}; others took over)" for fault, count in faults.most_common(_SHOWN)
    ]
    if len(faults) > _SHOWN:
        lines.append(f"FAILED {counted(len(faults) - _SHOWN, 'other fault')} of backends")
    total = len(by_operation(results))
    for share in by_backend(results, info):
        if share.backend.origin not in ("", _BUILT_IN) and len(share.operations) < total * _LITTLE:
            lines.append(
                f"WARNING {share.backend.id} {share.describe(total)}: these results are those of other backends"
            )
    return lines


def by_check(results: Sequence[Result]) -> Groups:
    """Return the counts of failures by the failed check, most failures first, then by id."""
    groups = _group([result for result in results if result.status == Status.FAILED], lambda result: [result.check])
    return dict(sorted(groups.items(), key=lambda group: (-group[1].total(), group[0])))


def _group(results: Sequence[Result], keys: Callable[[Result], Iterable[str]]) -> Groups:
    groups: Groups = defaultdict(Counter)
    for result in results:
        for key in keys(result):
            groups[key][result.status] += 1
    return dict(groups)
