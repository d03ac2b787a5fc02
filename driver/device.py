"""Device: the methods of IDevice over canonical types."""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from driver import placement as placing
from driver.backends.api import Backend, CompileOptions
from driver.cancellation import Cancellation
from driver.compilation import place_and_compile
from driver.deadline import Deadline
from driver.graph import graphs
from driver.operations.shape import MAX_TENSOR_BYTES
from driver.prepared_model import PreparedModel
from driver.scheduler import Queues, Scheduler
from driver.validation.model import validate_model
from driver.validation.preparation import validate_hints, validate_preparation
from nnhal.errors import HalError, general_failure, out_of_memory
from nnhal.types import (
    Capabilities,
    DeviceType,
    ErrorStatus,
    Extension,
    Model,
    NumberOfCacheFiles,
    OperandPerformance,
    OperandType,
    Placement,
    PrepareModelConfig,
)

DRIVER_VERSION = "0.1.0"

_PREPARING_THREADS = 2

_NOWHERE = Placement()

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What a preparation's callback is told. `prepared_model` is set exactly when `status` is NONE."""

    status: int
    prepared_model: PreparedModel | None = None
    reason: str = ""
    rule: str = ""
    placement: Placement = _NOWHERE

    @staticmethod
    def of(error: HalError) -> "Outcome":
        """The outcome of a failed preparation."""
        return Outcome(error.status, None, error.reason, error.rule)


Callback = Callable[[Outcome], None]
"""IPreparedModelCallback.notify: called exactly once for each preparation, from any thread."""

_DEFAULT_CONFIG = PrepareModelConfig()
_QUEUES = Queues(preparations=256, executions=1024)


class Device:
    """One device: an ordered list of backends and the threads that serve it. Thread safe. Close it when done.

    Args:
        tensor_bytes: the most that one tensor may have in an execution.
    """

    def __init__(
        self,
        name: str,
        backends: Sequence[Backend],
        queues: Queues = _QUEUES,
        tensor_bytes: int = MAX_TENSOR_BYTES,
    ) -> None:
        self.name = name
        self._tensor_bytes = tensor_bytes
        self.backends = tuple(backends)
        self._scheduler = Scheduler(os.cpu_count() or 1, _PREPARING_THREADS, queues)

    def close(self) -> None:
        """Finishes the preparations that are queued and ends the device's threads."""
        self._scheduler.close()

    def get_capabilities(self) -> Capabilities:
        """Performance of the first backend, the same for every operand type."""
        info = self.backends[0].performance()
        types = [type_ for type_ in OperandType if type_ != OperandType.SUBGRAPH]
        return Capabilities(info, info, tuple(OperandPerformance(type_, info) for type_ in types), info, info)

    def get_number_of_cache_files_needed(self) -> NumberOfCacheFiles:
        """(0, 0): this device does not cache yet."""
        return NumberOfCacheFiles(0, 0)

    def get_supported_extensions(self) -> tuple[Extension, ...]:
        """None."""
        return ()

    def get_type(self) -> DeviceType:
        """What the device is."""
        return DeviceType.CPU

    def get_version_string(self) -> str:
        """Differs between any two releases of the driver or of one of its backends."""
        backends = " ".join(f"{backend.id}/{backend.version}" for backend in self.backends)
        return f"nnhal/{DRIVER_VERSION} {backends}"

    def get_supported_operations(self, model: Model) -> tuple[list[bool], Placement]:
        """For each operation of main whether it would run; and where, and why not.

        Raises:
            HalError: INVALID_ARGUMENT, with the rule that the model breaks.
        """
        validate_model(model)
        placement = placing.place(graphs(model), self.backends)
        return [bool(operation.backend) for operation in placement.operations if operation.subgraph == 0], placement

    def prepare_model(
        self, model: Model, callback: Callback, config: PrepareModelConfig = _DEFAULT_CONFIG
    ) -> Cancellation:
        """Launches a preparation in the background (hal-surface 8.1).

        The callback is called exactly once, also on a launch error (before it is raised), and may be called before
        this returns. What it gets: NONE with the model; GENERAL_FAILURE for an operation that no backend takes;
        MISSED_DEADLINE_*; or the error of the launch.

        Returns:
            what abandons the work.

        Raises:
            HalError: INVALID_ARGUMENT: model, preference, priority, deadline or hints are invalid.
        """
        cancellation = Cancellation()
        try:
            validate_preparation(config.preference, config.priority, config.deadline_ns)
            validate_hints(config.compilation_hints, config.extension_name_to_prefix)
            validate_model(model)
            deadline = Deadline(config.deadline_ns)

            def work() -> None:
                callback(self._prepared(model, config, deadline, cancellation))

            self._scheduler.prepare(config.priority, deadline, work)
        except HalError as error:
            callback(Outcome.of(error))
            raise
        return cancellation

    def _prepared(
        self, model: Model, config: PrepareModelConfig, deadline: Deadline, cancellation: Cancellation
    ) -> Outcome:
        try:
            deadline.check_on_arrival("the preparation")
            prepared = self._compile(model, config, deadline, cancellation)
            return Outcome(ErrorStatus.NONE, prepared, placement=prepared.placement)
        except HalError as error:
            return Outcome.of(error)
        except MemoryError as error:
            return Outcome.of(out_of_memory("the preparation", error))
        except Exception as error:
            _log.exception("a preparation failed")
            return Outcome.of(general_failure(f"the driver failed: {type(error).__name__}: {error}"))

    def _compile(
        self, model: Model, config: PrepareModelConfig, deadline: Deadline, cancellation: Cancellation
    ) -> PreparedModel:
        cancellation.check()
        parts = graphs(model)

        def check() -> None:
            deadline.check("the preparation")
            cancellation.check()

        relaxed = model.relax_computation_float32_to_float16
        options = CompileOptions(config.preference, self._tensor_bytes)
        placement, plan = place_and_compile(parts, self.backends, options, relaxed=relaxed, check=check)
        cancellation.check()
        main = parts[0]
        return PreparedModel(
            tuple(main.operands[i] for i in main.subgraph.input_indexes),
            tuple(main.operands[i] for i in main.subgraph.output_indexes),
            placement,
            config.priority,
            plan,
            self._scheduler.gate,
        )
