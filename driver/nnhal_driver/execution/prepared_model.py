"""Prepared models (IPreparedModel)."""

import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property

from nnhal.errors import HalError, out_of_memory
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
from nnhal_driver.backends.boundary.isolation import is_isolated
from nnhal_driver.execution.buffer import ReserveMemory, reserve_nothing
from nnhal_driver.execution.buffer_table import BufferTable
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.executor import execute_plan
from nnhal_driver.execution.fenced_execution import FencedArguments, FencedExecution
from nnhal_driver.execution.plan import PartitionNode, Plan, RunContext
from nnhal_driver.execution.profiling_contexts import ProfilingContexts
from nnhal_driver.execution.request_binding import BoundRequest, ValidRequest
from nnhal_driver.extension_types import ExtensionTypes
from nnhal_driver.scheduling.current_work import CurrentWork, current_work
from nnhal_driver.scheduling.deadline import NO_DEADLINE, Deadline
from nnhal_driver.scheduling.latency_history import LatencyHistory
from nnhal_driver.scheduling.scheduler import Scheduler
from nnhal_driver.scheduling.ticket import AdmissionRequest
from nnhal_driver.validation.preparation import validate_execution_arguments, validate_hints
from nnhal_driver.validation.request import RequestValidator

DEFAULT_CONFIG = ExecutionConfig()
"""Options of an execution whose caller has none. They need no validation."""
_SLOW_S = 0.1
"""Seconds, besides twice its usual time, after which an execution of a plug-in gives up its slot."""


