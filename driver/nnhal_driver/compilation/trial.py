"""Trial of a plug-in for its author: every operation of the HAL is offered to it, and it compiles those that it takes.

The boundary hides failures of backends from clients, because others take over. A trial reports them. The doctor runs
this module in a process of its own, in place of `nnhal_driver.backends.plugins.probe`.
"""

import logging
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nnhal.errors import HalError, exception_text
from nnhal.types import ExecutionPreference, OperandType, OperationType
from nnhal_driver.backends.api import Backend, CompileOptions
from nnhal_driver.backends.boundary.answers import support
from nnhal_driver.backends.plugins.probe import load_and_exit
from nnhal_driver.compilation.operation_support import example_graphs
from nnhal_driver.compilation.optimization import optimize_and_compile
from nnhal_driver.graph import subgraph_view

_OPTIONS = CompileOptions(ExecutionPreference.FAST_SINGLE_ANSWER)


def try_operations(backend: Backend) -> tuple[str, Sequence[str]]:
    """Return how many operations a backend takes, and what it did wrong: it raised, lied, or did not keep a promise."""
    asked: set[int] = set()
    taken: set[int] = set()
    with _recorded_failures() as failures:
        for type_, operand, graph in example_graphs():
            asked.add(type_)
            if not support(backend, graph.operations[0]):
                continue
            taken.add(type_)
            try:
                optimize_and_compile(backend, subgraph_view(graph, (0,), relaxed=False), _OPTIONS)
            except (HalError, MemoryError) as error:
                name = f"{OperationType(type_).name} of {OperandType(operand).name}"
                failures[f"it supports {name}, and fails to compile it: {exception_text(error)}"] += 1
    times = (f"{text}{f' ({count} times)' if count > 1 else ''}" for text, count in failures.items())
    warning = "" if taken else ": it would run nothing but extensions"
    return f"it supports an example of {len(taken)} of {len(asked)}{warning}", tuple(times)


class _FailureHandler(logging.Handler):
    """Handler that counts what the boundary logs as an error of a backend."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.failures: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Count a record."""
        error = record.exc_info[1] if record.exc_info else None
        self.failures[record.getMessage() + (f": {exception_text(error)}" if error else "")] += 1


@contextmanager
def _recorded_failures() -> Iterator[Counter[str]]:
    handler, logger = _FailureHandler(), logging.getLogger("nnhal_driver.backends.boundary")
    logger.addHandler(handler)
    try:
        yield handler.failures
    finally:
        logger.removeHandler(handler)


if __name__ == "__main__":
    load_and_exit(*sys.argv[1:], trial=try_operations)
