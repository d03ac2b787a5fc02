"""Paths FENCED and FENCED-C, and the helpers of all fenced executions: wait for a fence, and query its callback."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nnhal.types import ErrorStatus
from nnhal.v1 import fence_pb2, prepared_model_pb2, types_pb2
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.results import CallOutcome, ExecutionOutcome, PathStep
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths.path import expect_ok, register_path, with_earlier_steps
from nnhal_tools.conformance.paths.staged import StagedRequest, staged_request

ACTIVE, SIGNALED, ERROR = 1, 2, 3
"""States of a fence."""


@dataclass(frozen=True)
class LaunchOutcome:
    """Outcome of a launch. `fence`: b"" if it failed."""

    outcome: CallOutcome
    fence: bytes = b""


@dataclass(frozen=True)
class FencedLauncher:
    """Call of IPreparedModel that launches a fenced execution, with run options as fields of its request."""

    method: str
    fields: Callable[[RunOptions], dict[str, Any]]

    def __call__(
        self,
        target: Target,
        model: bytes,
        request: types_pb2.Request,
        options: RunOptions,
        wait_for: Sequence[bytes] = (),
        duration_ns: int | None = None,
    ) -> LaunchOutcome:
        """Launch a fenced execution."""
        waiting = {"wait_for": wait_for, "duration_ns": duration_ns}
        fields = self.fields(options)
        return launch_outcome(*target.call(self.method, prepared_model=model, request=request, **waiting, **fields))


launch = FencedLauncher("PreparedModel.ExecuteFenced", RunOptions.plain_fields)
launch_with_config = FencedLauncher("PreparedModel.ExecuteFencedWithConfig", RunOptions.config_fields)


def launch_outcome(outcome: CallOutcome, result: prepared_model_pb2.FencedExecutionResult | None) -> LaunchOutcome:
    """Return the outcome of a launch. A successful launch must return a fence."""
    if result is not None and not result.fence:
        return LaunchOutcome(CallOutcome(ErrorStatus.GENERAL_FAILURE, "the harness: NONE, but no fence"))
    return LaunchOutcome(outcome, result.fence if result else b"")


def wait_for_fence(target: Target, fence: bytes, timeout_ns: int | None = None) -> tuple[CallOutcome, int]:
    """Call Fence.Wait and return the outcome and the state."""
    outcome, response = target.call("Fence.Wait", fence=fence, timeout_ns=timeout_ns)
    return outcome, int(response.state) if response else 0


def get_execution_info(target: Target, fence: bytes) -> tuple[CallOutcome, fence_pb2.GetExecutionInfoResponse | None]:
    """Call IFencedExecutionCallback.getExecutionInfo."""
    return target.call("Fence.GetExecutionInfo", fence=fence)


def await_execution(target: Target, fence: bytes, staged: StagedRequest) -> ExecutionOutcome:
    """Wait for a fence, query the callback, and read the outputs from memory."""
    waited, state = wait_for_fence(target, fence)
    terminal = state in (SIGNALED, ERROR)
    steps = [PathStep("GEN-10", terminal, "waiting for the fence", "SIGNALED or ERROR", f"{waited}, state {state}")]
    outcome, info = get_execution_info(target, fence)
    steps.append(expect_ok("GEN-11", "getExecutionInfo", outcome))
    if info is None:
        return ExecutionOutcome(outcome, steps=steps, launched=True)
    status = CallOutcome(info.status, info.reason)
    timing = (info.timing_launched.time_on_device_ns, info.timing_launched.time_in_driver_ns)
    outputs = () if info.status else staged.outputs()
    return ExecutionOutcome(status, timing=timing, outputs=outputs, steps=steps, launched=True)


def _execute_fenced(launcher: FencedLauncher) -> Any:
    def execute(target: Target, model: bytes, request: types_pb2.Request, options: RunOptions) -> ExecutionOutcome:
        with staged_request(target, request) as staged:
            first = launcher(target, model, staged.request, options)
            if first.outcome.status:
                return ExecutionOutcome(first.outcome)
            if not options.chain:
                execution = await_execution(target, first.fence, staged)
                target.release(first.fence)
                return execution
            second = launcher(target, model, staged.request, options, [first.fence])
            step = expect_ok("GEN-09", "a launch that waits for the fence of the first", second.outcome)
            if second.outcome.status:
                await_execution(target, first.fence, staged)
                target.release(first.fence)
                return ExecutionOutcome(second.outcome, steps=[step])
            execution = await_execution(target, second.fence, staged)
            target.release(first.fence, second.fence)
            return with_earlier_steps([step], execution)

    return execute


register_path("FENCED", "GEN-08", fenced=True)(_execute_fenced(launch))
register_path("FENCED-C", "GEN-08", fenced=True)(_execute_fenced(launch_with_config))
