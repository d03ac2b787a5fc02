"""The paths SYNC-R and FENCED-R: a reusable execution is run twice."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from nnhal.v1 import execution_pb2, prepared_model_pb2, types_pb2
from tools.conformance.paths.fenced import Launched, finish, launched
from tools.conformance.paths.path import after, held, path, run_twice, step
from tools.conformance.paths.staged import Staged, staged
from tools.conformance.target import Answer, Executed, Run, Target, called


def reusing(
    target: Target, model: bytes, request: types_pb2.Request, config: types_pb2.ExecutionConfig
) -> AbstractContextManager[tuple[Answer, bytes]]:
    """How createReusableExecution ended, and the execution, which is dropped at the end."""
    message = prepared_model_pb2.CreateReusableExecutionRequest(
        session=target.session, prepared_model=model, request=request, config=config
    )
    answer, made = called(target.prepared_model.CreateReusableExecution, message)
    return held(target, answer, made.execution if made else b"")


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


def _twice(
    once: Callable[[bytes], Executed],
    target: Target,
    model: bytes,
    request: types_pb2.Request,
    run: Run,
    between: Callable[[], None] = lambda: None,
) -> Executed:
    """Makes an execution and runs it twice; `between` is called before the second run."""
    with reusing(target, model, request, run.config) as (answer, execution):
        steps = [step("GEN-03", "createReusableExecution", answer)]
        if answer.status:
            return Executed(answer, steps=steps)
        return after(steps, run_twice(lambda: once(execution), between))


@path("SYNC-R", "GEN-04")
def _synchronous(target: Target, model: bytes, request: types_pb2.Request, run: Run) -> Executed:
    return _twice(lambda execution: run_once(target, execution, run.deadline_ns), target, model, request, run)


@path("FENCED-R", "GEN-08", fenced=True)
def _fenced(target: Target, model: bytes, request: types_pb2.Request, run: Run) -> Executed:
    """What the first run wrote is overwritten before the second one."""
    with staged(target, request) as made:
        return _twice(
            lambda execution: _launch(target, execution, made, run), target, model, made.request, run, made.spoil
        )


def _launch(target: Target, execution: bytes, made: Staged, run: Run) -> Executed:
    begun = launch_once(target, execution, run.deadline_ns)
    if begun.answer.status:
        return Executed(begun.answer)
    executed = finish(target, begun.fence, made)
    target.release(begun.fence)
    return executed
