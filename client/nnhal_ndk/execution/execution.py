"""Executions of the program, and bursts."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import Enum

import numpy as np

import nnhal
from nnhal.client.core.buffers import BufferBase
from nnhal.types import MAXIMUM_LOOP_TIMEOUT_NS, OMITTED, UNMEASURED, AnyArray, Bytes, Operand, is_fully_specified
from nnhal_ndk.api.constants import DurationCode, ResultCode
from nnhal_ndk.execution.arguments import Argument, ArgumentSlot, MemoryArgument, OmittedArgument, TensorArgument
from nnhal_ndk.execution.compilation import NdkCompilation
from nnhal_ndk.execution.event import ComputationEvent, NdkEvent, after_all
from nnhal_ndk.execution.memory import NdkMemory
from nnhal_ndk.execution.plan import ComputeOptions, ComputeResult, Value, deadline_of
from nnhal_ndk.model.operand_type import Dimensions, is_specialization
from nnhal_ndk.results import NdkError, bad_data, bad_state, code_of_error, log_error, op_failed

NOT_MEASURED = 2**64 - 1

_executor = ThreadPoolExecutor(64, "nnhal-ndk")

Run = Callable[[list[Value], dict[int, nnhal.Buffer], ComputeOptions], ComputeResult]


class ExecutionState(Enum):
    """State of an execution."""

    PREPARATION = "being prepared"
    COMPUTATION = "computing"
    COMPLETED = "completed"


class NdkBurst:
    """Burst: executions of one compilation, one after the other.

    Raises:
        NdkError: BAD_STATE: the compilation is not finished.
        HalError: the device failed.
    """

    def __init__(self, compilation: NdkCompilation) -> None:
        self.compilation = compilation
        self._burst = compilation.plan.burst()
        self.is_busy = threading.Lock()

    def run(self, inputs: list[Value], outputs: dict[int, nnhal.Buffer], options: ComputeOptions) -> ComputeResult:
        """Run the model in the burst."""
        return self._burst.run(inputs, outputs, options)

    def close(self) -> None:
        """End the burst."""
        self._burst.close()


class NdkExecution:
    """Execution of a compilation: arguments, and one computation, or several one after the other if it is reusable.

    Raises:
        NdkError: BAD_STATE: the compilation is not finished.
    """

    def __init__(self, compilation: NdkCompilation) -> None:
        self._plan = compilation.plan
        self._compilation = compilation
        model = compilation.model
        self._inputs: list[Argument | None] = [None] * len(model.inputs)
        self._outputs: list[Argument | None] = [None] * len(model.outputs)
        self._lock = threading.Lock()
        self._state = ExecutionState.PREPARATION
        self._is_reusable = False
        self._is_padded = False
        self._has_called_setters = False
        self._measures = False
        self._attributes: set[int] = set()
        self._timeout_ns = 0
        self._loop_timeout_s: float | None = None
        self._failure: ResultCode | None = None
        self._shapes: list[tuple[Dimensions, bool]] = []
        self._timing = UNMEASURED

    @property
    def is_computing(self) -> bool:
        """True while a computation is in progress."""
        return self._state is ExecutionState.COMPUTATION

    def _require_preparation(self) -> None:
        if self._state is not ExecutionState.PREPARATION:
            raise bad_state(f"the execution is {self._state.value} and cannot be changed")

    def _require_completed(self) -> None:
        if self._state is not ExecutionState.COMPLETED:
            raise bad_state(f"the execution is {self._state.value}")

    # ---- Options ------------------------------------------------------------------------------------

    def set_measure_timing(self, measure: bool) -> None:
        """Set whether to measure computations.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: the compilation is not for a list of one device.
        """
        self._compilation.require_single_device("measurements need")
        self._require_preparation()
        self._measures = measure

    def set_timeout(self, duration_ns: int) -> None:
        """Set the time for each computation; 0 for no limit.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: the compilation is not for a list of one device.
        """
        self._compilation.require_single_device("a timeout needs")
        self._require_preparation()
        self._timeout_ns = duration_ns

    def set_loop_timeout(self, duration_ns: int) -> None:
        """Set the time for each WHILE, which is limited to the maximum.

        Raises:
            NdkError: BAD_STATE.
        """
        self._require_preparation()
        self._loop_timeout_s = min(duration_ns, MAXIMUM_LOOP_TIMEOUT_NS) / 1e9

    def set_reusable(self, reusable: bool) -> None:
        """Set whether it can be computed several times.

        Raises:
            NdkError: BAD_STATE.
        """
        self._require_preparation()
        self._is_reusable = reusable

    def enable_padding(self, enable: bool) -> None:
        """Set whether memory may be larger than the values.

        Raises:
            NdkError: BAD_STATE: also if an input or output was set before, successfully or not.
        """
        self._require_preparation()
        if self._has_called_setters:
            raise bad_state("padding must be enabled before inputs and outputs are set")
        self._is_padded = enable

    def add_attribute(self, token: int) -> None:
        """Take an attribute of an extension. Devices of nnhal know none, so that it has no effect.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: the compilation is not for a list of one device, or it has the attribute.
        """
        self._compilation.require_single_device("an attribute needs")
        self._require_preparation()
        if token in self._attributes:
            raise bad_data("the execution has this attribute already")
        self._attributes.add(token)

    # ---- Arguments ----------------------------------------------------------------------------------

    def set_buffer(self, index: int, given: Operand | None, buffer: memoryview | None, *, is_output: bool) -> None:
        """Set an input or output to a buffer of the program; None omits it.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: there is no such input or output, or type or size are wrong.
        """
        slot = self._slot_to_set(index, is_output=is_output)
        self._set(index, slot.from_buffer(given, buffer, is_padded=self._is_padded), is_output=is_output)

    def set_memory(
        self, index: int, given: Operand | None, memory: NdkMemory, offset: int, length: int, *, is_output: bool
    ) -> None:
        """Set an input or output to a part of a memory.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: see `set_buffer`; or the part or the use of the memory is wrong.
        """
        slot = self._slot_to_set(index, is_output=is_output)
        argument = slot.from_memory(given, memory, offset, length, is_padded=self._is_padded)
        self._set(index, argument, is_output=is_output)

    def _slot_to_set(self, index: int, *, is_output: bool) -> ArgumentSlot:
        self._require_preparation()
        slot = self._compilation.slot(index, is_output=is_output)
        self._has_called_setters = True
        return slot

    def _set(self, index: int, argument: Argument, *, is_output: bool) -> None:
        arguments = self._outputs if is_output else self._inputs
        if arguments[index] is not None:
            raise bad_state(f"{'output' if is_output else 'input'} {index} has been set before")
        arguments[index] = argument

    # ---- Computation --------------------------------------------------------------------------------

    def compute(self) -> None:
        """Compute, and wait for the end.

        Raises:
            NdkError, HalError: BAD_STATE; BAD_DATA: an argument is missing; or the computation failed.
        """
        self._begin()
        self._compute(self._plan.run, self._timeout_ns)

    def compute_in_burst(self, burst: NdkBurst) -> None:
        """Compute in a burst, and wait for the end.

        Raises:
            NdkError, HalError: see `compute`; BAD_DATA: the burst is of another compilation; BAD_STATE: it is busy.
        """
        if burst.compilation is not self._compilation:
            raise bad_data("the burst belongs to another compilation")
        if not burst.is_busy.acquire(blocking=False):
            raise bad_state("the burst is busy")
        try:
            self._begin()
            self._compute(burst.run, self._timeout_ns)
        finally:
            burst.is_busy.release()

    def start(self) -> NdkEvent:
        """Start to compute.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: an argument is missing.
        """
        self._begin()
        future = _executor.submit(self._compute_to_code, self._timeout_ns)
        return ComputationEvent(future, is_fenced=False)

    def start_after(self, dependencies: list[NdkEvent], duration_ns: int) -> NdkEvent:
        """Start to compute when events have ended. If one fails, so does the computation.

        `duration_ns` is the time for the computation from then on; 0 for no limit.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: an argument is missing, or the dimensions of an output are not all known;
                there is a duration, but the compilation is not for a list of one device.
        """
        self._begin()
        try:
            self._require_fenced(duration_ns)
        except NdkError as error:
            self._end(error.code)
            raise
        future: Future[ResultCode] = Future()

        def run(failure: NdkError | None) -> None:
            if failure is not None:
                self._end(failure.code)
                future.set_result(failure.code)
                return
            _executor.submit(self._compute_to_code, duration_ns or self._timeout_ns).add_done_callback(
                lambda done: future.set_result(done.result())
            )

        after_all(dependencies, run)
        return ComputationEvent(future, is_fenced=True)

    def _require_fenced(self, duration_ns: int) -> None:
        if duration_ns:
            self._compilation.require_single_device("a duration needs")
        for number, argument in enumerate(self._outputs):
            operand = self._compilation.operand(number, is_output=True)
            if isinstance(argument, OmittedArgument) or argument is None:
                continue
            if not is_fully_specified(operand.type, argument.dimensions):
                raise bad_data(f"output {number} has unknown dimensions")

    def _begin(self) -> None:
        """Begin a computation, unless one is in progress, the execution is used up, or an argument is missing."""
        with self._lock:
            if self.is_computing or (self._state is ExecutionState.COMPLETED and not self._is_reusable):
                raise bad_state(f"the execution is {self._state.value}")
            self._state = ExecutionState.COMPUTATION
            self._failure, self._shapes, self._timing = None, [], UNMEASURED
        for kind, arguments in (("input", self._inputs), ("output", self._outputs)):
            if None in arguments:
                self._end(ResultCode.BAD_DATA)
                raise bad_data(f"{kind} {arguments.index(None)} has not been set")

    def _end(self, code: ResultCode | None) -> None:
        """End a computation. If it has failed, its outputs in memories from descriptions are uninitialized."""
        if code is not None:
            for argument in self._outputs:
                if isinstance(argument, TensorArgument):
                    argument.tensor.clear()
        with self._lock:
            self._failure = code
            self._state = ExecutionState.COMPLETED

    def _compute_to_code(self, timeout_ns: int) -> ResultCode:
        try:
            self._compute(self._plan.run, timeout_ns)
            return ResultCode.NO_ERROR
        except Exception as error:
            log_error("a computation", error)
            return code_of_error(error)

    def _compute(self, run: Run, timeout_ns: int) -> None:
        try:
            inputs = [self._input_value(i, argument) for i, argument in enumerate(self._inputs)]
            buffers: dict[int, nnhal.Buffer] = {}
            for i, argument in enumerate(self._outputs):
                if isinstance(argument, TensorArgument):
                    argument.tensor.clear()
                    if argument.tensor.buffer is not None:
                        buffers[i] = argument.tensor.buffer
            options = ComputeOptions(deadline_of(timeout_ns), self._measures, self._loop_timeout_s)
            result = run(inputs, buffers, options)
            self._timing = result.timing
            self._store(result)
        except BaseException as error:
            self._end(code_of_error(error))
            raise
        self._end(None)

    def _input_value(self, index: int, argument: Argument | None) -> AnyArray | nnhal.Buffer | None:
        if isinstance(argument, MemoryArgument):
            return argument.data
        if isinstance(argument, TensorArgument):
            name = self._compilation.slot(index, is_output=False).name
            return argument.tensor.input_value(argument.dimensions, name)
        return None

    def _store(self, result: ComputeResult) -> None:
        """Write outputs to where the program wants them, if all fit and have the dimensions that it has given."""
        all_fit = True
        for number, (value, argument) in enumerate(zip(result.outputs, self._outputs, strict=True)):
            dimensions, fits = _shape(value), True
            given = argument.dimensions if isinstance(argument, MemoryArgument | TensorArgument) else ()
            if given and not is_specialization(dimensions, given):
                raise op_failed(f"output {number} has dimensions {list(dimensions)}, not {list(given)}")
            if isinstance(argument, MemoryArgument) and isinstance(value, np.ndarray):
                fits = value.nbytes <= argument.data.size
                all_fit = all_fit and fits
            self._shapes.append((dimensions, fits))
        if not all_fit:
            raise NdkError(ResultCode.OUTPUT_INSUFFICIENT_SIZE, f"dimensions of outputs: {self._shapes}")
        for value, argument, (dimensions, _) in zip(result.outputs, self._outputs, self._shapes, strict=True):
            if isinstance(argument, TensorArgument):
                argument.tensor.set_output(value, dimensions)
            elif isinstance(argument, MemoryArgument) and isinstance(value, np.ndarray):
                _write(argument.data, value)

    # ---- Results ------------------------------------------------------------------------------------

    def output_dimensions(self, index: int) -> Dimensions:
        """Return the dimensions of an output of the last computation.

        Raises:
            NdkError: BAD_STATE: there was none, or it failed; BAD_DATA: there is no such output, or it is a scalar;
                OUTPUT_INSUFFICIENT_SIZE, with the dimensions: its memory was too small.
        """
        self._require_completed()
        if self._failure not in (None, ResultCode.OUTPUT_INSUFFICIENT_SIZE) or not self._shapes:
            raise bad_state(f"the computation has failed with {getattr(self._failure, 'name', None)}")
        self._compilation.operand(index, is_output=True)
        dimensions, fits = self._shapes[index]
        if not fits:
            raise NdkError(ResultCode.OUTPUT_INSUFFICIENT_SIZE, f"output {index} needs {list(dimensions)}", dimensions)
        return dimensions

    def duration_ns(self, code: int) -> int:
        """Return a time of the last computation; NOT_MEASURED if the device does not tell.

        Raises:
            NdkError: BAD_DATA: there is no such duration; BAD_STATE: there was no computation, it has failed, or it is
                not measured. The C function then returns NOT_MEASURED.
        """
        if code not in list(DurationCode):
            raise NdkError(ResultCode.BAD_DATA, f"there is no duration {code}", (NOT_MEASURED,))
        if self._state is not ExecutionState.COMPLETED or self._failure is not None or not self._measures:
            raise NdkError(ResultCode.BAD_STATE, "no computation was measured, or it has failed", (NOT_MEASURED,))
        on_device = code in (DurationCode.ON_HARDWARE, DurationCode.FENCED_ON_HARDWARE)
        time_ns = self._timing.time_on_device_ns if on_device else self._timing.time_in_driver_ns
        return NOT_MEASURED if time_ns == OMITTED else time_ns


def _shape(value: AnyArray | BufferBase) -> Dimensions:
    return value.shape if isinstance(value, np.ndarray) else tuple(value.shape or ())


def _write(target: Bytes, value: AnyArray) -> None:
    if not target.flags.writeable:
        raise bad_data("the memory of an output is read-only")
    target[: value.nbytes] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
