"""Fenced executions: launched now, run when their fences have signalled (hal-surface 9.9).

An execution has four states: it waits for its fences, then for a slot, then it runs on a worker, then it is done. A
fence in error, a deadline or a cancellation ends a waiting execution at once, and a running one between operations: the
fence must not end while outputs are still being written.
"""

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from nnhal.errors import HalError, exception_text, general_failure, invalid_argument, well_formed
from nnhal.types import OMITTED, ErrorStatus, ExecutionConfig, ExecutionResult, FenceState, Request, Span, Timing
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.fence import Fence
from nnhal_driver.execution.request_binding import ValidRequest
from nnhal_driver.scheduling.cancellation import Cancellation, cancelled_error
from nnhal_driver.scheduling.deadline import Deadline, to_absolute
from nnhal_driver.scheduling.scheduler import Scheduler
from nnhal_driver.scheduling.ticket import AdmissionRequest, Ticket
from nnhal_driver.scheduling.timers import Timer
from nnhal_driver.validation.preparation import validate_execution_arguments

_log = logging.getLogger(__name__)

_NOT_MEASURED = Timing()


@dataclass(frozen=True, slots=True)
class FencedArguments:
    """Arguments of executeFenced that each run of a reusable execution has of its own."""

    wait_for: tuple[Fence, ...] = ()
    duration_ns: int = OMITTED
    call: ExecutionCall = field(default_factory=ExecutionCall)


@dataclass(frozen=True, slots=True)
class ExecutionInfo:
    """Result of IFencedExecutionCallback.getExecutionInfo.

    Timings are -1 unless measured and `status` is NONE. There are spans if it is NONE, for a profiled execution.
    """

    status: int
    reason: str = ""
    timing_launched: Timing = _NOT_MEASURED
    timing_fenced: Timing = _NOT_MEASURED
    spans: tuple[Span, ...] = ()
    dropped_spans: int = 0


_RUNNING = ExecutionInfo(ErrorStatus.GENERAL_FAILURE, "the execution is still running")


class FencedRunner(Protocol):
    """The part of a prepared model that fenced executions use."""

    @property
    def scheduler(self) -> Scheduler:
        """The scheduler of the device."""

    def admission_request(self, deadline: Deadline, owner: Hashable) -> AdmissionRequest:
        """Return the request for a slot of an execution."""

    def run(
        self,
        request: ValidRequest,
        config: ExecutionConfig,
        call: ExecutionCall,
        deadline: Deadline,
        release_slot: Callable[[], None],
    ) -> ExecutionResult:
        """Run a valid request on the calling thread."""

    def clear_outputs(self, request: Request) -> None:
        """Make the output buffers of a failed execution uninitialized."""


@dataclass(frozen=True, slots=True)
class _PendingRun:
    """Model and request of an execution that is not done. A fence that outlives its execution keeps neither alive."""

    runner: FencedRunner
    request: ValidRequest
    config: ExecutionConfig
    call: ExecutionCall
    context: contextvars.Context


class _State(Enum):
    FENCED = auto()
    QUEUED = auto()
    RUNNING = auto()
    DONE = auto()


@dataclass(frozen=True, slots=True)
class _WorkerSlot:
    """Slot of a fenced execution, on a worker."""

    ticket: Ticket
    scheduler: Scheduler
    cancellation: Cancellation

    @property
    def paused_ns(self) -> int:
        return self.ticket.paused_ns

    def take_turns(self) -> None:
        queue, workers = self.scheduler.admission, self.scheduler.workers
        if queue.is_overdue(self.ticket) and workers.can_wait:
            workers.begin_wait()
            queue.take_turns(self.ticket, self.cancellation)  # without a slot, the end of the job ends the wait
            workers.end_wait()

    def give_way(self) -> None:
        if self.scheduler.admission.is_overdue(self.ticket):
            self.release()

    def release(self) -> None:
        """Free the slot: the thread only waits from now on."""
        if not self.ticket.is_released:
            self.scheduler.workers.begin_wait()
            self.scheduler.admission.release(self.ticket)


