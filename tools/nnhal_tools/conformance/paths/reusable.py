"""Paths SYNC-R and FENCED-R, which run a reusable execution twice."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from nnhal.v1 import types_pb2
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.results import CallOutcome, ExecutionOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths.fenced import LaunchOutcome, await_execution, launch_outcome
from nnhal_tools.conformance.paths.path import owned_object, register_path, run_on_object, run_twice
from nnhal_tools.conformance.paths.staged import StagedRequest, staged_request


def reusable_execution(
    target: Target, model: bytes, request: types_pb2.Request, config: types_pb2.ExecutionConfig
) -> AbstractContextManager[tuple[CallOutcome, bytes]]:
    """Call createReusableExecution. The context yields its outcome and the execution, and releases it at the end."""
    fields = {"prepared_model": model, "request": request, "config": config}
    outcome, response = target.call("PreparedModel.CreateReusableExecution", **fields)
    return owned_object(target, outcome, response.execution if response else b"")


def execute_reusable(target: Target, execution: bytes, deadline_ns: int | None = None) -> ExecutionOutcome:
    """Call IExecution.executeSynchronously."""
    return target.execute_by("Execution.ExecuteSynchronously", execution=execution, deadline_ns=deadline_ns)


def launch_reusable(
    target: Target,
    execution: bytes,
    deadline_ns: int | None = None,
    wait_for: Sequence[bytes] = (),
    duration_ns: int | None = None,
) -> LaunchOutcome:
    """Call IExecution.executeFenced."""
    times = {"deadline_ns": deadline_ns, "duration_ns": duration_ns}
    return launch_outcome(*target.call("Execution.ExecuteFenced", execution=execution, wait_for=wait_for, **times))


def _execute_twice(
    run_once: Callable[[bytes], ExecutionOutcome],
    target: Target,
    model: bytes,
    request: types_pb2.Request,
    options: RunOptions,
    between: Callable[[], None] = lambda: None,
) -> ExecutionOutcome:
    """Create an execution and run it twice. `between` is called before the second run."""
    created = reusable_execution(target, model, request, options.config)
    return run_on_object(
        created, "GEN-03", "createReusableExecution", lambda execution: run_twice(lambda: run_once(execution), between)
    )


@register_path("SYNC-R", "GEN-04")
def _synchronous(target: Target, model: bytes, request: types_pb2.Request, options: RunOptions) -> ExecutionOutcome:
    def run_once(execution: bytes) -> ExecutionOutcome:
        return execute_reusable(target, execution, options.deadline_ns)

    return _execute_twice(run_once, target, model, request, options)


@register_path("FENCED-R", "GEN-08", fenced=True)
def _fenced(target: Target, model: bytes, request: types_pb2.Request, options: RunOptions) -> ExecutionOutcome:
    """Run a fenced execution twice. The outputs of the first run are overwritten before the second one."""
    with staged_request(target, request) as staged:

        def run_once(execution: bytes) -> ExecutionOutcome:
            return _launch_and_await(target, execution, staged, options)

        return _execute_twice(run_once, target, model, staged.request, options, staged.overwrite_outputs)


def _launch_and_await(target: Target, execution: bytes, staged: StagedRequest, options: RunOptions) -> ExecutionOutcome:
    launch = launch_reusable(target, execution, options.deadline_ns)
    if launch.outcome.status:
        return ExecutionOutcome(launch.outcome)
    result = await_execution(target, launch.fence, staged)
    target.release(launch.fence)
    return result
