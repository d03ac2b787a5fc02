"""The corpus of models of one operator: each is refused with a reason, or agrees with LiteRT on both backends."""

import os

import pytest

from tests.nnhal.tflite.build import Op, Tensor, build, schema
from tests.nnhal.tflite.corpus import families  # noqa: F401 - registers the generators
from tests.nnhal.tflite.corpus.cases import GENERATORS, all_cases, cases
from tests.nnhal.tflite.corpus.exceptions import (
    LITERT_CRASHES,
    LITERT_ERRORS,
    NOT_GENERATED,
    STEPS,
    crash,
    matching,
    may_be_unprepared,
)
from tests.nnhal.tflite.corpus.result import Result
from tests.nnhal.tflite.corpus.run import run_once

interpreter = pytest.importorskip("ai_edge_litert.interpreter")

NAMES = sorted(GENERATORS)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """Run every model once, except those that crash LiteRT. The processes of pytest-xdist share the results."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    return {result.name: result for result in run_once((name for name in all_cases() if not crash(name)), shared)}


@pytest.mark.slow
@pytest.mark.parametrize("operator", NAMES)
def test_models_agree_with_litert(operator: str, results: dict[str, Result]) -> None:
    found = [results[case.name] for case in cases(operator) if case.name in results]
    assert [problem for result in found for problem in result.problems] == []


@pytest.mark.slow
@pytest.mark.parametrize("operator", NAMES)
def test_devices_prepare_what_is_imported(operator: str, results: dict[str, Result]) -> None:
    found = [results[case.name] for case in cases(operator) if case.name in results]
    lines = [line for result in found for line in result.unprepared]
    assert [line for line in lines if not may_be_unprepared(line)] == []


@pytest.mark.slow
@pytest.mark.parametrize("operator", NAMES)
def test_litert_runs_some_models_of_the_operator(operator: str, results: dict[str, Result]) -> None:
    """Otherwise the generator is wrong, and the comparison covers nothing."""
    found = [results[case.name] for case in cases(operator) if case.name in results]
    assert any(result.litert == result.crash == "" for result in found), found[0].litert


@pytest.mark.parametrize("pattern", [*LITERT_CRASHES, *LITERT_ERRORS, *(pattern for pattern, _ in STEPS)])
def test_exceptions_match_models(pattern: str) -> None:
    assert any(matching(pattern, name) for name in all_cases())


def test_every_operator_has_models_or_a_reason() -> None:
    names = {name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)}
    assert names == {*GENERATORS, *NOT_GENERATED}
    assert not set(GENERATORS) & set(NOT_GENERATED)


@pytest.mark.parametrize("operator", [name for name, reason in NOT_GENERATED.items() if "no kernel" in reason])
def test_operator_without_models_has_no_kernel(operator: str) -> None:
    model = build(Op(operator, [Tensor((2,))], [Tensor((2,))], custom="test" if operator == "CUSTOM" else None))
    with pytest.raises((RuntimeError, ValueError), match=r"Didn't find op|unresolved custom op"):
        interpreter.Interpreter(model_content=model).allocate_tensors()
