"""PreparedModel: IPreparedModel; what is kept after preparation."""

import time
from dataclasses import dataclass

from driver.cancellation import Cancellation
from driver.deadline import Deadline
from driver.execution import execute
from driver.memory import BoundRequest
from driver.plan import Plan, Progress
from driver.scheduler import Gate
from driver.validation.preparation import validate_execution_arguments, validate_hints
from driver.validation.request import validate_request
from nnhal.errors import out_of_memory
from nnhal.types import DEFAULT_LOOP_TIMEOUT_NS, OMITTED, ExecutionConfig, ExecutionResult, Operand, Placement, Request

_DEFAULT_CONFIG = ExecutionConfig()


@dataclass(frozen=True, eq=False)
class PreparedModel:
    """A model that is ready to run. Immutable; may be executed from any number of threads at once.

    Attributes:
        inputs, outputs: the operands of the main subgraph's inputs and outputs, in order.
        placement: which backend runs what.
        priority: the Priority that it was prepared with.
    """

    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    placement: Placement
    priority: int
    plan: Plan
    gate: Gate

    def execute_synchronously(
        self,
        request: Request,
        config: ExecutionConfig = _DEFAULT_CONFIG,
        deadline_ns: int = OMITTED,
        cancellation: Cancellation | None = None,
    ) -> ExecutionResult:
        """Validates, waits for a turn, runs on the calling thread (hal-surface 8.3).

        Args:
            request: arguments and pools.
            config: timing, loop timeout and hints. Hints are checked, and none is known.
            deadline_ns: instant of CLOCK_BOOTTIME, or -1.
            cancellation: ends the execution early from another thread.

        Raises:
            HalError: INVALID_ARGUMENT (V-REQ*, V-EXECARG*), MISSED_DEADLINE_*, GENERAL_FAILURE (V-RUN*), or
                RESOURCE_EXHAUSTED_* (memory is short, a tensor is larger than the device allows).
        """
        started_ns = time.perf_counter_ns()
        validate_execution_arguments(deadline_ns, config.loop_timeout_duration_ns)
        validate_hints(config.execution_hints, config.extension_name_to_prefix)
        validate_request(request, self.inputs, self.outputs)
        timeout = config.loop_timeout_duration_ns
        loop_timeout = DEFAULT_LOOP_TIMEOUT_NS if timeout == OMITTED else timeout
        deadline = Deadline(deadline_ns)
        deadline.check_on_arrival("the execution")
        progress = Progress(deadline, cancellation or Cancellation(), loop_timeout)
        try:
            with self.gate.pass_(self.priority, deadline):
                bound = BoundRequest(request, self.inputs, self.outputs)
                return execute(self.plan, bound, progress, config.measure_timing, started_ns)
        except MemoryError as error:
            raise out_of_memory("the execution", error) from None
