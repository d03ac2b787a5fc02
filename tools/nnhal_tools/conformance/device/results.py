"""Results of calls to the device: call outcomes, preparations and executions."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from nnhal.types import Bytes, ErrorStatus
from nnhal.v1 import device_pb2, types_pb2


@dataclass(frozen=True)
class CallOutcome:
    """Status of a call, and the details of its error.

    Attributes:
        status: an ErrorStatus.
        rule: the validation rule that was broken, or "".
        kind: an ErrorKind.
        limit: the limit that was exceeded, or "".
        code: the name of the gRPC status code.
    """

    status: int
    reason: str = ""
    rule: str = ""
    kind: int = 0
    limit: str = ""
    code: str = "OK"

    @property
    def is_missed_deadline(self) -> bool:
        """True if the status is one of MISSED_DEADLINE_*."""
        return self.status in (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT)

    def __str__(self) -> str:
        name = ErrorStatus(self.status).name if self.status in list(ErrorStatus) else f"status {self.status}"
        return f"{name} ({self.reason})" if self.reason else name


OK = CallOutcome(ErrorStatus.NONE)


_FAULTS = ("asking it failed: ", "it failed to compile this: ")
"""Beginnings of the reasons of a backend that raised, lied or did not answer (docs/placement.md)."""

AGREEMENT = "a model if and only if the status is NONE"
"""Expectation of `agrees`."""


@dataclass
class PreparationOutcome:
    """Events of a preparation: outcome of the launch, every notify, and the names of all: "launched" and "notify"."""

    launch: CallOutcome = OK
    callbacks: list[device_pb2.Notify] = field(default_factory=list)
    events: list[str] = field(default_factory=list)

    @property
    def callback(self) -> CallOutcome:
        """The outcome that the first notify reports."""
        if not self.callbacks:
            return CallOutcome(ErrorStatus.GENERAL_FAILURE, "no callback")
        first = self.callbacks[0]
        return CallOutcome(first.status, first.reason, first.rule)

    @property
    def agrees(self) -> bool:
        """True if there is a model if and only if the status in the callback is NONE."""
        return (self.callback.status == ErrorStatus.NONE) == bool(self.model)

    @property
    def got(self) -> str:
        """Status of the launch and of the callback, and whether there is a model, for failure messages."""
        return f"launch {self.launch}, callback {self.callback}{', a model' if self.model else ''}"

    @property
    def model(self) -> bytes:
        """The handle of the prepared model, or b""."""
        return self.callbacks[0].prepared_model if self.callbacks else b""

    @property
    def backends(self) -> list[str]:
        """The backend of each operation, according to the placement."""
        return [operation.backend for operation in self.callbacks[0].placement.operations] if self.callbacks else []

    @property
    def faults(self) -> list[str]:
        """Faults of backends, according to the placement, each once: "BACKEND: reason"."""
        operations = [operation for callback in self.callbacks[:1] for operation in callback.placement.operations]
        refusals = [refusal for operation in operations for refusal in operation.refusals]
        faults = (f"{each.backend}: {each.reason}" for each in refusals if each.reason.startswith(_FAULTS))
        return list(dict.fromkeys(faults))


@dataclass(frozen=True)
class PathStep:
    """Result of a call that a path makes in addition to the execution itself; see CheckFailed.

    `check` is its id in the suite `generated`, and `holds` tells whether the call returned what was expected.
    """

    check: str
    holds: bool
    stimulus: str
    expected: str
    got: str


@dataclass(frozen=True)
class ExecutionOutcome:
    """Results of an execution.

    Attributes:
        outcome: the outcome of the call, or of the callback of a fenced execution.
        timing: nanoseconds on the device and in the driver, or -1.
        outputs: the bytes of each output that was returned or lies in memory of the path, else None.
        steps: the additional calls of the path.
        launched: whether a fenced execution was launched, so that `outcome` is from its callback.
        first_run: the first run, if this is the second run of a reusable execution.
    """

    outcome: CallOutcome
    shapes: Sequence[types_pb2.OutputShape] = ()
    timing: tuple[int, int] = (-1, -1)
    outputs: Sequence[Bytes | None] = ()
    steps: Sequence[PathStep] = ()
    launched: bool = False
    first_run: "ExecutionOutcome | None" = None

    @property
    def output_bytes(self) -> list[bytes]:
        """The bytes of the outputs that there are."""
        return [output.tobytes() for output in self.outputs if output is not None]