@dataclass(frozen=True, eq=False)
class PreparedModel:
    """A model that is ready to run. Immutable; any number of threads may execute it at once.

    Attributes:
        inputs, outputs: the operands of the main subgraph's inputs and outputs, in order.
        priority: the `Priority` that it was prepared with.
        extension_types: operand types of extensions that the device knows, by their number in the model.
        loaded_from: identity of the cache files that it was loaded from; None if it was compiled.
        activities: table of the work in progress; None if it is not recorded.
        estimated_ns: rough upper estimate of the duration of an execution; 0 if unknown.
        digest: digest of the model, see `nnhal.model_digest`; b"" if it is unknown.
        name: name and version by which clients know it, for example "detector/3"; "" if it has none.
        subject: model and client in the table: see `subject_of`.
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
    name: str = ""
    subject: bytes = b""
    device: str = ""
    activities: ActivityTable | None = None
    estimated_ns: int = 0
    reserve: ReserveMemory = reserve_nothing
    size: int = 0

    def execute_synchronously(
        self,
        request: Request,
        config: ExecutionConfig = DEFAULT_CONFIG,
        call: ExecutionCall | None = None,
    ) -> ExecutionResult:
        """Validate a request, wait for a slot and run it on the calling thread (hal-surface 8.3).

        Hints of the configuration are validated; the driver knows none. The call receives the times.

        Raises:
            HalError: INVALID_ARGUMENT (V-REQ*, V-EXECARG*), MISSED_DEADLINE_*, GENERAL_FAILURE (V-RUN*), or
                RESOURCE_EXHAUSTED_* (out of memory, or a tensor is larger than the device allows).
        """
        call = call or ExecutionCall()
        return self.execute_valid(self.validate_execution(request, config), config, call)

    def execute_fenced(
        self,
        request: Request,
        config: ExecutionConfig = DEFAULT_CONFIG,
        arguments: FencedArguments | None = None,
    ) -> FencedExecution:
        """Validate a request and run it on a worker when all fences have signalled (hal-surface 9.9).

        Outputs must be fully specified and not in a ReturnedPool, and no fence to wait for may be in error. The fence
        of the execution is signalled when the outputs are written.

        Raises:
            HalError: as for `execute_synchronously`. Failures after the launch set the fence to error.
        """
        arguments = arguments or FencedArguments()
        return self.launch_valid(self.validate_execution(request, config, fenced=True), config, arguments)

    # ---- Validated requests -----------------------------------------------------------------------------

    def validate(self, request: Request, config: ExecutionConfig, *, fenced: bool = False) -> ValidRequest:
        """Check everything that is the same for each run of a request.

        Returns:
            the request with its buffers resolved, ready to run.

        Raises:
            HalError: INVALID_ARGUMENT (V-REQ*, V-TOKEN*, V-EXECARG*, V-EXT*).
        """
        if config is not DEFAULT_CONFIG:
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
            self.clear_outputs(request)
            raise

    def clear_outputs(self, request: Request) -> None:
        """Make the output buffers of a failed execution uninitialized, also of one that was rejected."""
        self.buffers.clear_outputs(self, request)

    def execute_valid(self, request: ValidRequest, config: ExecutionConfig, call: ExecutionCall) -> ExecutionResult:
        """Execute a valid request like `execute_synchronously`."""
        deadline = NO_DEADLINE
        try:
            if call.deadline_ns != OMITTED:
                validate_execution_arguments(call.deadline_ns, OMITTED)
                deadline = Deadline(call.deadline_ns)
                deadline.check_on_arrival("the execution")
            if config.profile or call.spans is not None:
                call.note_decoded(profile=config.profile)
            admission = self.admission_request(deadline, call.owner)
            with self.scheduler.admission.admit(admission, call.cancellation) as slot:
                if call.spans is not None:
                    call.spans.begin(call.received_ns)
                call.slot = slot
                if slot.queued_ns:
                    call.queued_ns = slot.wait_ns
                return self.run(request, config, call, deadline, slot.release)
        except BaseException:
            self.clear_outputs(request)
            raise

    def launch_valid(
        self,
        request: ValidRequest,
        config: ExecutionConfig,
        arguments: FencedArguments,
        on_done: Callable[[], None] | None = None,
    ) -> FencedExecution:
        """Launch a valid request like `execute_fenced`. `on_done` is as for `FencedExecution.launch`."""
        with self.clearing_outputs(request):
            execution = FencedExecution(self, request, config, arguments)
            execution.launch(on_done)
        return execution

    def admission_request(self, deadline: Deadline, owner: Hashable) -> AdmissionRequest:
        """Return the request for a slot of an execution."""
        min_run_ns = self.latencies.min_ns() if deadline.at_ns != OMITTED and self._has_constant_work else 0
        # the work of loops and of dynamic shapes is not estimated
        usual_ns = self.latencies.usual_ns or (self.estimated_ns if self._has_constant_work else 0)
        return AdmissionRequest(self.priority, deadline, owner, min_run_ns, usual_ns)

    def run(
        self,
        request: ValidRequest,
        config: ExecutionConfig,
        call: ExecutionCall,
        deadline: Deadline,
        release_slot: Callable[[], None],
    ) -> ExecutionResult:
        """Run a valid request on the calling thread, which has a slot.

        If the call has a recorder of spans, that has begun. The deadline is that of the call; of a fenced execution,
        perhaps that of its duration. `release_slot`: see `execute_plan`.

        Raises:
            HalError: the execution failed. The contents of the outputs are undefined.
        """
        if call.observer is not None:
            observer, call.observer = call.observer, None
            return observer.observe(request, lambda: self.run(request, config, call, deadline, release_slot))
        timeout = config.loop_timeout_duration_ns
        loop_timeout_ns = DEFAULT_LOOP_TIMEOUT_NS if timeout == OMITTED else timeout
        spans = call.spans
        context = RunContext(deadline, call.cancellation, loop_timeout_ns, spans, slot=call.slot)
        started_ns = call.received_ns if config.measure_timing else None
        activities, record = self.activities, None
        if activities is not None:
            expected_ns = max(self.estimated_ns, self.latencies.max_ns)
            record = activities.begin(EXECUTING, self.subject, deadline.at_ns, call.cancellation, expected_ns)
        before = time.perf_counter_ns()
        token = current_work.set(self._plugin_work(context, release_slot)) if self._uses_plugins else None
        try:
            profiled = spans if spans is not None and spans.operations else None
            with nullcontext() if profiled is None else self.profiling.execution(profiled):
                # the pools are allocated as a whole, touched or not; the reservation ends with this call
                _reservation = self.reserve(request.returned_bytes) if request.returned_bytes else None
                plan = self.plan
                is_private, memories, check = not plan.copies_inputs, plan.memories, context.check
                bound = BoundRequest(request, self.outputs, private=is_private, memories=memories, check=check)
                result = execute_plan(plan, bound, context, started_ns, release_slot)
        except MemoryError as error:
            raise out_of_memory("the execution", error) from None
        except HalError:
            self.latencies.add_failure(time.perf_counter_ns() - before)
            raise
        finally:
            paused_ns = 0 if call.slot is None else call.slot.paused_ns
            call.device_ns = elapsed_ns = time.perf_counter_ns() - before - paused_ns
            if token is not None:
                current_work.reset(token)
            if activities is not None:
                activities.end(record)
        self.latencies.add(elapsed_ns)
        if spans is None:
            return result
        if not config.profile:  # they are for the caller of the driver, not for the client
            return replace(result, spans=(), dropped_spans=0)
        return replace(result, spans=spans.all(), dropped_spans=spans.dropped)

    def _plugin_work(self, context: RunContext, release_slot: Callable[[], None]) -> CurrentWork:
        """Return an execution as plug-ins delay it. If it takes longer than usual, others get its slot."""
        usual_s = self.latencies.max_ns / 1e9
        slow_at = time.monotonic() + _SLOW_S + 2 * usual_s

        def give_way() -> None:
            if time.monotonic() > slow_at:
                release_slot()

        return CurrentWork(context.check, give_way, usual_s)

    @property
    def extension_names(self) -> Mapping[int, str]:
        """Names of the extensions that the model uses, by prefix."""
        return self.plan.graph.extensions

    @cached_property
    def _validator(self) -> RequestValidator:
        return RequestValidator(self.inputs, self.outputs, self.extension_types)

    @cached_property
    def _uses_plugins(self) -> bool:
        """True if a plug-in may delay executions."""
        return any(map(is_isolated, self.profiling.backends))

    @cached_property
    def _has_constant_work(self) -> bool:
        """True if every execution does the same work, so that past latencies predict the next one."""
        fixed = all(not is_extension(o.type) and is_fully_specified(o.type, o.dimensions) for o in self.inputs)
        return fixed and all(isinstance(node, PartitionNode) for node in self.plan.nodes)  # not IF or WHILE
