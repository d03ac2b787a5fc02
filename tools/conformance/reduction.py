"""Failing vectors of a run, each made as small as it can be while it fails by the same check."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.conformance.check import Result, Status
from tools.conformance.reduce import reduce, write
from tools.conformance.registry import VECTOR_CHECKS
from tools.conformance.run import Where
from tools.conformance.target import Target
from tools.conformance.twin import signed_twin
from tools.conformance.vectors import Case

SUITE = "generated"


def write_reduced(folder: Path, where: Where, cases: Sequence[Case], results: Sequence[Result]) -> Iterator[Path]:
    """Writes a vector file for each vector that failed in the suite `generated`; gives its path.

    Args:
        cases: the vectors of the run.

    Raises:
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    failed = {result.name: result for result in results if result.suite == SUITE and result.status is Status.FAILED}
    with where.open() as target:
        for case in _with_twins(cases):
            if result := failed.get(case.name):
                path = folder / (re.sub(r"[^\w.-]+", "_", case.name) + ".jsonl.gz")
                write(path, _reduced(target, case, result))
                yield path


def _with_twins(cases: Sequence[Case]) -> Iterator[Case]:
    for case in cases:
        yield case
        if twin := signed_twin(case):
            yield twin


def _reduced(target: Target, case: Case, result: Result) -> Case:
    target.paths = (result.path,)  # the others would only take time

    def fails(smaller: Case) -> bool:
        outcomes = VECTOR_CHECKS[SUITE].body(target, smaller)
        return any(outcome.check == result.check and outcome.path == result.path for outcome in outcomes)

    return reduce(case, fails)
