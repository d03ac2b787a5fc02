"""FencedExecution: an execution that is launched now and runs when its fences have signalled (hal-surface 9.9).

It goes through four states: it waits for its fences, then for its turn, then it runs on a worker, then it is over. What
ends it early (a fence in error, a deadline, a cancellation) does so at once while it waits, and between operations when
it runs: a fence must not end while outputs are still being written.
"""

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from driver.buffer import empty_outputs
from driver.cancellation import Cancellation, cancelled
from driver.deadline import Deadline, now_ns
from driver.fence import Fence
from driver.gate import Claim, Turn
from driver.memory import ValidRequest
from driver.scheduler import Scheduler
from driver.timers import Timer
from driver.validation.preparation import validate_execution_arguments
from nnhal.enums import FenceState
from nnhal.errors import HalError, general_failure, invalid_argument
from nnhal.types import OMITTED, ErrorStatus, ExecutionConfig, ExecutionResult, Timing

_log = logging.getLogger(__name__)

_INT64_MAX = 2**63 - 1
_NOT_MEASURED = Timing()


@dataclass(frozen=True, slots=True)
class FencedLaunch:
    """How one run is launched: the arguments of executeFenced that are not frozen in a reusable execution."""

    wait_for: tuple[Fence, ...] = ()
    deadline_ns: int = OMITTED
    duration_ns: int = OMITTED
    owner: Hashable = None


@dataclass(frozen=True, slots=True)
class ExecutionInfo:
    """IFencedExecutionCallback.getExecutionInfo: how it ended; timings are -1 unless measured and `status` is NONE."""

    status: int
    reason: str = ""
    timing_launched: Timing = _NOT_MEASURED
    timing_fenced: Timing = _NOT_MEASURED


_RUNNING = ExecutionInfo(ErrorStatus.GENERAL_FAILURE, "the execution is still running")


class Runner(Protocol):
    """What a fenced execution needs of its prepared model."""

    @property
    def scheduler(self) -> Scheduler:
        """Of the device."""

    def claim(self, deadline: Deadline, owner: Hashable) -> Claim:
        """What an execution asks the gate for."""

    def run(
        self,
        request: ValidRequest,
        config: ExecutionConfig,
        deadline: Deadline,
        cancellation: Cancellation,
        started_ns: int,
    ) -> ExecutionResult:
        """Runs a valid request on the calling thread."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What is to be run; let go when it is over, so that a fence that is kept keeps no memory and no model."""

    runner: Runner
    request: ValidRequest
    config: ExecutionConfig


class _State(Enum):
    FENCED = auto()
    QUEUED = auto()
    RUNNING = auto()
    OVER = auto()


