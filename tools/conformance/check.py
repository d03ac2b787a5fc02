"""How a check ends, what is kept of it, and the judge that a check tells what it sees."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from tools.conformance.ids import known


class Status(StrEnum):
    """How a check ended. UNSUPPORTED: the device answers UNIMPLEMENTED; that is not passed."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNSUPPORTED = "unsupported"


class CheckFailed(Exception):
    """A check does not hold.

    Attributes:
        check: its id, e.g. "GEN-14".
        stimulus: what was done.
        expected: what had to come.
        got: what came.
        also: further ids that do not hold with it, e.g. "VALMODEL-02".
    """

    def __init__(self, check: str, stimulus: str, expected: str, got: object, also: tuple[str, ...] = ()) -> None:
        self.check, self.also = known(check), tuple(map(known, also))
        self.stimulus, self.expected, self.got = stimulus, expected, str(got)
        super().__init__(f"{check}: {stimulus}: expected {expected}, got {got}")


class Skipped(Exception):
    """An allowance ends a check early.

    Args:
        allowance: its id, e.g. "X1"; "" for a check that cannot be done as the harness was called.
        reason: what the device said.
    """

    def __init__(self, allowance: str, reason: str) -> None:
        self.allowance = known(allowance) if allowance else ""
        super().__init__(f"{allowance}: {reason}" if allowance else reason)


class Unsupported(Exception):
    """The device answers UNIMPLEMENTED."""


class NotServiceSpecific(Exception):
    """A call failed without saying why in the contract's way: always a failure of the check."""


@dataclass
class Result:
    """One check, or one vector on one path.

    Attributes:
        name: the vector's name; the id of a check that needs no vector, with what it does.
        suite: which suite it belongs to.
        path: the path of execution (SYNC, SYNC-C, ...), or "".
        reason: why it failed, was skipped or is unsupported: one line that holds stimulus, expected and got.
        check: id of the check that failed, or of the allowance.
        seconds: how long it took.
        operations: the operations of the model, with the backend of each; "" where that is not known.
        checks: the ids that were evaluated; where it failed, those that do not hold.
        stimulus, expected, got: what was done, what had to come, what came; only where it failed.
        types: the types of the main subgraph's operands.
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

    def as_json(self) -> dict[str, Any]:
        """For the JSON report."""
        return asdict(self)


class Judge:
    """Remembers which ids were evaluated, and stops at the first that does not hold."""

    def __init__(self) -> None:
        self.checks: dict[str, None] = {}

    def expect(self, check: str, holds: bool, stimulus: str, expected: str, got: object) -> None:
        """Evaluates one id.

        Raises:
            CheckFailed: it does not hold.
        """
        self.checks[check] = None
        if not holds:
            raise CheckFailed(check, stimulus, expected, got)


def judged(result: Result, default: str, body: Callable[[Judge], None]) -> Result:
    """Runs a check and writes into its result how it ended; never raises for what the device does.

    Args:
        default: the id that a failure without a service-specific error counts against.
    """
    judge = Judge()
    started = time.perf_counter()
    try:
        body(judge)
        result.checks = list(judge.checks)
    except CheckFailed as failed:
        fail(result, failed)
    except NotServiceSpecific as error:
        fail(result, CheckFailed(default, "a call", "an answer or a service-specific error", error))
    except Skipped as skipped:
        result.status, result.check, result.reason = Status.SKIPPED, skipped.allowance, str(skipped)
    except Unsupported as unsupported:
        result.status, result.reason = Status.UNSUPPORTED, str(unsupported)
        result.checks = [default]
    result.seconds = time.perf_counter() - started
    return result


def fail(result: Result, failed: CheckFailed) -> Result:
    """Writes a failure into a result."""
    result.status, result.check, result.reason = Status.FAILED, failed.check, str(failed)
    result.checks = [failed.check, *failed.also]
    result.stimulus, result.expected, result.got = failed.stimulus, failed.expected, failed.got
    return result
