"""Fence: waits for fences, and fences of the client's own; and the launch of fenced executions of both kinds."""

from collections.abc import Callable
from concurrent.futures import Executor

import grpc

from nnhal import wire
from nnhal.errors import invalid_argument
from nnhal.types import OMITTED, FenceState
from nnhal.v1 import execution_pb2, fence_pb2, fence_pb2_grpc, prepared_model_pb2
from nnhal_driver.execution.fence import Fence
from nnhal_driver.execution.fenced_execution import FencedArguments, FencedExecution
from nnhal_driver.scheduling.deadline import to_absolute
from nnhal_driver.scheduling.timers import Timer, Timers
from nnhal_service.grpc_support.call_context import field_or_omitted
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.grpc_support.response_stream import ResponseStream, Send
from nnhal_service.metrics.calls import MeteredCall
from nnhal_service.request_id import carry
from nnhal_service.requests.service_parts import ServiceParts
from nnhal_service.sessions.memory_quota import OBJECT_BYTES, Reservation
from nnhal_service.sessions.session import Session

LaunchRequest = (
    prepared_model_pb2.ExecuteFencedRequest
    | prepared_model_pb2.ExecuteFencedWithConfigRequest
    | execution_pb2.RunExecutionFencedRequest
)


class SessionFence:
    """Fence as an object of a session.

    Attributes:
        execution: the execution that signals the fence; None for a fence of the client's own.
    """

    def __init__(self) -> None:
        self.fence = Fence()
        self.execution: FencedExecution | None = None

    def close(self) -> None:
        """Set a fence of the client's own to error, because it can no longer be signaled. An execution goes on."""
        if self.execution is None:
            self.fence.signal(error=True)


def launch_fenced(
    call: MeteredCall,
    session: Session,
    fence: SessionFence,
    request: LaunchRequest,
    execute: Callable[[FencedArguments], FencedExecution],
) -> prepared_model_pb2.FencedExecutionResult:
    """Launch a fenced execution, whose meter has started, with a new fence. It is cancelled when its session ends.

    Raises:
        HalError: INVALID_ARGUMENT of kind UNKNOWN_HANDLE: a fence of `wait_for` (V-EXECARG-04); a limit of the session;
            or the launch failed.
    """
    assert call.context is not None, "fenced executions are launched over gRPC"
    handle = b""
    try:
        arguments = FencedArguments(
            tuple(session.get(handle, SessionFence).fence for handle in request.wait_for),
            field_or_omitted(request, "duration_ns"),
            call,
        )
        handle = session.add(fence, "fences")
        session.acquire_slot("fenced_executions")
        try:
            with carry(call.context):
                fence.execution = execute(arguments)
        except BaseException:
            session.release_slot("fenced_executions")
            raise
    except BaseException as error:
        call.fail(error)
        session.release([handle])
        raise
    fence.fence = fence.execution.fence
    _finish_with_fence(session, fence.execution, call)
    return prepared_model_pb2.FencedExecutionResult(fence=handle, finished=fence.fence.state != FenceState.ACTIVE)


def _finish_with_fence(session: Session, execution: FencedExecution, call: MeteredCall) -> None:
    """Cancel the execution when its session ends, and count it when it ends."""

    def cancel(_: str) -> None:
        execution.cancel()

    def finish(_: Fence) -> None:
        session.off_close(cancel)
        session.release_slot("fenced_executions")
        call.end(execution.info().status)

    session.on_close(cancel)
    execution.fence.add_listener(finish)


