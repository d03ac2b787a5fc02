"""Results of checks: the exceptions that end a check early, and the recorder of the ids that it evaluates."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from nnhal.types import ErrorStatus
from nnhal_tools.conformance.ids import validate_id


class Status(StrEnum):
    """Status of a finished check. UNSUPPORTED: the device returns UNIMPLEMENTED, which does not count as passed."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNSUPPORTED = "unsupported"


class CheckFailed(Exception):
    """Failure of a check: the call or situation that was tested, the required result, and the actual one.

    Attributes:
        check: the id of the check, for example "GEN-14".
        also_failed: further ids that fail with it, for example "VALMODEL-02".
    """

    def __init__(self, check: str, stimulus: str, expected: str, got: object, also: tuple[str, ...] = ()) -> None:
        self.check, self.also_failed = validate_id(check), tuple(map(validate_id, also))
        self.stimulus, self.expected, self.got = stimulus, expected, str(got)
        super().__init__(f"{check}: {stimulus}: expected {expected}, got {got}")


@contextmanager
def attribute_failures(*also: str, note: str = "") -> Iterator[None]:
    """Add ids to each failure in the context, and a note to its stimulus. Failures of these ids stay as they are."""
    try:
        yield
    except CheckFailed as failed:
        if failed.check in also:
            raise
        ids = tuple(sorted({*failed.also_failed, *also}))
        raise CheckFailed(failed.check, failed.stimulus + note, failed.expected, failed.got, ids) from None


class Skipped(Exception):
    """Early end of a check that an allowance permits, for example "X1", with the answer of the device as the reason.

    `allowance`: "" for a check that the harness cannot run with its present options.
    """

    def __init__(self, allowance: str, reason: str) -> None:
        self.allowance = validate_id(allowance) if allowance else ""
        super().__init__(f"{allowance}: {reason}" if allowance else reason)


class UnsupportedCase(Exception):
    """UNIMPLEMENTED from the device."""


class NotServiceSpecific(Exception):
    """Failed call without a service-specific error. A check in which this happens has failed.

    `code`: the name of the gRPC status code; "" if there is none.
    """

    def __init__(self, text: str, code: str = "") -> None:
        self.code = code
        super().__init__(text)


class ConnectionLost(NotServiceSpecific):
    """Call that ended with its connection: UNAVAILABLE, DEVICE_UNAVAILABLE, or the end of a data connection."""


@dataclass
class Result:
    """Result of a check, or of a vector on one path.

    Attributes:
        name: the name of the vector; for a check without a vector its id and title.
        path: the path of execution (SYNC, SYNC-C, ...), or "".
        reason: why it failed, was skipped or is unsupported, in one line with stimulus, expected and got.
        check: the id of the failed check or of the allowance.
        operations: the operations of the model, each with its backend, or "" if that is not known.
        checks: the evaluated ids; for a failure the ids that do not hold.
        stimulus, expected, got: see CheckFailed; empty unless it failed.
        types: the operand types of the main subgraph.
        faults: what backends did wrong, although others took over: "BACKEND: reason".
    """

    name: str
    suite: str
    path: str
    status: Status
    reason: str = ""
    check: str = ""
    seconds: float = 0.0
    operations: list[tuple[str, str]] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    stimulus: str = ""
    expected: str = ""
    got: str = ""
    types: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class Answer(Protocol):
    """Answer of the device to a call. Its text has the status and the reason."""

    @property
    def status(self) -> int:
        """The ErrorStatus."""
        ...


class CheckRecorder:
    """Recorder of the evaluated ids. The first expectation that does not hold ends the check.

    Expectations evaluate the id of the check by default. `evaluated` has the ids in order, with the value None.
    """

    def __init__(self, id_: str = "") -> None:
        self.id = id_
        self.evaluated: dict[str, None] = {}

    def mark(self, *checks: str) -> None:
        """Record ids as evaluated."""
        self.evaluated.update(dict.fromkeys(checks))

    def expect(self, holds: bool, stimulus: str, expected: str, got: object, check: str = "") -> None:
        """Evaluate one id: that of the check, or another one. Raise CheckFailed if the expectation does not hold."""
        check = check or self.id
        self.mark(check)
        if not holds:
            raise CheckFailed(check, stimulus, expected, got)

    def expect_status(self, answer: Answer, stimulus: str, *allowed: ErrorStatus, check: str = "") -> None:
        """Evaluate the status of a call, which must be one of those allowed, or by default NONE; see `expect`."""
        allowed = allowed or (ErrorStatus.NONE,)
        expected = " or ".join(status.name for status in allowed)
        self.expect(answer.status in allowed, stimulus, expected, answer, check)

    def require_response(self, call: tuple[Answer, Any], stimulus: str) -> Any:
        """Evaluate the outcome of a call that must succeed, and return its response; see `expect`."""
        answer, response = call
        self.expect(response is not None, stimulus, "NONE", answer)
        return response


def run_check(result: Result, default: str, body: Callable[[CheckRecorder], None]) -> Result:
    """Run a check and write its outcome into its result. Errors of the device are never raised.

    `default`: the id of the check, which also fails when a call fails without a service-specific error.
    """
    recorder = CheckRecorder(default)
    started = time.perf_counter()
    try:
        body(recorder)
        result.checks = list(recorder.evaluated)
    except CheckFailed as failed:
        record_failure(result, failed)
    except NotServiceSpecific as error:
        record_failure(result, CheckFailed(default, "a call", "success or a service-specific error", error))
    except Skipped as skipped:
        result.status, result.check, result.reason = Status.SKIPPED, skipped.allowance, str(skipped)
    except UnsupportedCase as unsupported:
        result.status, result.reason = Status.UNSUPPORTED, str(unsupported)
        result.checks = [default]
    result.seconds = time.perf_counter() - started
    return result


def record_failure(result: Result, failed: CheckFailed) -> Result:
    """Write a failure into a result and return the result."""
    result.status, result.check, result.reason = Status.FAILED, failed.check, str(failed)
    result.checks = [failed.check, *failed.also_failed]
    result.stimulus, result.expected, result.got = failed.stimulus, failed.expected, failed.got
    return result