class FencedExecution:
    """A fenced execution. Thread safe.

    Attributes:
        fence: signalled when the outputs are written, in error if they never will be.
    """

    def __init__(
        self, runner: FencedRunner, request: ValidRequest, config: ExecutionConfig, arguments: FencedArguments
    ) -> None:
        self.fence = Fence()
        self._launched_ns = time.perf_counter_ns()
        self._fenced_ns = self._launched_ns
        call = arguments.call
        call.note_decoded(profile=config.profile)
        self._pending: _PendingRun | None = _PendingRun(runner, request, config, call, contextvars.copy_context())
        self._scheduler = runner.scheduler
        self._duration_ns = arguments.duration_ns
        self._deadline = Deadline(call.deadline_ns)
        self._wait_for = arguments.wait_for
        self._active_fences = dict.fromkeys(arguments.wait_for)
        self.cancellation = call.cancellation
        self._lock = threading.Lock()
        self._state = _State.FENCED
        self._ticket: Ticket | None = None
        self._timer: Timer | None = None
        self._info = _RUNNING
        self._on_done: Callable[[], None] | None = None

    def info(self) -> ExecutionInfo:
        """Return the result; GENERAL_FAILURE while the execution is not done."""
        return _RUNNING if self.fence.state == FenceState.ACTIVE else self._info

    def launch(self, on_done: Callable[[], None] | None = None) -> None:
        """Start to wait for the fences. Call it once only.

        Args:
            on_done: called just before the fence ends, from any thread.

        Raises:
            HalError: INVALID_ARGUMENT: a time below -1 (V-EXECARG-01), a fence in error (V-EXECARG-04);
                MISSED_DEADLINE_*: it is too late; RESOURCE_EXHAUSTED_TRANSIENT: the queue is full. Nothing runs then,
                and `on_done` is not called.
        """
        validate_execution_arguments(self._deadline.at_ns, OMITTED, self._duration_ns)
        for number, fence in enumerate(self._wait_for):
            if fence.state == FenceState.ERROR:
                raise invalid_argument(f"fence {number} of wait_for is in error", "V-EXECARG-04")
        self._deadline.check_on_arrival("the execution")
        assert self._pending is not None, "launched once"
        admission = self._pending.runner.admission_request(self._deadline, self._pending.call.owner)
        if error := admission.deadline_error():
            raise error
        self._on_done = on_done
        if all(fence.state == FenceState.SIGNALED for fence in self._active_fences):
            self._enqueue(admission)
            return
        self._start_timer(admission)
        for fence in tuple(self._active_fences):
            fence.add_listener(self._on_fence)

    def cancel(self) -> None:
        """Cancel the execution: at once while it waits, otherwise between two operations."""
        self.cancellation.cancel()
        self._fail(cancelled_error())

    # ---- Waiting ----------------------------------------------------------------------------------------

    def _on_fence(self, fence: Fence) -> None:
        if fence.state == FenceState.ERROR:
            self._fail(general_failure("a fence of wait_for ended in error"))
            return
        with self._lock:
            self._active_fences.pop(fence, None)
            pending = self._pending
            if self._active_fences or self._state is not _State.FENCED or pending is None:
                return
        self._fenced_ns = time.perf_counter_ns()
        self._deadline = self._deadline_with_duration()
        try:
            self._enqueue(pending.runner.admission_request(self._deadline, pending.call.owner))
        except HalError as error:
            self._fail(error)

    def _deadline_with_duration(self) -> Deadline:
        """Return the earlier of the deadline and the end of the duration, which begins now."""
        if self._duration_ns == OMITTED:
            return self._deadline
        end_ns = to_absolute(self._duration_ns)
        return Deadline(end_ns if self._deadline.at_ns == OMITTED else min(end_ns, self._deadline.at_ns))

    def _enqueue(self, admission: AdmissionRequest) -> None:
        """Ask for a slot: all fences have signalled. Raises if the request is rejected."""
        ticket = Ticket(admission, self._on_decided)
        with self._lock:
            if self._state is _State.DONE:
                return
            self._state, self._ticket = _State.QUEUED, ticket
        if self._scheduler.admission.acquire(ticket):
            self._on_decided(ticket)
            return
        self._start_timer(admission)
        if self._state is _State.DONE:  # it ended before the ticket was queued
            self._scheduler.admission.withdraw(ticket, cancelled_error())

    def _start_timer(self, admission: AdmissionRequest) -> None:
        """End the wait when the execution can no longer be done in time."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._state is not _State.DONE and admission.latest_start.at_ns != OMITTED:
                self._timer = self._scheduler.timers.call_at(
                    admission.latest_start.at_ns, lambda: self._expire(admission)
                )

    def _expire(self, admission: AdmissionRequest) -> None:
        if error := admission.deadline_error():
            self._fail(error)

    def _on_decided(self, ticket: Ticket) -> None:
        """Run the execution if the ticket was granted."""
        if ticket.error is not None:
            self._fail(ticket.error)
            return
        try:
            self._scheduler.workers.submit(lambda: self._run(ticket))
        except HalError as error:
            self._scheduler.admission.release(ticket)
            self._fail(error)

    # ---- Running ----------------------------------------------------------------------------------------

    def _run(self, ticket: Ticket) -> None:
        """Run the execution on a worker."""
        with self._lock:
            pending = self._pending if self._state is not _State.DONE else None
            if pending is not None:
                self._state = _State.RUNNING
        try:
            info = pending.context.run(self._execute, pending, ticket) if pending is not None else None
        finally:
            if ticket.is_released:
                self._scheduler.workers.end_wait()
            self._scheduler.admission.release(ticket)
        if info is not None:
            self._finish(info)

    def _execute(self, pending: _PendingRun, ticket: Ticket) -> ExecutionInfo:
        try:
            if error := ticket.request.deadline_error():
                raise error
            call = pending.call
            if call.spans is not None:
                call.spans.begin(self._launched_ns, self._fenced_ns)
            call.queued_ns = ticket.wait_ns
            call.slot = slot = _WorkerSlot(ticket, self._scheduler, self.cancellation)
            result = pending.runner.run(pending.request, pending.config, call, self._deadline, slot.release)
            if not result.output_sufficient_size:
                raise general_failure("an output is larger than its region")
        except HalError as error:
            return _failure_info(error)
        except BaseException as error:  # also SystemExit: the fence must end
            _log.exception("a fenced execution failed")
            return _failure_info(general_failure(f"the driver failed: {exception_text(error)}"))
        launched = fenced = _NOT_MEASURED
        if pending.config.measure_timing:
            now, on_device = time.perf_counter_ns(), result.timing.time_on_device_ns
            launched, fenced = (Timing(on_device, now - at) for at in (self._launched_ns, self._fenced_ns))
        return ExecutionInfo(ErrorStatus.NONE, "", launched, fenced, result.spans, result.dropped_spans)

    # ---- The end ----------------------------------------------------------------------------------------

    def _fail(self, error: HalError) -> None:
        """End a waiting execution. A running one is not affected."""
        with self._lock:
            if self._state in (_State.RUNNING, _State.DONE):
                return
            self._state = _State.DONE
            ticket = self._ticket
        if ticket is not None:
            self._scheduler.admission.withdraw(ticket, error)
        self._finish(_failure_info(error))

    def _finish(self, info: ExecutionInfo) -> None:
        with self._lock:
            self._state = _State.DONE
            self._info = info
            pending, self._pending = self._pending, None
            fences, self._active_fences = self._active_fences, {}
            on_done, self._on_done = self._on_done, None
            if self._timer is not None:
                self._timer.cancel()
        for fence in fences:
            fence.remove_listener(self._on_fence)
        if pending is not None and info.status != ErrorStatus.NONE:
            pending.runner.clear_outputs(pending.request)
        if on_done is not None:
            on_done()
        self.fence.signal(error=info.status != ErrorStatus.NONE)


def _failure_info(error: HalError) -> ExecutionInfo:
    """Return the result of a failed run. The HAL does not allow INVALID_ARGUMENT in it."""
    error = well_formed(error)
    is_argument = error.status == ErrorStatus.INVALID_ARGUMENT
    return ExecutionInfo(ErrorStatus.GENERAL_FAILURE if is_argument else error.status, error.reason)
