"""Suite `validation` (VALMODEL): every call must reject every mutation of every vector's model.

A vector that passes has one result. Otherwise it has one result for each mutator, with its first accepted mutation.
"""

import time
from collections.abc import Iterator

from nnhal.v1 import types_pb2
from nnhal_tools.conformance import mutations
from nnhal_tools.conformance.check import CheckFailed, Result, record_failure
from nnhal_tools.conformance.device.options import PreparationOptions, both_preparations
from nnhal_tools.conformance.device.preparation_gate import find_refusal_failure
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.mutations import ValidModel
from nnhal_tools.conformance.registry import new_result, vector_check
from nnhal_tools.conformance.vectors.case import Case

SUITE = "validation"

CALLS = {
    "getSupportedOperations": "VALMODEL-01",
    "prepareModel": "VALMODEL-02",
    "prepareModelWithConfig": "VALMODEL-03",
}
"""Check id of each call."""

ARGUMENTS = {"VALMODEL-24": "preference", "VALMODEL-25": "priority"}
UNKNOWN_VALUES = (-1, 3)
"""Unknown preferences and priorities."""


@vector_check(SUITE, lambda case: not case.is_variant)
def validation(target: Target, case: Case) -> Iterator[Result]:
    """Yield one result for a vector that passes, or one for each mutator that fails."""
    started = time.perf_counter()
    model = target.upload_large_pools(case.model())
    valid = ValidModel(model)
    failures = [*_mutation_failures(target, valid), *_argument_failures(target, model)]
    target.release_pools(model.pools)
    results = [record_failure(new_result(case, SUITE), failure) for failure in failures]
    if not results:
        passed = new_result(case, SUITE)
        passed.checks = [*CALLS.values(), *mutations.load(), *ARGUMENTS]
        results = [passed]
    for result in results:
        result.seconds = (time.perf_counter() - started) / len(results)
        yield result


def _mutation_failures(target: Target, valid: ValidModel) -> Iterator[CheckFailed]:
    for check, mutator in mutations.load().items():
        for edit in mutator(valid):
            failure = find_refusal_failure(target, valid.with_edit(edit), check, edit.description, calls=CALLS)
            if failure is not None:
                yield failure
                break


def _argument_failures(target: Target, model: types_pb2.Model) -> Iterator[CheckFailed]:
    """Yield the failures of VALMODEL-24 and -25."""
    for check, argument in ARGUMENTS.items():
        for value in UNKNOWN_VALUES:
            all_options = [
                PreparationOptions(options.with_config, **{argument: value}) for options in both_preparations()
            ]
            failure = find_refusal_failure(
                target, model, check, f"{argument} {value}", all_options, ask=False, calls=CALLS
            )
            if failure is not None:
                yield failure
                break
