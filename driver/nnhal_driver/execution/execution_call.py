"""Record of one execution that travels from its caller down to the plan."""

import time
from collections.abc import Callable, Hashable
from typing import Protocol

from nnhal.types import OMITTED, ExecutionResult
from nnhal_driver.execution.profiling import SpanRecorder
from nnhal_driver.execution.request_binding import ValidRequest
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.ticket import Slot
from nnhal_driver.scheduling.work_times import WorkTimes


class ExecutionObserver(Protocol):
    """Observer of an execution, which sees its request with all values, and its result."""

    def observe(self, request: ValidRequest, run: Callable[[], ExecutionResult]) -> ExecutionResult:
        """Run an execution that has its slot, and return its result. What it raises goes to its caller."""


class ExecutionCall(WorkTimes):
    """One execution: the conditions that its caller sets, and its times, which the driver fills in.

    Attributes:
        received_ns: time.perf_counter_ns() of the call.
        deadline_ns: instant of CLOCK_BOOTTIME by which it must be done; -1: none.
        cancellation: ends it early from another thread.
        owner: the client on whose behalf it runs; owners are served fairly.
        spans: recorder of its spans. None: neither its caller nor its configuration asks for them.
        observer: observes it when it runs; None for most.
        slot: its slot, as far as it takes turns.
        is_joined: whether it was a part of the execution of another call.
    """

    owner: Hashable = None
    spans: SpanRecorder | None = None
    observer: ExecutionObserver | None = None
    slot: Slot | None = None
    is_joined: bool = False

    def __init__(self, deadline_ns: int = OMITTED, cancellation: Cancellation | None = None) -> None:
        self.received_ns = time.perf_counter_ns()
        self.deadline_ns = deadline_ns
        self.cancellation = cancellation or Cancellation()

    def note_decoded(self, *, profile: bool) -> None:
        """Note that the call has been decoded, and begins to wait for its slot.

        `profile`: whether the configuration asks for spans, of operations too.
        """
        if self.spans is not None:
            self.spans.operations = self.spans.operations or profile
            self.spans.note_decoded()
        elif profile:
            self.spans = SpanRecorder()
