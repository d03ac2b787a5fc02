"""The paths FENCED and FENCED-C, and what all fenced executions share: waiting, and asking the callback."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nnhal.types import ErrorStatus
from nnhal.v1 import fence_pb2, prepared_model_pb2, types_pb2
from tools.conformance.paths.path import after, path, step
from tools.conformance.paths.staged import Staged, staged
from tools.conformance.target import Answer, Executed, Run, Step, Target, called

ACTIVE, SIGNALED, ERROR = 1, 2, 3
"""States of a fence."""


@dataclass(frozen=True)
class Launched:
    """How a launch ended. `fence`: empty where it failed."""

    answer: Answer
    fence: bytes = b""


@dataclass(frozen=True)
class Launch:
    """A call of IPreparedModel that launches a fenced execution.

    Attributes:
        method: of the stub.
        message: makes its request.
        fields: what of it the settings of a run become.
    """

    method: str
    message: Callable[..., Any]
    fields: Callable[[Run], dict[str, Any]]

    def __call__(
        self,
        target: Target,
        model: bytes,
        request: types_pb2.Request,
        run: Run,
        wait_for: Sequence[bytes] = (),
        duration_ns: int | None = None,
    ) -> Launched:
        """Launches."""
        message = self.message(
            session=target.session,
            prepared_model=model,
            request=request,
            wait_for=wait_for,
            duration_ns=duration_ns,
            **self.fields(run),
        )
        return launched(*called(getattr(target.prepared_model, self.method), message))


launch = Launch("ExecuteFenced", prepared_model_pb2.ExecuteFencedRequest, Run.plain_fields)
launch_with_config = Launch(
    "ExecuteFencedWithConfig", prepared_model_pb2.ExecuteFencedWithConfigRequest, Run.config_fields
)


def launched(answer: Answer, result: prepared_model_pb2.FencedExecutionResult | None) -> Launched:
    """How a launch ended. One that is OK brings a fence."""
    if result is not None and not result.fence:
        return Launched(Answer(ErrorStatus.GENERAL_FAILURE, "the harness: NONE, but no fence"))
    return Launched(answer, result.fence if result else b"")


def wait(target: Target, fence: bytes, timeout_ns: int | None = None) -> tuple[Answer, int]:
    """Fence.Wait: how it ended, and the state."""
    request = fence_pb2.WaitRequest(session=target.session, fence=fence, timeout_ns=timeout_ns)
    answer, response = called(target.fences.Wait, request)
    return answer, int(response.state) if response else 0


def info(target: Target, fence: bytes) -> tuple[Answer, fence_pb2.GetExecutionInfoResponse | None]:
    """IFencedExecutionCallback.getExecutionInfo."""
    request = fence_pb2.GetExecutionInfoRequest(session=target.session, fence=fence)
    return called(target.fences.GetExecutionInfo, request)


def finish(target: Target, fence: bytes, made: Staged) -> Executed:
    """Waits for a fence, then asks the callback; the outputs are read where they lie."""
    waited, state = wait(target, fence)
    terminal = state in (SIGNALED, ERROR)
    steps = [Step("GEN-10", terminal, "waiting for the fence", "SIGNALED or ERROR", f"{waited}, state {state}")]
    answer, told = info(target, fence)
    steps.append(step("GEN-11", "getExecutionInfo", answer))
    if told is None:
        return Executed(answer, steps=steps, launched=True)
    status = Answer(told.status, told.reason)
    timing = (told.timing_launched.time_on_device_ns, told.timing_launched.time_in_driver_ns)
    outputs = () if told.status else made.outputs()
    return Executed(status, timing=timing, outputs=outputs, steps=steps, launched=True)


def _fenced(start: Launch) -> Any:
    def execute(target: Target, model: bytes, request: types_pb2.Request, run: Run) -> Executed:
        with staged(target, request) as made:
            first = start(target, model, made.request, run)
            if first.answer.status:
                return Executed(first.answer)
            if not run.chain:
                executed = finish(target, first.fence, made)
                target.release(first.fence)
                return executed
            second = start(target, model, made.request, run, [first.fence])
            chained = step("GEN-09", "a launch that waits for the fence of the first", second.answer)
            if second.answer.status:
                finish(target, first.fence, made)
                target.release(first.fence)
                return Executed(second.answer, steps=[chained])
            executed = finish(target, second.fence, made)
            target.release(first.fence, second.fence)
            return after([chained], executed)

    return execute


path("FENCED", "GEN-08", fenced=True)(_fenced(launch))
path("FENCED-C", "GEN-08", fenced=True)(_fenced(launch_with_config))
