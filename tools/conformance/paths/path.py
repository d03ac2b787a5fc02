"""What a path of execution is, and where paths register by the checklist's code (section 0)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from tools.conformance.check import Judge
from tools.conformance.target import Answer, Executed, Run, Step, Target

Execute = Callable[[Target, bytes, types_pb2.Request, Run], Executed]


@dataclass(frozen=True)
class Path:
    """Runs a request on a prepared model and says what came of it.

    Attributes:
        execute: does so.
        check: the id in `generated` that an execution which fails without a service-specific error counts against.
        fenced: it is launched, and ends with a fence; outputs that are not fully specified are refused.
        buffers: arguments lie in buffers of the device.
        local: it goes over the data socket, and is skipped where the service is on another machine.
    """

    execute: Execute
    check: str
    fenced: bool = False
    buffers: bool = False
    local: bool = False

    def __call__(self, target: Target, model: bytes, request: types_pb2.Request, run: Run) -> Executed:
        """See Path."""
        return self.execute(target, model, request, run)


REGISTERED: dict[str, Path] = {}
"""By the checklist's code. `-STREAM`: the same calls of a burst over one stream; `-LOCAL`: over the data socket."""


def path(code: str, check: str, *, fenced: bool = False, local: bool = False) -> Callable[[Execute], Execute]:
    """Registers a path; see Path."""

    def register(execute: Execute) -> Execute:
        REGISTERED[code] = Path(execute, check, fenced, local=local)
        return execute

    return register


def run_twice(once: Callable[[], Executed], between: Callable[[], None] = lambda: None) -> Executed:
    """Runs a request that is kept ready a second time if the first run was good; `between`: before that.

    Returns:
        the second run, with the first one in it; the first one, where that failed.
    """
    first = once()
    if first.answer.status not in (ErrorStatus.NONE, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE):
        return first
    between()
    return replace(once(), before=first)


@contextmanager
def held(target: Target, answer: Answer, handle: bytes) -> Iterator[tuple[Answer, bytes]]:
    """How the call that makes an object ended, and the object, which is dropped at the end.

    Args:
        handle: empty where there is none; a call that is OK brings one.
    """
    if answer.status == ErrorStatus.NONE and not handle:
        answer = Answer(ErrorStatus.GENERAL_FAILURE, "the harness: NONE, but no handle")
    try:
        yield answer, handle
    finally:
        if handle:
            target.release(handle)


def step(check: str, stimulus: str, answer: Answer) -> Step:
    """A call that must be OK."""
    return Step(check, answer.status == 0, stimulus, "NONE", str(answer))


def after(steps: list[Step], executed: Executed) -> Executed:
    """An execution with the steps before it."""
    return replace(executed, steps=(*steps, *executed.steps))


def judge_steps(judge: Judge, executed: Executed, check: str = "") -> None:
    """Every step holds. `check`: the id that they count as; "" for their own.

    Raises:
        CheckFailed: one does not.
    """
    for done in executed.steps:
        judge.expect(check or done.check, done.holds, done.stimulus, done.expected, done.got)
