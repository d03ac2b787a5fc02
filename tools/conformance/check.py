"""How a check ends, and what is kept of it."""

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """How a case ended. UNSUPPORTED: the device answers UNIMPLEMENTED; that is not passed."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    UNSUPPORTED = "unsupported"


class CheckFailed(Exception):
    """A check does not hold.

    Args:
        check: its id, e.g. "GEN-14".
        stimulus: what was done.
        expected: what had to come.
        got: what came.
    """

    def __init__(self, check: str, stimulus: str, expected: str, got: str) -> None:
        self.check = check
        super().__init__(f"{check}: {stimulus}: expected {expected}, got {got}")


class Skipped(Exception):
    """An allowance ends a case early.

    Args:
        allowance: its id, e.g. "X1".
        reason: what the device said.
    """

    def __init__(self, allowance: str, reason: str) -> None:
        self.allowance = allowance
        super().__init__(f"{allowance}: {reason}")


@dataclass
class Result:
    """One case on one path.

    Attributes:
        name: the vector's or the check's name.
        suite: which suite it belongs to.
        path: the path of execution (SYNC, BURST, ...), or "".
        reason: why it failed or was skipped.
        check: id of the check that failed, or of the allowance.
        seconds: how long it took.
        operations: the operations of the model, with the backend of each.
    """

    name: str
    suite: str
    path: str
    status: Status
    reason: str = ""
    check: str = ""
    seconds: float = 0.0
    operations: list[tuple[str, str]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """For the JSON report."""
        return asdict(self)
