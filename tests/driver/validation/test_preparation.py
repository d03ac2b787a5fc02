"""V-PREP, V-EXECARG and V-EXT-09."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest

from nnhal.errors import HalError
from nnhal.types import ErrorStatus, ExtensionNameAndPrefix, TokenValuePair
from nnhal_driver.validation.preparation import validate_execution_arguments, validate_hints, validate_preparation

_FIFTEEN_SECONDS = 15_000_000_000


@dataclass(frozen=True)
class CallCase:
    """A call that breaks one rule; `raised` as in ModelCase."""

    rule: str
    call: Callable[[], None]
    reason: str
    raised: str = ""


def _hints(*tokens: int, names: tuple[tuple[str, int], ...] = ()) -> Callable[[], None]:
    table = [ExtensionNameAndPrefix(*name) for name in names]
    return partial(validate_hints, [TokenValuePair(token, b"value") for token in tokens], table)


CASES = [
    CallCase("V-PREP-01", partial(validate_preparation, -1, 1, -1), "the execution preference is -1, must be 0 to 2"),
    CallCase("V-PREP-01", partial(validate_preparation, 3, 1, -1), "the execution preference is 3"),
    CallCase("V-PREP-02", partial(validate_preparation, 1, -1, -1), "the priority is -1, must be 0 to 2"),
    CallCase("V-PREP-02", partial(validate_preparation, 1, 3, -1), "the priority is 3"),
    CallCase("V-PREP-03", partial(validate_preparation, 1, 1, -2), "the deadline is -2 ns, must be >= -1"),
    CallCase("V-EXECARG-01", partial(validate_execution_arguments, -2, -1), "the deadline is -2 ns"),
    CallCase("V-EXECARG-01", partial(validate_execution_arguments, -1, -1, -2), "the duration is -2 ns"),
    CallCase("V-EXECARG-02", partial(validate_execution_arguments, -1, -2), "the loop timeout is -2 ns, must be >= -1"),
    CallCase("V-EXECARG-02", partial(validate_execution_arguments, -1, _FIFTEEN_SECONDS + 1), "must be at most"),
    CallCase("V-EXECARG-05", _hints(0x10000, 0x10001, 0x10000), "the list of hints has token 65536 twice"),
    CallCase("V-EXT-09", _hints(names=(("a.B", 1),)), "extension table of the hints has name 'a.B'", "V-EXT-01"),
    CallCase("V-EXT-09", _hints(names=(("ab", 1),)), "must contain a period", "V-EXT-02"),
    CallCase("V-EXT-09", _hints(names=(("a.b", 1), ("a.b", 2))), "has name 'a.b' twice", "V-EXT-04"),
    CallCase("V-EXT-09", _hints(names=(("a.b", 1), ("a.c", 1))), "has prefix 1 twice", "V-EXT-05"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule)
def test_broken_rule_is_named(case: CallCase) -> None:
    with pytest.raises(HalError) as caught:
        case.call()
    assert (caught.value.status, caught.value.rule) == (ErrorStatus.INVALID_ARGUMENT, case.raised or case.rule)
    assert case.reason in caught.value.reason


@pytest.mark.parametrize(("preference", "priority", "deadline_ns"), [(0, 0, -1), (1, 1, 0), (2, 2, 2**63 - 1)])
def test_valid_preparation(preference: int, priority: int, deadline_ns: int) -> None:
    validate_preparation(preference, priority, deadline_ns)


@pytest.mark.parametrize("loop_timeout_ns", [-1, 0, _FIFTEEN_SECONDS])
def test_valid_execution_arguments(loop_timeout_ns: int) -> None:
    validate_execution_arguments(0, loop_timeout_ns, 0)


def test_hint_of_an_unknown_extension_is_valid() -> None:
    _hints(0x20000, 7, -1, names=(("a.b", 1), ("a.c", 2)))()
