"""Batching: executions of a model that wait at the same time run as one, their values one after another.

The first execution of a batch leads it: it waits for others until its delay has passed or the batch is full, and then
for a slot. Meanwhile others join. Its thread runs the batch, and each execution takes its part of the outputs. Only
executions of one client and one priority join. If a batch fails, each of its executions runs alone.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace

import numpy as np

from nnhal.errors import HalError, exception_text, missed_deadline
from nnhal.types import OMITTED, AnyArray, ExecutionConfig, ExecutionResult
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.executor import deliver
from nnhal_driver.execution.prepared_model import DEFAULT_CONFIG, PreparedModel
from nnhal_driver.execution.request_binding import BoundRequest, ValidRequest
from nnhal_driver.execution.returned_values import returned_arrays, returned_request
from nnhal_driver.scheduling.admission import BlockingTicket
from nnhal_driver.scheduling.deadline import NO_DEADLINE, Deadline
from nnhal_driver.scheduling.share import share_of

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class _Member:
    """An execution that may join others.

    Attributes:
        inputs: its values.
        entered_ns: time.perf_counter_ns() at which it began to wait.
        turn: set when it is to go on: as the leader, with its outputs or an error, or alone.
        outputs: its part of the outputs; None if it has none, and must run alone.
    """

    inputs: Sequence[AnyArray]
    deadline: Deadline
    call: ExecutionCall
    entered_ns: int = field(default_factory=time.perf_counter_ns)
    turn: threading.Event = field(default_factory=threading.Event)
    leads: bool = False
    outputs: Sequence[AnyArray] | None = None
    error: HalError | None = None
    device_ns: int = 0


class Batcher:
    """Executions of one model that wait for others. Thread safe.

    Args:
        models: the model for several items at once, by their number.
        delay_s: seconds that an execution waits for others.

    Attributes:
        batches, joined: number of batches of several executions, and of executions in them.
    """

    def __init__(self, models: Mapping[int, PreparedModel], delay_s: float) -> None:
        self.models = models
        self.batches = self.joined = 0
        self._sizes = (*sorted(models, reverse=True), 1)
        self._delay_s = delay_s
        self._groups: dict[Hashable, deque[_Member]] = {}
        self._lock = threading.Lock()

    def has_time(self, deadline: Deadline) -> bool:
        """Return whether an execution that waits for others is probably done before its deadline."""
        remaining_s = deadline.remaining_s()
        return remaining_s is None or remaining_s > self._delay_s + self.models[self._sizes[0]].latencies.max_ns / 1e9

    def enter(self, key: Hashable, member: _Member) -> None:
        """Wait until an execution leads a batch, or has been in one.

        Raises:
            HalError: it was cancelled, or its deadline has passed.
        """
        with self._lock:
            group = self._groups.setdefault(key, deque())
            group.append(member)
            member.leads = len(group) == 1
            if len(group) >= self._sizes[0]:
                group[0].turn.set()
        if not member.leads:
            self._follow(key, member)
        if member.leads:
            self._gather(key, member)

    def _follow(self, key: Hashable, member: _Member) -> None:
        cancellation = member.call.cancellation

        def cancel() -> None:
            self._withdraw(key, member, cancellation.error())

        cancellation.on_cancel(cancel)
        try:
            if not member.turn.wait(member.deadline.remaining_s()):
                self._withdraw(key, member, missed_deadline("the deadline passed before the execution began"))
                member.turn.wait()
        finally:
            cancellation.off_cancel(cancel)
        if member.error is not None:
            raise member.error

    def _withdraw(self, key: Hashable, member: _Member, error: HalError) -> None:
        """End the wait of an execution with an error, unless it leads a batch or is in one that runs."""
        with self._lock:
            group = self._groups.get(key, ())
            if member in group and not member.leads:
                self._groups[key].remove(member)
                member.error = error
                member.turn.set()

    def _gather(self, key: Hashable, leader: _Member) -> None:
        """Wait for others, as long as the delay of the leader says."""
        with self._lock:
            leader.turn.clear()
            is_full = len(self._groups[key]) >= self._sizes[0]
        waited_s = (time.perf_counter_ns() - leader.entered_ns) / 1e9
        if not is_full and waited_s < self._delay_s:
            leader.turn.wait(self._delay_s - waited_s)

    def take(self, key: Hashable) -> list[_Member]:
        """Return the executions of the batch of a leader, which runs now. The next one leads those that are left."""
        with self._lock:
            group = self._groups[key]
            size = next(size for size in self._sizes if size <= len(group))
            members = [group.popleft() for _ in range(size)]
            self._lead_next(key, group)
            if size > 1:
                self.batches += 1
                self.joined += size
        return members

    def leave(self, key: Hashable, leader: _Member) -> None:
        """Let another execution lead the batch of a leader that has failed."""
        with self._lock:
            group = self._groups.get(key)
            if group and group[0] is leader:
                group.popleft()
                self._lead_next(key, group)

    def _lead_next(self, key: Hashable, group: deque[_Member]) -> None:
        if group:
            group[0].leads = True
            group[0].turn.set()
        else:
            del self._groups[key]


@contextmanager
def _counted(call: ExecutionCall) -> Iterator[None]:
    """Count an execution against the quotas of its client while it waits for others."""
    share = share_of(call.owner)
    if share is None:
        yield
        return
    share.require_time()
    if share.executions is not None:
        share.begin_execution()
    try:
        yield
    finally:
        if share.executions is not None:
            share.end_execution()


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchedModel(PreparedModel):
    """A prepared model whose executions may join. All clients share the batcher.

    An execution runs alone if it is fenced, traced or profiled, omits an argument, or has inputs of another shape.

    Attributes:
        item_shapes: shapes of the inputs of an execution that may join.
    """

    item_shapes: tuple[tuple[int, ...], ...]
    batcher: Batcher

    @staticmethod
    def of(prepared: PreparedModel, shapes: tuple[tuple[int, ...], ...], batcher: Batcher) -> "BatchedModel":
        """Return a prepared model with a batcher."""
        same = {each.name: getattr(prepared, each.name) for each in fields(PreparedModel)}
        return BatchedModel(**same, item_shapes=shapes, batcher=batcher)

    def execute_valid(self, request: ValidRequest, config: ExecutionConfig, call: ExecutionCall) -> ExecutionResult:
        """Execute a valid request like a prepared model, perhaps with others."""
        if not self._may_join(request, config, call):
            return super().execute_valid(request, config, call)
        with self.clearing_outputs(request):
            _reservation = self.reserve(request.returned_bytes) if request.returned_bytes else None
            bound = BoundRequest(request, self.outputs, private=False)  # a batch has copies
            member = _Member(
                [array for array in bound.inputs if isinstance(array, np.ndarray)], Deadline(call.deadline_ns), call
            )
            key = (self.subject, self.priority)
            with _counted(call):
                self.batcher.enter(key, member)
            if member.leads:
                self._lead(key, member)
            if member.outputs is not None:
                started_ns = call.received_ns if config.measure_timing else None
                for output, value in zip(bound.outputs, member.outputs, strict=True):
                    output.write(value, keep=True)
                return deliver(bound, member.device_ns, started_ns)
            del bound, _reservation
        return super().execute_valid(request, config, call)

    def _may_join(self, request: ValidRequest, config: ExecutionConfig, call: ExecutionCall) -> bool:
        shapes = tuple(binding and binding.dimensions for binding in request.input_bindings)
        return (
            shapes == self.item_shapes
            and None not in request.output_bindings
            and config.loop_timeout_duration_ns == OMITTED
            and not config.profile
            and call.spans is None
            and call.deadline_ns >= OMITTED
            and self.batcher.has_time(Deadline(call.deadline_ns))
        )

    def _lead(self, key: Hashable, leader: _Member) -> None:
        """Run the batch of a leader when there is a slot, unless it is alone in it."""
        call = leader.call
        try:
            request = self.admission_request(leader.deadline, call.owner)
            with self.scheduler.admission.admit(request, call.cancellation) as slot:
                members = self.batcher.take(key)
                try:
                    if len(members) > 1:
                        self._run(members, slot)
                finally:
                    for member in members:
                        member.turn.set()
        except BaseException:
            self.batcher.leave(key, leader)
            raise

    def _run(self, members: Sequence[_Member], slot: BlockingTicket) -> None:
        """Run several executions as one, and give each its outputs and times. If that fails, they have none."""
        count, started_ns = len(members), time.perf_counter_ns()
        model = self.batcher.models[count]
        joined = replace(model, subject=self.subject)  # `model` has a cache of valid requests
        call = ExecutionCall()
        call.slot = slot
        try:
            values = [np.concatenate(arrays) for arrays in zip(*(member.inputs for member in members), strict=True)]
            request = returned_request(model, values, [value.shape for value in values])
            result = joined.run(request, DEFAULT_CONFIG, call, NO_DEADLINE, slot.release)
            parts = [np.split(array, count) for array in returned_arrays(model, result)]
        except Exception as error:
            _log.warning("a batch of %d executions failed, and each runs alone: %s", count, exception_text(error))
            return
        for member, outputs in zip(members, zip(*parts, strict=True), strict=True):
            member.outputs, member.device_ns = outputs, call.device_ns
            member.call.is_joined = not member.leads
            member.call.queued_ns, member.call.device_ns = started_ns - member.entered_ns, call.device_ns // count
