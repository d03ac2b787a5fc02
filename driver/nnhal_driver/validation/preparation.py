"""Arguments of preparations and executions other than models and requests (V-PREP, V-EXECARG, V-EXT-09).

Cache arguments are not checked here: they never make a preparation fail (V-PREP-04).
"""

from collections.abc import Sequence

from nnhal.rules.extension import check_extension_names
from nnhal.rules.rule import Rules, first_repeated
from nnhal.types import (
    MAXIMUM_LOOP_TIMEOUT_NS,
    OMITTED,
    ExecutionPreference,
    ExtensionNameAndPrefix,
    Priority,
    TokenValuePair,
)

PREFERENCE_RULES = Rules[int]()
PRIORITY_RULES = Rules[int]()
PREPARATION_TIME_RULES = Rules[int]()
EXECUTION_TIME_RULES = Rules[int]()
LOOP_TIMEOUT_RULES = Rules[int]()
HINT_RULES = Rules[Sequence[TokenValuePair]]()


def validate_preparation(preference: int, priority: int, deadline_ns: int) -> None:
    """Check the arguments of a preparation.

    Raises:
        HalError: INVALID_ARGUMENT, V-PREP-01 to 03.
    """
    PREFERENCE_RULES.check(preference, lambda: "the execution preference")
    PRIORITY_RULES.check(priority, lambda: "the priority")
    PREPARATION_TIME_RULES.check(deadline_ns, lambda: "the deadline")


def validate_execution_arguments(deadline_ns: int, loop_timeout_duration_ns: int, duration_ns: int = OMITTED) -> None:
    """Check the times of an execution, in nanoseconds.

    Raises:
        HalError: INVALID_ARGUMENT, V-EXECARG-01 or -02.
    """
    EXECUTION_TIME_RULES.check(deadline_ns, lambda: "the deadline")
    EXECUTION_TIME_RULES.check(duration_ns, lambda: "the duration")
    LOOP_TIMEOUT_RULES.check(loop_timeout_duration_ns, lambda: "the loop timeout")


def validate_hints(hints: Sequence[TokenValuePair], names: Sequence[ExtensionNameAndPrefix]) -> None:
    """Check hints and the table of their extension names. A hint of an unknown extension is valid (V-EXT-09).

    Raises:
        HalError: INVALID_ARGUMENT, V-EXT-01, -02, -04, -05, -06 or V-EXECARG-05.
    """
    if not hints and not names:
        return
    check_extension_names(names, "extension table of the hints")
    HINT_RULES.check(hints, lambda: "the list of hints")


@PREFERENCE_RULES.forbid("V-PREP-01")
def _unknown_preference(preference: int) -> str | None:
    return None if preference in list(ExecutionPreference) else f"is {preference}, must be 0 to 2"


@PRIORITY_RULES.forbid("V-PREP-02")
def _unknown_priority(priority: int) -> str | None:
    return None if priority in list(Priority) else f"is {priority}, must be 0 to 2"


@PREPARATION_TIME_RULES.forbid("V-PREP-03")
@EXECUTION_TIME_RULES.forbid("V-EXECARG-01")
@LOOP_TIMEOUT_RULES.forbid("V-EXECARG-02")
def _negative_time(time_ns: int) -> str | None:
    return None if time_ns >= OMITTED else f"is {time_ns} ns, must be >= -1"


@LOOP_TIMEOUT_RULES.forbid("V-EXECARG-02")
def _loop_timeout_above_15_s(time_ns: int) -> str | None:
    return None if time_ns <= MAXIMUM_LOOP_TIMEOUT_NS else f"is {time_ns} ns, must be at most {MAXIMUM_LOOP_TIMEOUT_NS}"


@HINT_RULES.forbid("V-EXECARG-05")
def _repeated_token(hints: Sequence[TokenValuePair]) -> str | None:
    token = first_repeated(hint.token for hint in hints)
    return None if token is None else f"has token {token} twice"
