"""Failures that a run shows at once. A vector that fails in the same way on several paths is shown once."""

from collections.abc import Iterator

from nnhal_tools.conformance.check import Result, Status


class FailureGroups:
    """Failed results, grouped by everything but their path."""

    def __init__(self) -> None:
        self._paths: dict[tuple[str, ...], list[str]] = {}

    def is_new(self, result: Result) -> bool:
        """Record a result, and return whether it is a failure unlike those before."""
        if result.status is not Status.FAILED:
            return False
        failure = (result.name, result.suite, result.reason, *result.checks)
        paths = self._paths.setdefault(failure, [])
        paths.append(result.path)
        return len(paths) == 1

    def repetitions(self) -> Iterator[str]:
        """Yield a line for each failure that occurred on several paths."""
        for (name, suite, *_), (first, *others) in self._paths.items():
            if others:
                yield f"{name} ({suite}) failed on {', '.join(others)} in the same way as on {first}"
