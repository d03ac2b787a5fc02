"""The suite `validation` (VALMODEL): every mutation of every vector's model must be refused by every call.

A vector gives one result: it passed, or the first failure of each mutation that was not refused.
"""

import time
from collections.abc import Iterator

from nnhal.v1 import types_pb2
from tools.conformance import mutations
from tools.conformance.check import CheckFailed, Result, fail
from tools.conformance.gate import refused
from tools.conformance.mutations import Base
from tools.conformance.registry import per_vector, result_of
from tools.conformance.target import BOTH_PREPARATIONS, Preparing, Target
from tools.conformance.vectors import Case

SUITE = "validation"

CALLS = {
    "getSupportedOperations": "VALMODEL-01",
    "prepareModel": "VALMODEL-02",
    "prepareModelWithConfig": "VALMODEL-03",
}
"""The id of what is expected of each call."""

ARGUMENTS = {"VALMODEL-24": "preference", "VALMODEL-25": "priority"}
NO_ARGUMENTS = (-1, 3)
"""Preferences and priorities that do not exist."""


@per_vector(SUITE, lambda case: not case.is_variant)
def validation(target: Target, case: Case) -> Iterator[Result]:
    """One result for a vector that passes; one for each mutation that fails."""
    started = time.perf_counter()
    model = target.own_pools(case.model())
    base = Base(model)
    failures = [*_mutations(target, base), *_arguments(target, model)]
    target.release_pools(model.pools)
    results = [fail(result_of(case, SUITE), failed) for failed in failures]
    if not results:
        passed = result_of(case, SUITE)
        passed.checks = [*CALLS.values(), *mutations.load(), *ARGUMENTS]
        results = [passed]
    for result in results:
        result.seconds = (time.perf_counter() - started) / len(results)
        yield result


def _mutations(target: Target, base: Base) -> Iterator[CheckFailed]:
    for check, mutator in mutations.load().items():
        for edit in mutator(base):
            problem = refused(target, base.edited(edit), check, edit.place, calls=CALLS)
            if problem is not None:
                yield problem
                break


def _arguments(target: Target, model: types_pb2.Model) -> Iterator[CheckFailed]:
    """VALMODEL-24 and -25."""
    for check, argument in ARGUMENTS.items():
        for value in NO_ARGUMENTS:
            ways = [Preparing(how.with_config, **{argument: value}) for how in BOTH_PREPARATIONS]
            problem = refused(target, model, check, f"{argument} {value}", ways, ask=False, calls=CALLS)
            if problem is not None:
                yield problem
                break