class _Wait:
    """One call of Wait, which responds when the fence ends or the timeout expires. It occupies no thread meanwhile."""

    def __init__(
        self, fence: Fence, stream: ResponseStream[fence_pb2.WaitResponse], executor: Executor, memory: Reservation
    ) -> None:
        self._memory = memory  # counts as long as this object exists
        self._fence = fence
        self._stream = stream
        self._executor = executor
        self._timer: Timer | None = None

    def start(self, context: grpc.ServicerContext, timers: Timers, timeout_ns: int) -> None:
        """Wait for the fence, or respond at once if there is nothing to wait for."""
        if timeout_ns == 0 or self._fence.state != FenceState.ACTIVE:
            self._respond()
            return
        if timeout_ns != OMITTED:
            self._timer = timers.call_at(to_absolute(timeout_ns), self._submit_response)
        self._fence.add_listener(self._submit_response)
        if not context.add_callback(self._cleanup):
            self._cleanup()

    def _submit_response(self, _: Fence | None = None) -> None:
        """Respond on another thread: a send may block on the client."""
        self._executor.submit(self._respond)

    def _respond(self) -> None:
        self._stream.send_and_end(fence_pb2.WaitResponse(state=int(self._fence.state)))  # type: ignore[arg-type]

    def _cleanup(self) -> None:
        """Remove the listener and the timer when the call has ended."""
        self._fence.remove_listener(self._submit_response)
        if self._timer is not None:
            self._timer.cancel()


class FenceServicer(fence_pb2_grpc.FenceServicer):
    """Servicer of Fence."""

    def __init__(self, parts: ServiceParts, executor: Executor, timers: Timers) -> None:
        self._sessions = parts.sessions
        self._quota = parts.quota
        self._executor = executor
        self._timers = timers

    @handler(non_blocking=True)
    def Wait(
        self, request: fence_pb2.WaitRequest, context: grpc.ServicerContext, send: Send[fence_pb2.WaitResponse]
    ) -> None:
        """Wait until the fence ends or the timeout expires."""
        session = self._sessions.get(request.session, context)
        fence = session.get(request.fence, SessionFence).fence
        timeout_ns = field_or_omitted(request, "timeout_ns")
        if timeout_ns < OMITTED:
            raise invalid_argument(f"the timeout is {timeout_ns} ns, must be >= -1")
        memory = self._quota.reserve(session, OBJECT_BYTES, "the wait")
        _Wait(fence, ResponseStream(context, send), self._executor, memory).start(context, self._timers, timeout_ns)

    @handler()
    def GetExecutionInfo(
        self, request: fence_pb2.GetExecutionInfoRequest, context: grpc.ServicerContext
    ) -> fence_pb2.GetExecutionInfoResponse:
        """Return the status and the timings of the execution behind a fence."""
        fence = self._sessions.get(request.session, context).get(request.fence, SessionFence)
        if fence.execution is None:
            raise invalid_argument("this fence is the client's own: there is no execution behind it")
        info = fence.execution.info()
        return fence_pb2.GetExecutionInfoResponse(
            status=int(info.status),  # type: ignore[arg-type]
            reason=info.reason,
            timing_launched=wire.timing_message(info.timing_launched),
            timing_fenced=wire.timing_message(info.timing_fenced),
            spans=map(wire.span_message, info.spans),
            dropped_spans=info.dropped_spans,
        )

    @handler()
    def Create(
        self, request: fence_pb2.CreateFenceRequest, context: grpc.ServicerContext
    ) -> fence_pb2.CreateFenceResponse:
        """Create a fence of the client's own. It ends in error when the client releases it."""
        session = self._sessions.get(request.session, context)
        fence = self._quota.count_object(session, SessionFence)
        return fence_pb2.CreateFenceResponse(fence=session.add(fence, "fences"))

    @handler()
    def Signal(
        self, request: fence_pb2.SignalFenceRequest, context: grpc.ServicerContext
    ) -> fence_pb2.SignalFenceResponse:
        """Signal a fence of the client's own."""
        fence = self._sessions.get(request.session, context).get(request.fence, SessionFence)
        if fence.execution is not None:
            raise invalid_argument("this fence belongs to an execution, which alone signals it")
        if not fence.fence.signal(error=request.error):
            raise invalid_argument(f"the fence has ended already: {fence.fence.state.name}")
        return fence_pb2.SignalFenceResponse()
