"""Support of operations without a model."""

from functools import cache

import pytest

from nnhal.types import OperationType
from nnhal_driver.backends import registry
from nnhal_driver.compilation.operation_support import SupportState, list_support


@cache
def answers() -> dict[tuple[str, str], dict[str, tuple[SupportState, str]]]:
    backends = registry.assemble(["CpuAcc", "CpuRef"]).backends
    return {(each.operation, each.type): dict(each.answers) for each in list_support(backends)}


def test_every_operation_is_listed_once_for_each_type() -> None:
    assert {operation for operation, _ in answers()} == {type_.name for type_ in OperationType}


def test_control_flow_is_the_drivers() -> None:
    assert [key for key, by_backend in answers().items() if not by_backend] == [
        ("IF", "TENSOR_BOOL8"),
        ("WHILE", "TENSOR_BOOL8"),
    ]


def test_the_reference_supports_everything() -> None:
    states = {by_backend["CpuRef"] for by_backend in answers().values() if by_backend}
    assert states == {(SupportState.YES, "")}


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        ("RELU", (SupportState.YES, "")),
        ("CONV_2D", (SupportState.DEPENDS, "")),
        ("REVERSE", (SupportState.DEPENDS, "")),
        ("LSH_PROJECTION", (SupportState.NO, "LSH_PROJECTION has no counterpart in the engine")),
    ],
)
def test_answers_that_depend_on_a_model_are_told_from_others(operation: str, answer: tuple[SupportState, str]) -> None:
    (found, *_) = (by_backend["CpuAcc"] for (name, _), by_backend in answers().items() if name == operation)
    assert found == answer
