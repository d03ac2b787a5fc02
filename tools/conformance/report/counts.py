"""Counts results by suite, by operation and by check; every report shows the same numbers."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from tools.conformance.check import Result, Status

NEUTRAL = "ADD"
NEUTRAL_VARIATION = "all_inputs_as_internal"
"""Vectors with this in their names have an ADD of zero before each input; it is not what they test."""

Counts = Counter[Status]
Groups = dict[str, Counts]


def operations_of(result: Result) -> list[str]:
    """The operations that a result counts for: each of its model's once, in order, without neutral ADDs."""
    names = list(dict.fromkeys(name for name, _ in result.operations))
    if NEUTRAL_VARIATION in result.name and len(names) > 1:
        return [name for name in names if name != NEUTRAL]
    return names


def by_suite(results: Sequence[Result]) -> Groups:
    """Counts by suite, in the order in which suites ran."""
    return _grouped(results, lambda result: [result.suite])


def by_operation(results: Sequence[Result]) -> Groups:
    """Counts by operation, most failures first, then by name.

    A result whose model has several operations counts for each; one without a model counts for none.
    """
    groups = _grouped(results, operations_of)
    return dict(sorted(groups.items(), key=lambda group: (-group[1][Status.FAILED], group[0])))


def by_check(results: Sequence[Result]) -> Groups:
    """Counts of the failures by the check that did not hold, most first, then by id."""
    groups = _grouped([result for result in results if result.status == Status.FAILED], lambda result: [result.check])
    return dict(sorted(groups.items(), key=lambda group: (-group[1].total(), group[0])))


def _grouped(results: Sequence[Result], keys: Callable[[Result], Iterable[str]]) -> Groups:
    groups: Groups = defaultdict(Counter)
    for result in results:
        for key in keys(result):
            groups[key][result.status] += 1
    return dict(groups)
