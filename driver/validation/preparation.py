"""The other arguments of preparations and executions: preference, priority, times, hints (V-PREP, V-EXECARG, V-EXT-09).

Cache arguments never make a preparation fail (V-PREP-04), so nothing here looks at them.
"""

from collections.abc import Sequence

from driver.validation.extension import check_extension_names
from driver.validation.repeat import first_repeated
from driver.validation.rule import Rules
from nnhal.types import (
    MAXIMUM_LOOP_TIMEOUT_NS,
    OMITTED,
    ExecutionPreference,
    ExtensionNameAndPrefix,
    Priority,
    TokenValuePair,
)

PREFERENCE = Rules[int]()
PRIORITY = Rules[int]()
PREPARATION_TIME = Rules[int]()
EXECUTION_TIME = Rules[int]()
LOOP_TIMEOUT = Rules[int]()
HINTS = Rules[Sequence[TokenValuePair]]()


def validate_preparation(preference: int, priority: int, deadline_ns: int) -> None:
    """Judges how a model is to be prepared.

    Raises:
        HalError: INVALID_ARGUMENT, V-PREP-01 to 03.
    """
    PREFERENCE.check(preference, lambda: "the execution preference")
    PRIORITY.check(priority, lambda: "the priority")
    PREPARATION_TIME.check(deadline_ns, lambda: "the deadline")


def validate_execution_arguments(deadline_ns: int, loop_timeout_duration_ns: int, duration_ns: int = OMITTED) -> None:
    """Judges the times of an execution, all in nanoseconds.

    Raises:
        HalError: INVALID_ARGUMENT, V-EXECARG-01 or -02.
    """
    EXECUTION_TIME.check(deadline_ns, lambda: "the deadline")
    EXECUTION_TIME.check(duration_ns, lambda: "the duration")
    LOOP_TIMEOUT.check(loop_timeout_duration_ns, lambda: "the loop timeout")


def validate_hints(hints: Sequence[TokenValuePair], names: Sequence[ExtensionNameAndPrefix]) -> None:
    """Judges hints and the table that resolves them; a hint that nothing resolves is no error (V-EXT-09).

    Raises:
        HalError: INVALID_ARGUMENT, V-EXT-01, -02, -04, -05, -06 or V-EXECARG-05.
    """
    if not hints and not names:
        return
    check_extension_names(names, "extension table of the hints")
    HINTS.check(hints, lambda: "the list of hints")


@PREFERENCE.forbid("V-PREP-01")
def _unknown_preference(preference: int) -> str | None:
    return None if preference in list(ExecutionPreference) else f"is {preference}, must be 0 to 2"


@PRIORITY.forbid("V-PREP-02")
def _unknown_priority(priority: int) -> str | None:
    return None if priority in list(Priority) else f"is {priority}, must be 0 to 2"


@PREPARATION_TIME.forbid("V-PREP-03")
@EXECUTION_TIME.forbid("V-EXECARG-01")
@LOOP_TIMEOUT.forbid("V-EXECARG-02")
def _time_before_omitted(time_ns: int) -> str | None:
    return None if time_ns >= OMITTED else f"is {time_ns} ns, must be >= -1"


@LOOP_TIMEOUT.forbid("V-EXECARG-02")
def _loop_timeout_beyond_15_s(time_ns: int) -> str | None:
    return None if time_ns <= MAXIMUM_LOOP_TIMEOUT_NS else f"is {time_ns} ns, must be at most {MAXIMUM_LOOP_TIMEOUT_NS}"


@HINTS.forbid("V-EXECARG-05")
def _repeated_token(hints: Sequence[TokenValuePair]) -> str | None:
    token = first_repeated(hint.token for hint in hints)
    return None if token is None else f"has token {token} twice"
