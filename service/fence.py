"""Fence: waiting for executions, and fences of the client's own; and the launch that both kinds of execution share."""

from collections.abc import Callable, Iterable
from concurrent.futures import Executor

import grpc

from driver.fence import Fence
from driver.fenced import FencedExecution, FencedLaunch
from driver.timers import Timer, Timers
from nnhal import wire
from nnhal.enums import FenceState
from nnhal.errors import invalid_argument
from nnhal.types import OMITTED
from nnhal.v1 import execution_pb2, fence_pb2, fence_pb2_grpc, prepared_model_pb2
from service.rpc import answering, instant, optional_ns
from service.sessions import Session, Sessions
from service.stream import ResponseStream, Send

LaunchRequest = (
    prepared_model_pb2.ExecuteFencedRequest
    | prepared_model_pb2.ExecuteFencedWithConfigRequest
    | execution_pb2.RunExecutionFencedRequest
)


class SessionFence:
    """A fence as an object of a session: the client's own, or that of an execution."""

    def __init__(self) -> None:
        self.fence = Fence()
        self.execution: FencedExecution | None = None

    def close(self) -> None:
        """The client let it go: nobody can signal a fence of its own any more. An execution goes on."""
        if self.execution is None:
            self.fence.end(error=True)


def launch(
    session: Session, request: LaunchRequest, execute: Callable[[FencedLaunch], FencedExecution]
) -> prepared_model_pb2.FencedExecutionResult:
    """Launches a fenced execution that is ended with its session.

    Raises:
        HalError: a fence of `wait_for` is unknown; a limit of the session; or the launch failed.
    """
    how = FencedLaunch(
        tuple(fences(session, request.wait_for)),
        instant(optional_ns(request, "deadline_ns")),
        optional_ns(request, "duration_ns"),
        session.identity,
    )
    made = SessionFence()
    handle = session.add(made, "fences")
    try:
        session.enter("fenced_executions")
        try:
            made.execution = execute(how)
        except BaseException:
            session.leave("fenced_executions")
            raise
    except BaseException:
        session.release([handle])
        raise
    made.fence = made.execution.fence
    _end_with_session(session, made.execution)
    return prepared_model_pb2.FencedExecutionResult(fence=handle, finished=made.fence.state != FenceState.ACTIVE)


def fences(session: Session, handles: Iterable[bytes]) -> Iterable[Fence]:
    """The fences behind handles.

    Raises:
        HalError: INVALID_ARGUMENT of kind UNKNOWN_HANDLE (V-EXECARG-04).
    """
    return (session.get(handle, SessionFence).fence for handle in handles)


def _end_with_session(session: Session, execution: FencedExecution) -> None:
    def cancel(_: str) -> None:
        execution.cancel()

    def over(_: Fence) -> None:
        session.forget(cancel)
        session.leave("fenced_executions")

    session.when_ended(cancel)
    execution.fence.when_over(over)


class _Wait:
    """One call of Wait: answered when the fence ends or the time is over. It holds no thread meanwhile."""

    def __init__(self, fence: Fence, stream: ResponseStream[fence_pb2.WaitResponse], executor: Executor) -> None:
        self._fence = fence
        self._stream = stream
        self._executor = executor
        self._timer: Timer | None = None

    def start(self, context: grpc.ServicerContext, timers: Timers, timeout_ns: int) -> None:
        """Answers at once where nothing is to be waited for."""
        if timeout_ns == 0 or self._fence.state != FenceState.ACTIVE:
            self._answer()
            return
        if timeout_ns != OMITTED:
            self._timer = timers.at(instant(timeout_ns), self._hand_over)
        self._fence.when_over(self._over)
        if not context.add_callback(self._gone):
            self._gone()

    def _over(self, _: Fence) -> None:
        self._hand_over()

    def _hand_over(self) -> None:
        """Sending may wait for the client: not on a thread that others need."""
        self._executor.submit(self._answer)

    def _answer(self) -> None:
        self._stream.answer(fence_pb2.WaitResponse(state=int(self._fence.state)))  # type: ignore[arg-type]

    def _gone(self) -> None:
        """The call has ended, one way or the other."""
        self._fence.forget(self._over)
        if self._timer is not None:
            self._timer.cancel()


class FenceServicer(fence_pb2_grpc.FenceServicer):
    """The RPCs."""

    def __init__(self, sessions: Sessions, executor: Executor, timers: Timers) -> None:
        self._sessions = sessions
        self._executor = executor
        self._timers = timers

    @answering
    def Wait(  # type: ignore[override]
        self, request: fence_pb2.WaitRequest, context: grpc.ServicerContext, send: Send[fence_pb2.WaitResponse]
    ) -> None:
        """Waits until the fence ends, or the time is over."""
        fence = self._sessions.get(request.session).get(request.fence, SessionFence).fence
        timeout_ns = optional_ns(request, "timeout_ns")
        if timeout_ns < OMITTED:
            raise invalid_argument(f"the timeout is {timeout_ns} ns, must be >= -1")
        _Wait(fence, ResponseStream(context, send), self._executor).start(context, self._timers, timeout_ns)

    # service.decoding knows how a call with one answer comes to have this
    Wait.experimental_non_blocking = True  # type: ignore[attr-defined]

    @answering
    def GetExecutionInfo(
        self, request: fence_pb2.GetExecutionInfoRequest, context: grpc.ServicerContext
    ) -> fence_pb2.GetExecutionInfoResponse:
        """How the execution behind a fence ended."""
        made = self._sessions.get(request.session).get(request.fence, SessionFence)
        if made.execution is None:
            raise invalid_argument("this fence is the client's own: there is no execution behind it")
        info = made.execution.info()
        return fence_pb2.GetExecutionInfoResponse(
            status=int(info.status),  # type: ignore[arg-type]
            reason=info.reason,
            timing_launched=wire.timing_message(info.timing_launched),
            timing_fenced=wire.timing_message(info.timing_fenced),
        )

    @answering
    def Create(
        self, request: fence_pb2.CreateFenceRequest, context: grpc.ServicerContext
    ) -> fence_pb2.CreateFenceResponse:
        """Makes a fence of the client's own. It ends in error when the client lets it go."""
        return fence_pb2.CreateFenceResponse(fence=self._sessions.get(request.session).add(SessionFence(), "fences"))

    @answering
    def Signal(
        self, request: fence_pb2.SignalFenceRequest, context: grpc.ServicerContext
    ) -> fence_pb2.SignalFenceResponse:
        """Ends a fence of the client's own."""
        made = self._sessions.get(request.session).get(request.fence, SessionFence)
        if made.execution is not None:
            raise invalid_argument("this fence belongs to an execution, which alone signals it")
        if not made.fence.end(error=request.error):
            raise invalid_argument(f"the fence has ended already: {made.fence.state.name}")
        return fence_pb2.SignalFenceResponse()
