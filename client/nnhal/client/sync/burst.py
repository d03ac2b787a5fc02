"""Bursts: many executions of one prepared model, with less work for each.

with prepared.burst() as burst:
    outputs = burst.execute([image])  # one after another
    futures = [burst.submit([image]) for image in images]  # several in progress; answered in order
    weights = burst.keep(weights)  # an input that stays the same is sent once
    outputs = burst.execute([image, weights])

A burst has a gRPC stream, or on the same machine a channel over shared memory, see `nnhal.client.sync.burst_transport`.
Hand-written: `submit` returns futures, whose results a thread sets. The asyncio client makes tasks instead.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Unpack, overload

from nnhal.client.core.arrays import ModelIO, Outputs
from nnhal.client.core.buffered_execution import (
    AnyOutputs,
    BufferInputs,
    BufferOutputs,
    BurstOptions,
    ExecuteOptions,
    OutputBuffers,
)
from nnhal.client.core.burst import PendingExecution
from nnhal.client.core.cache import is_session_lost
from nnhal.client.core.handles import Closeable, description
from nnhal.client.forks import forked_error, watch_forks
from nnhal.client.sync.burst_transport import RenewableBurst
from nnhal.client.sync.reconnect import ReconnectingSession
from nnhal.client.sync.result_queue import Pending, PendingResult, ResultQueue, interrupted_error
from nnhal.client.sync.reusable import RenewableModel
from nnhal.errors import HalError
from nnhal.types import AnyArray

READER_IDLE_S = 1.0
"""Seconds that the thread that reads the results of `submit` waits for more work."""


class Burst(Closeable):
    """Burst of executions. Thread safe. Close it, or use it as a context manager; closing waits for its executions.

    If its session is lost, it is opened again, and executions without buffers are repeated. It keeps the prepared model
    alive.
    """

    def __init__(self, session: ReconnectingSession, model: RenewableModel, io: ModelIO) -> None:
        self._io = io
        self._burst = RenewableBurst(session, model, io)
        self._submissions: deque[Submission] = deque()
        self._given_up_at = float("-inf")
        self._reader: threading.Thread | None = None
        # wakes the reader; a Condition may stay locked after an interrupt
        self._submitted: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._create_locks()
        self._burst.open()
        watch_forks(self)

    def _create_locks(self) -> None:
        self._settling = threading.RLock()  # re-entrant: callbacks of futures may close the burst
        self._reading = threading.Lock()

    def leave_to_parent(self) -> None:
        """Fail all submissions, because this process is a fork of the one that has sent them."""
        self._create_locks()  # threads of the parent may hold them
        self._reader = None
        for submission in self._submissions:
            submission.settle(None, forked_error())
        self._submissions.clear()

    @overload
    def execute(self, inputs: BufferInputs, *, outputs: None = None, **options: Unpack[BurstOptions]) -> Outputs: ...

    @overload
    def execute(
        self, inputs: BufferInputs, *, outputs: OutputBuffers, **options: Unpack[BurstOptions]
    ) -> BufferOutputs: ...

    def execute(
        self,
        inputs: BufferInputs,
        *,
        outputs: OutputBuffers | None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
        copy: bool = True,
    ) -> AnyOutputs:
        """Run the model and wait. Result and errors are those of `PreparedModel.execute`.

        Args:
            inputs: as for `PreparedModel.execute`, or the arrays of `inputs`.
            outputs: as for `PreparedModel.execute`.
            deadline: seconds from now.
            measure_timing: whether to fill `timing` of the result.
            copy: whether to copy the outputs. Otherwise, they may be read-only and are valid until the next call of
                this burst.
        """
        execution: Pending = PendingExecution.of(self._io, inputs, outputs, PendingResult(), deadline, measure_timing)
        execution.copy = copy
        return self._burst.execute(execution)

    @overload
    def submit(
        self, inputs: BufferInputs, *, outputs: None = None, **options: Unpack[ExecuteOptions]
    ) -> Future[Outputs]: ...

    @overload
    def submit(
        self, inputs: BufferInputs, *, outputs: OutputBuffers, **options: Unpack[ExecuteOptions]
    ) -> Future[BufferOutputs]: ...

    def submit(
        self,
        inputs: BufferInputs,
        *,
        outputs: OutputBuffers | None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
    ) -> Future[Any]:
        """Send an execution without waiting for it, unless too many are in progress. Inputs may change at once.

        Executions run in the order in which they are sent, so one may read a buffer that an earlier one writes. If the
        shape of the buffer is open, its value must be there first, because the execution that reads it gives the shape.

        Returns:
            a future of the outputs.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not match its operand; or the burst has been closed.
        """
        execution: Pending = PendingExecution.of(self._io, inputs, outputs, PendingResult(), deadline, measure_timing)
        execution.copy_arrays()  # to be sent again if the service is lost
        submission = Submission(execution, self._burst.send(execution))
        self._submissions.append(submission)
        with self._reading:
            if self._reader is None:
                reader = threading.Thread(target=self._read, name="nnhal-burst", daemon=True)
                reader.start()  # after an interrupt here, it may never run; the next call starts another one
                self._reader = reader
        self._submitted.put(None)
        return submission.future

    @property
    def inputs(self) -> list[AnyArray]:
        """An array for each input. Write the inputs of the next execution into them, and pass them to `execute`.

        On the same machine, they are in shared memory, so that nothing is copied. They belong to the next execution
        only: get them again for each one.

        Raises:
            HalError: INVALID_ARGUMENT: the model does not fix the shape of an input; or the burst has been closed.
        """
        results = self._burst.results
        try:
            return results.inputs()
        except HalError as error:
            return self._burst.repeat(lambda results: results.inputs(), results, error)

    def keep(self, array: AnyArray) -> AnyArray:
        """Return a read-only copy of an input. The bytes of the copy are sent only once, with its first use."""
        return self._burst.cached_inputs.add(array)

    def release(self, array: AnyArray) -> None:
        """Release an array of `keep`."""
        self._burst.release(array)

    def _read(self) -> None:
        """Set the results of submissions, until there are none for a while."""
        while True:
            self._settle_all()
            try:
                self._submitted.get(timeout=READER_IDLE_S)
            except queue.Empty:
                with self._reading:
                    if not self._submissions:
                        self._reader = None
                        return

    def _settle_all(self) -> None:
        """Set the results of all submissions in their order, and remove them."""
        while self._submissions:
            with self._settling:
                if not self._submissions:  # another thread has done it
                    return
                submission = self._submissions[0]
                if not submission.future.done():  # an interrupt may come between its outcome and its removal
                    self._settle(submission)
                if self._submissions and self._submissions[0] is submission:  # a callback may have closed the burst
                    self._submissions.popleft()

    def _settle(self, submission: Submission) -> None:
        execution = submission.execution
        may_repeat = submission.sent_at > self._given_up_at
        try:
            submission.settle(self._burst.result(execution, submission.results, repeat=may_repeat), None)
        except HalError as error:
            if is_session_lost(error) and execution.deadline.remaining != 0:
                self._given_up_at = time.monotonic()  # do not wait for the service again for those sent with this one
            submission.settle(None, error)
        except BaseException:
            submission.settle(None, interrupted_error())
            raise

    def close(self) -> None:
        """Wait for the executions in progress, then close the burst. A second call does nothing."""
        self._settle_all()
        self._burst.close()
        self._settle_all()

    def __repr__(self) -> str:
        return description(self, self._io.description, closed=self._burst.closed)


@dataclass(eq=False, slots=True)
class Submission:
    """Execution of `submit`.

    Attributes:
        results: the queue of its result.
        future: takes the result, once its turn has come.
        sent_at: monotonic time.
    """

    execution: Pending
    results: ResultQueue
    future: Future[Any] = field(default_factory=Future)
    sent_at: float = field(default_factory=time.monotonic)

    def settle(self, outputs: AnyOutputs | None, error: HalError | None) -> None:
        """Set the outcome, unless the future has one or was cancelled."""
        if self.future.done() or not self.future.set_running_or_notify_cancel():
            return
        if error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(outputs)
