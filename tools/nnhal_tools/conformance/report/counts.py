"""Counts of results by suite, by operation and by check. All reports show these numbers."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from nnhal_tools.conformance.check import Result, Status

NEUTRAL = "ADD"
NEUTRAL_VARIATION = "all_inputs_as_internal"
"""Vectors with this in their names have an ADD of zero before each input. That ADD is not under test."""

Counts = Counter[Status]
Groups = dict[str, Counts]


def summary_line(results: Sequence[Result]) -> str:
    """Return `N passed, M failed, K skipped`, with the number of unsupported results if there are any."""
    counts = Counter(result.status for result in results)
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
