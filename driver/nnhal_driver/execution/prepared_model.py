"""Prepared models (IPreparedModel)."""

import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property

from nnhal.errors import out_of_memory
from nnhal.types import (
    DEFAULT_LOOP_TIMEOUT_NS,
    OMITTED,
    ExecutionConfig,
    ExecutionResult,
    Operand,
    Placement,
    Request,
    is_extension,
    is_fully_specified,
)
from nnhal_driver.activity import EXECUTING, ActivityTable
from nnhal_driver.execution.buffer import ReserveMemory, reserve_nothing
from nnhal_driver.execution.buffer_table import BufferTable
from nnhal_driver.execution.executor import execute_plan
from nnhal_driver.execution.fenced_execution import FencedArguments, FencedExecution
from nnhal_driver.execution.plan import PartitionNode, Plan, RunContext
from nnhal_driver.execution.profiling import ExecutionTimes, SpanRecorder
from nnhal_driver.execution.profiling_contexts import ProfilingContexts
from nnhal_driver.execution.request_binding import BoundRequest, ValidRequest
from nnhal_driver.extension_types import ExtensionTypes
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import NO_DEADLINE, Deadline
from nnhal_driver.scheduling.latency_history import LatencyHistory
from nnhal_driver.scheduling.scheduler import Scheduler
from nnhal_driver.scheduling.ticket import AdmissionRequest
from nnhal_driver.validation.preparation import validate_execution_arguments, validate_hints
from nnhal_driver.validation.request import RequestValidator

_DEFAULT_CONFIG = ExecutionConfig()
_DEFAULT_ARGUMENTS = FencedArguments()


