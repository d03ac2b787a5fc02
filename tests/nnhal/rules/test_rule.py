"""Rules and first_repeated."""

import pytest

from nnhal.errors import HalError
from nnhal.rules.rule import Rules, first_repeated
from nnhal.types import ErrorStatus

NUMBER_RULES = Rules[int]()


@NUMBER_RULES.forbid("V-TEST-01")
def _negative(number: int) -> str | None:
    return f"is {number}, must be >= 0" if number < 0 else None


@NUMBER_RULES.forbid("V-TEST-02")
def _odd(number: int) -> str | None:
    return "is odd" if number % 2 else None


@pytest.mark.parametrize(
    ("number", "broken"), [(2, None), (3, ("V-TEST-02", "is odd")), (-3, ("V-TEST-01", "is -3, must be >= 0"))]
)
def test_first_broken_rule_in_order_of_registration(number: int, broken: tuple[str, str] | None) -> None:
    assert NUMBER_RULES.first_broken(number) == broken


def test_check_raises_invalid_argument_with_the_name_of_the_subject() -> None:
    with pytest.raises(HalError) as caught:
        NUMBER_RULES.check(-1, lambda: "the number")
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, "V-TEST-01")
    assert caught.value.reason == "the number is -1, must be >= 0"


def test_check_of_a_valid_subject_does_not_compute_its_name() -> None:
    def name() -> str:
        raise AssertionError

    NUMBER_RULES.check(2, name)


@pytest.mark.parametrize(("items", "repeated"), [("", None), ("abc", None), ("abcb", "b"), ("abba", "b")])
def test_first_repeated(items: str, repeated: str | None) -> None:
    assert first_repeated(items) == repeated
