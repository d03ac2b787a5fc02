"""PreparedModel: IPreparedModel; what is kept after preparation."""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property

from driver.buffer import Buffers, empty_outputs
from driver.cancellation import Cancellation
from driver.deadline import NO_DEADLINE, Deadline
from driver.execution import execute
from driver.extension_types import ExtensionTypes
from driver.fenced import FencedExecution, FencedLaunch
from driver.gate import Claim
from driver.memory import BoundRequest, ValidRequest
from driver.plan import Plan, Progress, Step
from driver.profiling import Spans
from driver.run_times import RunTimes
from driver.scheduler import Scheduler
from driver.validation.preparation import validate_execution_arguments, validate_hints
from driver.validation.request import ValidRequests
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

_DEFAULT_CONFIG = ExecutionConfig()
_LAUNCH = FencedLaunch()


@dataclass(frozen=True, eq=False)
class PreparedModel:
    """A model that is ready to run. Immutable; may be executed from any number of threads at once.

    Attributes:
        inputs, outputs: the operands of the main subgraph's inputs and outputs, in order.
        placement: which backend runs what.
        priority: the Priority that it was prepared with.
        buffers: the driver-managed buffers of its device.
        times: what its recent executions took.
        extension_types: what the device knows of operand types of extensions, by their number in the model.
    """

    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    placement: Placement
    priority: int
    plan: Plan
    scheduler: Scheduler
    buffers: Buffers
    times: RunTimes = field(default_factory=RunTimes)
    extension_types: ExtensionTypes = field(default_factory=dict)

    def execute_synchronously(
        self,
        request: Request,
        config: ExecutionConfig = _DEFAULT_CONFIG,
        deadline_ns: int = OMITTED,
        cancellation: Cancellation | None = None,
        owner: Hashable = None,
    ) -> ExecutionResult:
        """Validates, waits for a turn, runs on the calling thread (hal-surface 8.3).

        Args:
            request: arguments and pools.
            config: timing, loop timeout and hints. Hints are checked, and none is known.
            deadline_ns: instant of CLOCK_BOOTTIME, or -1.
            cancellation: ends the execution early from another thread.
            owner: on whose behalf; owners are served fairly.

        Raises:
            HalError: INVALID_ARGUMENT (V-REQ*, V-EXECARG*), MISSED_DEADLINE_*, GENERAL_FAILURE (V-RUN*), or
                RESOURCE_EXHAUSTED_* (memory is short, a tensor is larger than the device allows).
        """
        started_ns = time.perf_counter_ns()
        valid = self.validate(request, config)
        return self.execute_valid(valid, config, deadline_ns, cancellation or Cancellation(), owner, started_ns)

    def execute_fenced(
        self, request: Request, config: ExecutionConfig = _DEFAULT_CONFIG, launch: FencedLaunch = _LAUNCH
    ) -> FencedExecution:
        """Validates and returns; runs on a worker when all fences have signalled (hal-surface 9.9).

        Args:
            request, config: as for `execute_synchronously`. Outputs are fully specified, and none lies in a
                ReturnedPool.
            launch: fences to wait for, none of them in error; deadline and duration.

        Returns:
            the execution. Its fence is signalled when the outputs are there.

        Raises:
            HalError: as `execute_synchronously`; what fails after the launch sets the fence to error.
        """
        return self.launch_valid(self.validate(request, config, fenced=True), config, launch)

    # ---- Requests that have been validated --------------------------------------------------------------

    def validate(self, request: Request, config: ExecutionConfig, *, fenced: bool = False) -> ValidRequest:
        """Judges what is the same for every run of a request.

        Returns:
            the request, holding the buffers that its tokens name: what is to be run.

        Raises:
            HalError: INVALID_ARGUMENT (V-REQ*, V-TOKEN*, V-EXECARG*, V-EXT*).
        """
        validate_execution_arguments(OMITTED, config.loop_timeout_duration_ns)
        validate_hints(config.execution_hints, config.extension_name_to_prefix)
        self._valid_requests.hold(request, fenced=fenced)
        return ValidRequest.of(self.buffers.held(self, request), self.inputs, self.outputs)

    def execute_valid(
        self,
        request: ValidRequest,
        config: ExecutionConfig,
        deadline_ns: int,
        cancellation: Cancellation,
        owner: Hashable,
        started_ns: int,
    ) -> ExecutionResult:
        """`execute_synchronously` of a valid request. `started_ns`: time.perf_counter_ns() of the call."""
        deadline = NO_DEADLINE
        if deadline_ns != OMITTED:
            validate_execution_arguments(deadline_ns, OMITTED)
            deadline = Deadline(deadline_ns)
        try:
            if deadline is not NO_DEADLINE:
                deadline.check_on_arrival("the execution")
            with self.scheduler.gate.pass_(self.claim(deadline, owner), cancellation):
                return self.run(request, config, deadline, cancellation, started_ns)
        except BaseException:
            empty_outputs(request)
            raise

    def launch_valid(
        self,
        request: ValidRequest,
        config: ExecutionConfig,
        launch: FencedLaunch,
        over: Callable[[], None] | None = None,
    ) -> FencedExecution:
        """`execute_fenced` of a valid request. `over`: is called just before the fence ends, if nothing is raised."""
        if config.profile:  # nobody would get the spans
            config = replace(config, profile=False)
        execution = FencedExecution(self, request, config, launch)
        try:
            execution.launch(over)
        except BaseException:
            empty_outputs(request)
            raise
        return execution

    def claim(self, deadline: Deadline, owner: Hashable) -> Claim:
        """What an execution asks the gate for."""
        needed_ns = self.times.least_ns() if deadline.at_ns != OMITTED and self._takes_alike else 0
        return Claim(self.priority, deadline, owner, needed_ns)

    def run(
        self,
        request: ValidRequest,
        config: ExecutionConfig,
        deadline: Deadline,
        cancellation: Cancellation,
        started_ns: int,
    ) -> ExecutionResult:
        """Runs a valid request on the calling thread, which has its turn.

        Raises:
            HalError: the execution failed; what the outputs hold is undefined.
        """
        timeout = config.loop_timeout_duration_ns
        loop_timeout_ns = DEFAULT_LOOP_TIMEOUT_NS if timeout == OMITTED else timeout
        progress = Progress(deadline, cancellation, loop_timeout_ns, Spans() if config.profile else None)
        before = time.perf_counter_ns()
        try:
            bound = BoundRequest(request, self.outputs, private=not self.plan.copies_inputs)
            result = execute(self.plan, bound, progress, config.measure_timing, started_ns)
        except MemoryError as error:
            raise out_of_memory("the execution", error) from None
        self.times.add(time.perf_counter_ns() - before)
        return result

    @cached_property
    def _valid_requests(self) -> ValidRequests:
        return ValidRequests(self.inputs, self.outputs, self.extension_types)

    @cached_property
    def _takes_alike(self) -> bool:
        """Whether every execution does the same work, so that past ones tell what the next one takes."""
        base = not any(is_extension(operand.type) for operand in self.inputs)
        fixed = base and all(is_fully_specified(operand.type, operand.dimensions) for operand in self.inputs)
        return fixed and all(isinstance(node, Step) for node in self.plan.nodes)  # the others are IF and WHILE
