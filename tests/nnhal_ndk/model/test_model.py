"""Models that `finish` refuses, because no device would compile them."""

from collections.abc import Callable

import pytest

from nnhal.types import Operand, OperandType, OperationType
from nnhal_ndk.api.constants import ResultCode
from nnhal_ndk.model.model import NdkModel
from nnhal_ndk.results import NdkError, code_of_error

FLOATS, BOOLS, MODEL = OperandType.TENSOR_FLOAT32, OperandType.TENSOR_BOOL8, OperandType.SUBGRAPH


def _add(model: NdkModel, type_: int, *dimensions: int) -> int:
    model.add_operand(Operand(type_, dimensions, 0.0, 0))
    return len(model.operands) - 1


def _floor(size: int = 2) -> NdkModel:
    """Return a finished model with one input and one output."""
    model = NdkModel()
    given, result = _add(model, FLOATS, size), _add(model, FLOATS, size)
    model.add_operation(OperationType.FLOOR, [given], [result])
    model.identify([given], [result])
    model.finish()
    return model


def _branching(
    otherwise: NdkModel | None = None, *, replaced: NdkModel | None = None, is_removed: bool = False
) -> NdkModel:
    """Return an unfinished model with an IF of two models, one of which may change after the IF is added."""
    model = NdkModel()
    condition, branch, other = _add(model, BOOLS, 1), _add(model, MODEL), _add(model, MODEL)
    value, result = _add(model, FLOATS, 2), _add(model, FLOATS, 2)
    model.set_value_from_model(branch, _floor())
    model.set_value_from_model(other, otherwise or _floor())
    model.add_operation(OperationType.IF, [condition, branch, other, value], [result])
    if replaced is not None:
        model.set_value_from_model(other, replaced)
    if is_removed:
        model.set_value(other, None)
    model.identify([condition, value], [result])
    return model


def _with_a_value_for_its_input() -> NdkModel:
    model = NdkModel()
    given, result = _add(model, FLOATS, 2), _add(model, FLOATS, 2)
    model.add_operation(OperationType.FLOOR, [given], [result])
    model.identify([given], [result])
    model.set_value(given, memoryview(bytes(8)))
    return model


INVALID: dict[str, Callable[[], NdkModel]] = {
    "a branch of another size": lambda: _branching(replaced=_floor(3)),
    "a branch that is taken away": lambda: _branching(is_removed=True),
    "an input with a value": _with_a_value_for_its_input,
}


@pytest.mark.parametrize("case", INVALID)
def test_an_invalid_model_cannot_be_finished(case: str) -> None:
    model = INVALID[case]()
    with pytest.raises(Exception) as failure:
        model.finish()
    assert code_of_error(failure.value) == ResultCode.BAD_DATA
    with pytest.raises(NdkError, match="the model is invalid"):
        model.require_finished()


def test_an_if_is_not_added_with_a_branch_of_another_size() -> None:
    with pytest.raises(Exception) as failure:
        _branching(_floor(3))
    assert code_of_error(failure.value) == ResultCode.BAD_DATA


def test_branches_that_suit_are_accepted() -> None:
    model = _branching(replaced=_floor())
    model.finish()
    model.require_finished()