@dataclass(frozen=True, eq=False)
class PreparedModel:
    """A model that is ready to run. Immutable; any number of threads may execute it at once.

    Attributes:
        inputs, outputs: the operands of the main subgraph's inputs and outputs, in order.
        placement: the backend of each partition.
        priority: the `Priority` that it was prepared with.
        plan: the compiled main subgraph.
        scheduler: the scheduler of its device.
        buffers: the driver-managed buffers of its device.
        latencies: latencies of its recent executions.
        profiling: the profiling contexts of its device.
        extension_types: operand types of extensions that the device knows, by their number in the model.
        loaded_from: identity of the cache files that it was loaded from; None if it was compiled.
        activities: table of the work in progress; None if it is not recorded.
        estimated_ns: rough upper estimate of the duration of an execution; 0 if unknown.
        digest: digest of the model, see `nnhal.model_digest`; b"" if it is unknown.
        device: name of its device.
        reserve: reserves memory of the client for an execution.
        size: bytes that were reserved for the model; 0 if unknown. The memory of its engine is apart.
    """

    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    placement: Placement
    priority: int
    plan: Plan
    scheduler: Scheduler
    buffers: BufferTable
    latencies: LatencyHistory = field(default_factory=LatencyHistory)
    profiling: ProfilingContexts = field(default_factory=ProfilingContexts)
    extension_types: ExtensionTypes = field(default_factory=dict)
    loaded_from: Hashable = None
    digest: bytes = b""
    device: str = ""
    activities: ActivityTable | None = None
    estimated_ns: int = 0
    reserve: ReserveMemory = reserve_nothing
    size: int = 0

    def execute_synchronously(
        self,
        request: Request,
        config: ExecutionConfig = _DEFAULT_CONFIG,
        deadline_ns: int = OMITTED,
        cancellation: Cancellation | None = None,
        owner: Hashable = None,
        times: ExecutionTimes | None = None,
    ) -> ExecutionResult:
        """Validate a request, wait for a slot and run it on the calling thread (hal-surface 8.3).

        Args:
            request: arguments and pools.
            config: timing, loop timeout and hints. Hints are validated; the driver knows none.
            deadline_ns: instant of CLOCK_BOOTTIME, or -1.
            cancellation: ends the execution early from another thread.
            owner: the client on whose behalf it runs; owners are served fairly.
            times: receives the times of the execution.

        Raises:
            HalError: INVALID_ARGUMENT (V-REQ*, V-EXECARG*), MISSED_DEADLINE_*, GENERAL_FAILURE (V-RUN*), or
                RESOURCE_EXHAUSTED_* (out of memory, or a tensor is larger than the device allows).
        """
        started_ns = time.perf_counter_ns()
        valid = self.validate_execution(request, config)
        return self.execute_valid(valid, config, deadline_ns, cancellation or Cancellation(), owner, started_ns, times)

    def execute_fenced(
        self,
        request: Request,
        config: ExecutionConfig = _DEFAULT_CONFIG,
        arguments: FencedArguments = _DEFAULT_ARGUMENTS,
    ) -> FencedExecution:
        """Validate a request and run it on a worker when all fences have signalled (hal-surface 9.9).

        Args:
            request: as for `execute_synchronously`. Outputs must be fully specified and not in a ReturnedPool.
            config: as for `execute_synchronously`.
            arguments: fences to wait for, none of them in error; deadline and duration.

        Returns:
            the execution. Its fence is signalled when the outputs are written.

        Raises:
            HalError: as for `execute_synchronously`. Failures after the launch set the fence to error.
        """
        return self.launch_valid(self.validate_execution(request, config, fenced=True), config, arguments)

    # ---- Validated requests -----------------------------------------------------------------------------

    def validate(self, request: Request, config: ExecutionConfig, *, fenced: bool = False) -> ValidRequest:
        """Check everything that is the same for each run of a request.

        Returns:
            the request with its buffers resolved, ready to run.

        Raises:
            HalError: INVALID_ARGUMENT (V-REQ*, V-TOKEN*, V-EXECARG*, V-EXT*).
        """
        if config is not _DEFAULT_CONFIG:
            validate_execution_arguments(OMITTED, config.loop_timeout_duration_ns)
            validate_hints(config.execution_hints, config.extension_name_to_prefix)
        form = self._validator.validate(request, fenced=fenced)
        resolved = self.buffers.resolve(self, request)
        if isinstance(form.bound, ValidRequest):
            return form.bound.with_pools(resolved.pools)
        valid = ValidRequest.bind(resolved, self.inputs, self.outputs)
        form.bound = valid.with_pools(())
        return valid

    def validate_execution(self, request: Request, config: ExecutionConfig, *, fenced: bool = False) -> ValidRequest:
        """Check the request of an execution like `validate`. An invalid one is an execution that fails at once.

        Raises:
            HalError: as for `validate`. The output buffers of the request are then uninitialized.
        """
        with self.clearing_outputs(request):
            return self.validate(request, config, fenced=fenced)

    @contextmanager
    def clearing_outputs(self, request: Request) -> Iterator[None]:
        """Make the output buffers of an execution uninitialized if the body fails."""
        try:
            yield
        except BaseException:
            self.buffers.clear_outputs(self, request)
            raise

    def execute_valid(
        self,
        request: ValidRequest,
        config: ExecutionConfig,
        deadline_ns: int,
        cancellation: Cancellation,
        owner: Hashable,
        started_ns: int,
        times: ExecutionTimes | None = None,
    ) -> ExecutionResult:
        """Execute a valid request like `execute_synchronously`.

        Args:
            request: the request.
            config: as for `execute_synchronously`.
            deadline_ns: as for `execute_synchronously`.
            cancellation: as for `execute_synchronously`.
            owner: as for `execute_synchronously`.
            started_ns: time.perf_counter_ns() of the call.
            times: receives the times of the execution.
        """
        deadline = NO_DEADLINE
        try:
            if deadline_ns != OMITTED:
                validate_execution_arguments(deadline_ns, OMITTED)
                deadline = Deadline(deadline_ns)
            if deadline is not NO_DEADLINE:
                deadline.check_on_arrival("the execution")
            spans = None
            if config.profile or (times is not None and times.spans is not None):
                spans = (times or ExecutionTimes()).recorder(profile=config.profile)
            with self.scheduler.admission.admit(self.admission_request(deadline, owner), cancellation) as slot:
                if spans is not None:
                    spans.begin(started_ns)
                if times is not None and slot.queued_ns:
                    times.queued_ns = slot.wait_ns
                return self.run(request, config, deadline, cancellation, started_ns, slot.release, spans, times)
        except BaseException:
            self.buffers.clear_outputs(self, request)
            raise

    def launch_valid(
        self,
        request: ValidRequest,
        config: ExecutionConfig,
        arguments: FencedArguments,
        on_done: Callable[[], None] | None = None,
    ) -> FencedExecution:
        """Launch a valid request like `execute_fenced`.

        Args:
            request: the request.
            config: as for `execute_synchronously`.
            arguments: as for `execute_fenced`.
            on_done: called just before the fence ends, unless the launch raises.
        """
        with self.clearing_outputs(request):
            execution = FencedExecution(self, request, config, arguments)
            execution.launch(on_done)
        return execution

    def admission_request(self, deadline: Deadline, owner: Hashable) -> AdmissionRequest:
        """Return the request for a slot of an execution."""
        min_run_ns = self.latencies.min_ns() if deadline.at_ns != OMITTED and self._has_constant_work else 0
        return AdmissionRequest(self.priority, deadline, owner, min_run_ns)

    def run(
        self,
        request: ValidRequest,
        config: ExecutionConfig,
        deadline: Deadline,
        cancellation: Cancellation,
        started_ns: int,
        release_slot: Callable[[], None],
        spans: SpanRecorder | None = None,
        times: ExecutionTimes | None = None,
    ) -> ExecutionResult:
        """Run a valid request on the calling thread, which has a slot.

        Args:
            request: the request.
            config: as for `execute_synchronously`.
            deadline: the deadline.
            cancellation: as for `execute_synchronously`.
            started_ns: as for `execute_valid`.
            release_slot: see `execute_plan`.
            spans: the recorder of a profiled execution, which has begun.
            times: receives the running time.

        Raises:
            HalError: the execution failed. The contents of the outputs are undefined.
        """
        timeout = config.loop_timeout_duration_ns
        loop_timeout_ns = DEFAULT_LOOP_TIMEOUT_NS if timeout == OMITTED else timeout
        context = RunContext(deadline, cancellation, loop_timeout_ns, spans)
        activities, record = self.activities, None
        if activities is not None:
            expected_ns = max(self.estimated_ns, self.latencies.max_ns)
            record = activities.begin(EXECUTING, self.digest, deadline.at_ns, cancellation, expected_ns)
        before = time.perf_counter_ns()
        try:
            profiled = spans if spans is not None and spans.operations else None
            with nullcontext() if profiled is None else self.profiling.execution(profiled):
                # the pools are allocated as a whole, touched or not; the reservation ends with this call
                _reservation = self.reserve(request.returned_bytes) if request.returned_bytes else None
                bound = BoundRequest(request, self.outputs, private=not self.plan.copies_inputs)
                result = execute_plan(self.plan, bound, context, config.measure_timing, started_ns, release_slot)
        except MemoryError as error:
            raise out_of_memory("the execution", error) from None
        finally:
            elapsed_ns = time.perf_counter_ns() - before
            if times is not None:
                times.device_ns = elapsed_ns
            if activities is not None:
                activities.end(record)
        self.latencies.add(elapsed_ns)
        if spans is None:
            return result
        if not config.profile:  # they are for the caller of the driver, not for the client
            return replace(result, spans=(), dropped_spans=0)
        return replace(result, spans=spans.all(), dropped_spans=spans.dropped)

    @property
    def extension_names(self) -> Mapping[int, str]:
        """Names of the extensions that the model uses, by prefix."""
        return self.plan.graph.extensions

    @cached_property
    def _validator(self) -> RequestValidator:
        return RequestValidator(self.inputs, self.outputs, self.extension_types)

    @cached_property
    def _has_constant_work(self) -> bool:
        """True if every execution does the same work, so that past latencies predict the next one."""
        fixed = all(not is_extension(o.type) and is_fully_specified(o.type, o.dimensions) for o in self.inputs)
        return fixed and all(isinstance(node, PartitionNode) for node in self.plan.nodes)  # not IF or WHILE
