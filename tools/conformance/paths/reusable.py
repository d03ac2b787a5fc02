"""The paths SYNC-R and FENCED-R: a reusable execution is run twice."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from nnhal.types import ErrorStatus
from nnhal.v1 import execution_pb2, prepared_model_pb2, types_pb2
from tools.conformance.paths.fenced import Launched, finish, launched
from tools.conformance.paths.path import after, path, step
from tools.conformance.paths.staged import Staged, read, staged
from tools.conformance.target import Answer, Executed, Run, Target, called

Once = Callable[[Target, bytes, Staged, Run], Executed]


@contextmanager
def reusing(
    target: Target, model: bytes, request: types_pb2.Request, config: types_pb2.ExecutionConfig
) -> Iterator[tuple[Answer, bytes]]:
    """How createReusableExecution ended, and the execution, which is dropped at the end."""
    message = prepared_model_pb2.CreateReusableExecutionRequest(
        session=target.session, prepared_model=model, request=request, config=config
    )
    answer, made = called(target.prepared_model.CreateReusableExecution, message)
    execution = made.execution if made else b""
    if made and not execution:
        answer = Answer(ErrorStatus.GENERAL_FAILURE, "the harness: NONE, but no execution")
    try:
        yield answer, execution
    finally:
        if execution:
            target.release(execution)


def run_once(target: Target, execution: bytes, deadline_ns: int | None = None) -> Executed:
    """IExecution.executeSynchronously."""
    request = execution_pb2.RunExecutionRequest(session=target.session, execution=execution, deadline_ns=deadline_ns)
    return target.executed(*called(target.executions.ExecuteSynchronously, request))


def launch_once(
    target: Target,
    execution: bytes,
    deadline_ns: int | None = None,
    wait_for: Sequence[bytes] = (),
    duration_ns: int | None = None,
) -> Launched:
    """IExecution.executeFenced."""
    request = execution_pb2.RunExecutionFencedRequest(
        session=target.session,
        execution=execution,
        wait_for=wait_for,
        deadline_ns=deadline_ns,
        duration_ns=duration_ns,
    )
    return launched(*called(target.executions.ExecuteFenced, request))


def _twice(once: Once, target: Target, model: bytes, request: types_pb2.Request, run: Run) -> Executed:
    with staged(target, request) as made, reusing(target, model, made.request, run.config) as (answer, execution):
        steps = [step("GEN-03", "createReusableExecution", answer)]
        if answer.status:
            return Executed(answer, steps=steps)
        first = after(steps, once(target, execution, made, run))
        if first.answer.status not in (ErrorStatus.NONE, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE):
            return first
        made.spoil()
        return replace(once(target, execution, made, run), before=first)


@path("SYNC-R", "GEN-04")
def _synchronous(target: Target, model: bytes, request: types_pb2.Request, run: Run) -> Executed:
    return _twice(_run, target, model, request, run)


@path("FENCED-R", "GEN-08", fenced=True)
def _fenced(target: Target, model: bytes, request: types_pb2.Request, run: Run) -> Executed:
    return _twice(_launch, target, model, request, run)


def _run(target: Target, execution: bytes, made: Staged, run: Run) -> Executed:
    executed = run_once(target, execution, run.deadline_ns)
    return replace(executed, outputs=read(executed, made))


def _launch(target: Target, execution: bytes, made: Staged, run: Run) -> Executed:
    begun = launch_once(target, execution, run.deadline_ns)
    if begun.answer.status:
        return Executed(begun.answer)
    executed = finish(target, begun.fence, made)
    target.release(begun.fence)
    return executed
