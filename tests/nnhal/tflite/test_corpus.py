"""The corpus of models of one operator: each is refused with a reason, or agrees with LiteRT on both backends."""

import pytest

pytest.importorskip("ai_edge_litert.interpreter")

from tests.nnhal.tflite.corpus import families  # noqa: F401 - registers the generators
from tests.nnhal.tflite.corpus.cases import GENERATORS, all_cases, cases
from tests.nnhal.tflite.corpus.exceptions import LITERT_CRASHES, LITERT_ERRORS, STEPS, crash, matching
from tests.nnhal.tflite.corpus.result import Result
from tests.nnhal.tflite.corpus.run import run

NAMES = sorted(GENERATORS)


@pytest.fixture(scope="module")
def results() -> dict[str, Result]:
    """Run every model once, except those that crash LiteRT."""
    return {result.name: result for result in run(name for name in all_cases() if not crash(name))}


@pytest.mark.slow
@pytest.mark.parametrize("operator", NAMES)
def test_models_agree_with_litert(operator: str, results: dict[str, Result]) -> None:
    found = [results[case.name] for case in cases(operator) if case.name in results]
    assert [problem for result in found for problem in result.problems] == []


@pytest.mark.slow
@pytest.mark.parametrize("operator", NAMES)
def test_litert_runs_some_models_of_the_operator(operator: str, results: dict[str, Result]) -> None:
    """Otherwise the generator is wrong, and the comparison covers nothing."""
    found = [results[case.name] for case in cases(operator) if case.name in results]
    assert any(result.litert == result.crash == "" for result in found), found[0].litert


@pytest.mark.parametrize("pattern", [*LITERT_CRASHES, *LITERT_ERRORS, *(pattern for pattern, _ in STEPS)])
def test_exceptions_match_models(pattern: str) -> None:
    assert any(matching(pattern, name) for name in all_cases())