class FencedExecution:
    """A fenced execution. Thread safe.

    Attributes:
        fence: signalled when the outputs are there, in error when they never will be.
    """

    def __init__(self, runner: Runner, request: ValidRequest, config: ExecutionConfig, launch: FencedLaunch) -> None:
        self.fence = Fence()
        self._launched_ns = time.perf_counter_ns()
        self._fenced_ns = self._launched_ns
        self._work: _Work | None = _Work(runner, request, config)
        self._scheduler = runner.scheduler
        self._launch = launch
        self._deadline = Deadline(launch.deadline_ns)
        self._left = dict.fromkeys(launch.wait_for)
        self._cancellation = Cancellation()
        self._lock = threading.Lock()
        self._state = _State.FENCED
        self._turn: Turn | None = None
        self._timer: Timer | None = None
        self._info = _RUNNING
        self._over: Callable[[], None] | None = None

    def info(self) -> ExecutionInfo:
        """How it ended; GENERAL_FAILURE while it has not."""
        return _RUNNING if self.fence.state == FenceState.ACTIVE else self._info

    def launch(self, over: Callable[[], None] | None = None) -> None:
        """Starts to wait for the fences; once only.

        Args:
            over: is called just before the fence ends, from any thread.

        Raises:
            HalError: INVALID_ARGUMENT: a time below -1 (V-EXECARG-01), a fence in error (V-EXECARG-04);
                MISSED_DEADLINE_*: it is too late; RESOURCE_EXHAUSTED_TRANSIENT: too many wait already. Nothing runs
                then, and `over` is not called.
        """
        validate_execution_arguments(self._launch.deadline_ns, OMITTED, self._launch.duration_ns)
        for number, fence in enumerate(self._launch.wait_for):
            if fence.state == FenceState.ERROR:
                raise invalid_argument(f"fence {number} of wait_for is in error", "V-EXECARG-04")
        self._deadline.check_on_arrival("the execution")
        assert self._work is not None, "launched once"
        runner = self._work.runner
        claim = runner.claim(self._deadline, self._launch.owner)
        if error := claim.too_late():
            raise error
        self._over = over
        if all(fence.state == FenceState.SIGNALED for fence in self._left):
            self._start(claim)
            return
        self._watch(claim)
        for fence in tuple(self._left):
            fence.when_over(self._one_over)

    def cancel(self) -> None:
        """Gives it up: at once while it waits, else between two operations."""
        self._cancellation.cancel()
        self._fail(cancelled())

    # ---- Waiting ----------------------------------------------------------------------------------------

    def _one_over(self, fence: Fence) -> None:
        if fence.state == FenceState.ERROR:
            self._fail(general_failure("a fence of wait_for ended in error"))
            return
        with self._lock:
            self._left.pop(fence, None)
            work = self._work
            if self._left or self._state is not _State.FENCED or work is None:
                return
        self._fenced_ns = time.perf_counter_ns()
        self._deadline = self._with_duration()
        try:
            self._start(work.runner.claim(self._deadline, self._launch.owner))
        except HalError as error:
            self._fail(error)

    def _with_duration(self) -> Deadline:
        """The earlier of the deadline and the end of the duration, which begins now."""
        if self._launch.duration_ns == OMITTED:
            return self._deadline
        end_ns = min(now_ns() + self._launch.duration_ns, _INT64_MAX)
        return Deadline(end_ns if self._deadline.at_ns == OMITTED else min(end_ns, self._deadline.at_ns))

    def _start(self, claim: Claim) -> None:
        """Asks for a turn: all fences have signalled.

        Raises:
            HalError: there is none for it.
        """
        turn = Turn(claim, self._told)
        with self._lock:
            if self._state is _State.OVER:
                return
            self._state, self._turn = _State.QUEUED, turn
        if self._scheduler.gate.enter(turn):
            self._told(turn)
            return
        self._watch(claim)
        if self._state is _State.OVER:  # ended before it stood in the queue
            self._scheduler.gate.give_up(turn, cancelled())

    def _watch(self, claim: Claim) -> None:
        """Sees to it that the wait ends when it is too late."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._state is not _State.OVER and claim.latest.at_ns != OMITTED:
                self._timer = self._scheduler.timers.at(claim.latest.at_ns, lambda: self._expire(claim))

    def _expire(self, claim: Claim) -> None:
        if error := claim.too_late():
            self._fail(error)

    def _told(self, turn: Turn) -> None:
        """The turn has come, or never will."""
        if turn.error is not None:
            self._fail(turn.error)
            return
        try:
            self._scheduler.workers.submit(lambda: self._run(turn))
        except HalError as error:
            self._scheduler.gate.leave(turn)
            self._fail(error)

    # ---- Running ----------------------------------------------------------------------------------------

    def _run(self, turn: Turn) -> None:
        """On a worker."""
        with self._lock:
            work = self._work if self._state is not _State.OVER else None
            if work is not None:
                self._state = _State.RUNNING
        try:
            info = self._executed(work, turn) if work is not None else None
        finally:
            self._scheduler.gate.leave(turn)
        if info is not None:
            self._finish(info)

    def _executed(self, work: _Work, turn: Turn) -> ExecutionInfo:
        try:
            if error := turn.claim.too_late():
                raise error
            result = work.runner.run(work.request, work.config, self._deadline, self._cancellation, self._fenced_ns)
            if not result.output_sufficient_size:
                raise general_failure("an output is larger than its region")
        except HalError as error:
            return _failed(error)
        except Exception as error:
            _log.exception("a fenced execution failed")
            return _failed(general_failure(f"the driver failed: {type(error).__name__}: {error}"))
        if not work.config.measure_timing:
            return ExecutionInfo(ErrorStatus.NONE)
        now, on_device = time.perf_counter_ns(), result.timing.time_on_device_ns
        return ExecutionInfo(
            ErrorStatus.NONE,
            "",
            Timing(on_device, now - self._launched_ns),
            Timing(on_device, now - self._fenced_ns),
        )

    # ---- The end ----------------------------------------------------------------------------------------

    def _fail(self, error: HalError) -> None:
        """Ends the wait; one that runs already is left to itself."""
        with self._lock:
            if self._state in (_State.RUNNING, _State.OVER):
                return
            self._state = _State.OVER
            turn = self._turn
        if turn is not None:
            self._scheduler.gate.give_up(turn, error)
        self._finish(_failed(error))

    def _finish(self, info: ExecutionInfo) -> None:
        with self._lock:
            self._state = _State.OVER
            self._info = info
            work, self._work = self._work, None
            left, self._left = self._left, {}
            over, self._over = self._over, None
            if self._timer is not None:
                self._timer.cancel()
        for fence in left:
            fence.forget(self._one_over)
        if work is not None and info.status != ErrorStatus.NONE:
            empty_outputs(work.request)
        if over is not None:
            over()
        self.fence.end(error=info.status != ErrorStatus.NONE)


def _failed(error: HalError) -> ExecutionInfo:
    """How a run ended. INVALID_ARGUMENT is no status that the HAL has for it."""
    is_argument = error.status == ErrorStatus.INVALID_ARGUMENT
    return ExecutionInfo(ErrorStatus.GENERAL_FAILURE if is_argument else error.status, error.reason)
