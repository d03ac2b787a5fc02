"""Execution paths, registered by the checklist's codes (section 0), and helpers that they share."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.results import CallOutcome, ExecutionOutcome, PathStep
from nnhal_tools.conformance.device.target import Target

Execute = Callable[[Target, bytes, types_pb2.Request, RunOptions], ExecutionOutcome]


@dataclass(frozen=True)
class ExecutionPath:
    """Way to run a request on a prepared model.

    Attributes:
        check: the id in `generated` that fails when an execution fails without a service-specific error.
        fenced: the execution is launched and ends with a fence. Outputs that are not fully specified are rejected.
        buffers: arguments lie in buffers of the device.
        over_data_socket: the path uses the data socket, and is skipped if the service is on another machine.
    """

    execute: Execute
    check: str
    fenced: bool = False
    buffers: bool = False
    over_data_socket: bool = False

    def __call__(
        self, target: Target, model: bytes, request: types_pb2.Request, options: RunOptions
    ) -> ExecutionOutcome:
        """Run a request."""
        return self.execute(target, model, request, options)


REGISTERED = {
    "SYNC": ExecutionPath(Target.execute, "GEN-04"),
    "SYNC-C": ExecutionPath(Target.execute_with_config, "GEN-04"),
}
"""Paths by code. `-STREAM`: the same calls of a burst over one stream; `-LOCAL`: over the data socket."""


def register_path(
    code: str, check: str, *, fenced: bool = False, over_data_socket: bool = False
) -> Callable[[Execute], Execute]:
    """Register a path; see ExecutionPath."""

    def register(execute: Execute) -> Execute:
        REGISTERED[code] = ExecutionPath(execute, check, fenced, over_data_socket=over_data_socket)
        return execute

    return register


def run_twice(run_once: Callable[[], ExecutionOutcome], between: Callable[[], None] = lambda: None) -> ExecutionOutcome:
    """Run a reusable request, and run it again if the first run succeeded. `between` is called before the second run.

    Return the second run, with the first one in it; the first run if it failed.
    """
    first = run_once()
    if first.outcome.status not in (ErrorStatus.NONE, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE):
        return first
    between()
    return replace(run_once(), first_run=first)


@contextmanager
def owned_object(target: Target, outcome: CallOutcome, handle: bytes) -> Iterator[tuple[CallOutcome, bytes]]:
    """Yield the outcome of the call that created an object, and the object, which is released at the end.

    A successful call must return an object. `handle`: b"" for none.
    """
    if outcome.status == ErrorStatus.NONE and not handle:
        outcome = CallOutcome(ErrorStatus.GENERAL_FAILURE, "the harness: NONE, but no handle")
    try:
        yield outcome, handle
    finally:
        if handle:
            target.release(handle)


def expect_ok(check: str, stimulus: str, outcome: CallOutcome) -> PathStep:
    """Return the step of a call that must succeed."""
    return PathStep(check, outcome.status == 0, stimulus, "NONE", str(outcome))


def run_on_object(
    created: AbstractContextManager[tuple[CallOutcome, bytes]],
    check: str,
    call: str,
    run: Callable[[bytes], ExecutionOutcome],
) -> ExecutionOutcome:
    """Run on an object of `owned_object`. The step of the call that creates it comes first, or alone if it fails."""
    with created as (outcome, handle):
        steps = [expect_ok(check, call, outcome)]
        if outcome.status:
            return ExecutionOutcome(outcome, steps=steps)
        return with_earlier_steps(steps, run(handle))


def with_earlier_steps(steps: list[PathStep], execution: ExecutionOutcome) -> ExecutionOutcome:
    """Return an execution with the steps that came before it."""
    return replace(execution, steps=(*steps, *execution.steps))


def check_steps(recorder: CheckRecorder, execution: ExecutionOutcome, check: str = "") -> None:
    """Check that every step holds. `check`: the id that the steps count as; "" for their own ids."""
    for step in execution.steps:
        recorder.expect(step.holds, step.stimulus, step.expected, step.got, check=check or step.check)
