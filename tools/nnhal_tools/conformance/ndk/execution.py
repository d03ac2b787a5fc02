"""Executions of the NNAPI C library, in each way of computing and each kind of memory."""

import ctypes
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from nnhal.types import AnyArray, ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_ndk.api.constants import DurationCode, ResultCode
from nnhal_tools.conformance.device.ndk_library import CallFailed, NdkLibrary, handles
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.results import CallOutcome, ExecutionOutcome
from nnhal_tools.conformance.ndk.model import SharedFile

_ALIGNMENT = 64
_NOT_MEASURED = 2**64 - 1
_STATUSES = {
    ResultCode.NO_ERROR: ErrorStatus.NONE,
    ResultCode.BAD_DATA: ErrorStatus.INVALID_ARGUMENT,
    ResultCode.OUTPUT_INSUFFICIENT_SIZE: ErrorStatus.OUTPUT_INSUFFICIENT_SIZE,
    ResultCode.UNAVAILABLE_DEVICE: ErrorStatus.DEVICE_UNAVAILABLE,
    ResultCode.MISSED_DEADLINE_TRANSIENT: ErrorStatus.MISSED_DEADLINE_TRANSIENT,
    ResultCode.MISSED_DEADLINE_PERSISTENT: ErrorStatus.MISSED_DEADLINE_PERSISTENT,
    ResultCode.RESOURCE_EXHAUSTED_TRANSIENT: ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT,
    ResultCode.RESOURCE_EXHAUSTED_PERSISTENT: ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT,
}

# ---- NdkArguments ------------------------------------------------------------------------------------------


class NdkArguments(Protocol):
    """Inputs of a vector and room for its outputs."""

    def bind(self, execution: int) -> None:
        """Set the inputs and outputs of an execution.

        Raises:
            CallFailed: the library refuses one.
        """
        ...

    def outputs(self) -> list[bytes]:
        """Return the bytes of each output."""
        ...

    def close(self) -> None:
        """Free the memory."""
        ...


MakeArguments = Callable[[NdkLibrary, int, Sequence[AnyArray | None], Sequence[int]], NdkArguments]
"""Creates the arguments for a library, a compilation, arrays of inputs, and sizes of outputs in bytes."""


class BufferArguments:
    """NdkArguments in buffers of the program."""

    def __init__(
        self, library: NdkLibrary, compilation: int, inputs: Sequence[AnyArray | None], sizes: Sequence[int]
    ) -> None:
        self._library = library
        self._inputs = [None if array is None else np.ascontiguousarray(array) for array in inputs]
        self._outputs = [np.zeros(max(size, 1), np.uint8) for size in sizes]

    def bind(self, execution: int) -> None:
        """Set the inputs and outputs of an execution."""
        for index, array in enumerate(self._inputs):
            pointer, size = (None, 0) if array is None else (array.ctypes.data, array.nbytes)
            self._library.call("Execution_setInput", execution, index, None, pointer, size)
        for index, output in enumerate(self._outputs):
            self._library.call("Execution_setOutput", execution, index, None, output.ctypes.data, output.nbytes)

    def outputs(self) -> list[bytes]:
        """Return the bytes of each output."""
        return [output.tobytes() for output in self._outputs]

    def close(self) -> None:
        """Do nothing: the buffers are freed with this object."""


class MemoryArguments:
    """NdkArguments in one memory of a file, which starts with the inputs."""

    def __init__(
        self, library: NdkLibrary, compilation: int, inputs: Sequence[AnyArray | None], sizes: Sequence[int]
    ) -> None:
        self._library = library
        end = 0

        def place(size: int) -> tuple[int, int]:
            nonlocal end
            offset = end
            end += size + -size % _ALIGNMENT
            return offset, size

        self._inputs = [None if array is None else place(array.nbytes) for array in inputs]
        self._outputs = [place(max(size, 1)) for size in sizes]
        self._file = SharedFile(library, end)
        for region, array in zip(self._inputs, inputs, strict=True):
            if region is not None and array is not None:
                self._file.write(region[0], array.tobytes())

    def bind(self, execution: int) -> None:
        """Set the inputs and outputs of an execution."""
        call, memory = self._library.call, self._file.memory
        for index, region in enumerate(self._inputs):
            if region is None:
                call("Execution_setInput", execution, index, None, None, 0)
            else:
                call("Execution_setInputFromMemory", execution, index, None, memory, *region)
        for index, region in enumerate(self._outputs):
            call("Execution_setOutputFromMemory", execution, index, None, memory, *region)

    def outputs(self) -> list[bytes]:
        """Return the bytes of each output."""
        return [self._file.read(*region) for region in self._outputs]

    def close(self) -> None:
        """Free the memory."""
        self._file.close()


class DeviceArguments:
    """NdkArguments in memories of the device, one for each. Empty values and omitted inputs are in no memory."""

    def __init__(
        self, library: NdkLibrary, compilation: int, inputs: Sequence[AnyArray | None], sizes: Sequence[int]
    ) -> None:
        self._library = library
        self._compilation = compilation
        self._stack = ExitStack()
        self._sizes = sizes
        try:
            self._inputs = [
                None if array is None or array.size == 0 else self._filled(index, array)
                for index, array in enumerate(inputs)
            ]
            self._outputs = [
                self._allocated("MemoryDesc_addOutputRole", index) if size else None for index, size in enumerate(sizes)
            ]
        except BaseException:
            self.close()
            raise
        self._empty = np.zeros(1, np.uint8)

    def _allocated(self, add_role: str, index: int) -> int:
        """Return a memory for one input or output."""
        library = self._library
        desc = library.create("MemoryDesc_create")
        try:
            library.call(add_role, desc, self._compilation, index, 1.0)
            library.call("MemoryDesc_finish", desc)
            memory = library.create("Memory_createFromDesc", desc)
        finally:
            library.MemoryDesc_free(desc)
        self._stack.callback(library.Memory_free, memory)
        return memory

    def _filled(self, index: int, array: AnyArray) -> int:
        memory = self._allocated("MemoryDesc_addInputRole", index)
        with closing(SharedFile(self._library, array.nbytes)) as file:
            file.write(0, array.tobytes())
            self._library.call("Memory_copy", file.memory, memory)
        return memory

    def bind(self, execution: int) -> None:
        """Set the inputs and outputs of an execution."""
        call, empty = self._library.call, self._empty
        for index, memory in enumerate(self._inputs):
            if memory is None:
                call("Execution_setInput", execution, index, None, None, 0)
            else:
                call("Execution_setInputFromMemory", execution, index, None, memory, 0, 0)
        for index, memory in enumerate(self._outputs):
            if memory is None:
                call("Execution_setOutput", execution, index, None, empty.ctypes.data, empty.nbytes)
            else:
                call("Execution_setOutputFromMemory", execution, index, None, memory, 0, 0)

    def outputs(self) -> list[bytes]:
        """Return the bytes of each output.

        Raises:
            CallFailed: the device does not return one, or it has another size.
        """
        return [
            b"" if memory is None else self._contents(memory, size)
            for memory, size in zip(self._outputs, self._sizes, strict=True)
        ]

    def _contents(self, memory: int, size: int) -> bytes:
        with closing(SharedFile(self._library, size)) as file:
            self._library.call("Memory_copy", memory, file.memory)
            return file.read(0, size)

    def close(self) -> None:
        """Free the memories."""
        self._stack.close()


ARGUMENTS: dict[str, MakeArguments] = {"buffers": BufferArguments, "memories": MemoryArguments}
"""Kinds of arguments that the program can address, by the name in reports."""

DEVICE_ARGUMENTS: dict[str, MakeArguments] = {"memories of the device": DeviceArguments}
"""Kinds of arguments that the program can only copy."""

# ---- Ways of computing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Computation:
    """Computation that a way runs.

    Attributes:
        library: the library.
        compilation: the compilation.
        new_execution: creates an execution with all arguments and options.
        chain: whether another execution may come before this one.
    """

    library: NdkLibrary
    compilation: int
    new_execution: Callable[[], int]
    chain: bool


@dataclass(frozen=True)
class Way:
    """Way of computing.

    Attributes:
        run: runs an execution to its end and returns the result code.
        check: the id in `generated` that fails when the way fails.
        fenced: dimensions of outputs must be known.
    """

    run: Callable[[Computation, int], int]
    check: str
    fenced: bool


WAYS: dict[str, Way] = {}
"""Ways of computing, by the name of the C function."""

_RunWay = Callable[[Computation, int], int]


def _way(name: str, check: str, *, fenced: bool = False) -> Callable[[_RunWay], _RunWay]:
    def register(run: _RunWay) -> _RunWay:
        WAYS[name] = Way(run, check, fenced)
        return run

    return register


@_way("compute", "GEN-04")
def _compute(computation: Computation, execution: int) -> int:
    return computation.library.Execution_compute(execution)


@_way("burstCompute", "GEN-06")
def _burst_compute(computation: Computation, execution: int) -> int:
    library = computation.library
    burst = library.create("Burst_create", computation.compilation)
    try:
        return library.Execution_burstCompute(execution, burst)
    finally:
        library.Burst_free(burst)


@_way("startCompute", "GEN-04")
def _start_compute(computation: Computation, execution: int) -> int:
    library = computation.library
    return _wait(library, library.create("Execution_startCompute", execution))


@_way("startComputeWithDependencies", "GEN-08", fenced=True)
def _start_compute_with_dependencies(computation: Computation, execution: int) -> int:
    """Compute after another execution. Both write the same outputs."""
    library, dependencies = computation.library, list[int]()
    if computation.chain:
        first = computation.new_execution()
        dependencies.append(library.create("Execution_startCompute", first))
    try:
        arguments = (execution, handles(*dependencies), len(dependencies), 0)
        return _wait(library, library.create("Execution_startComputeWithDependencies", *arguments))
    finally:
        for event in dependencies:
            library.Event_free(event)


def _wait(library: NdkLibrary, event: int) -> int:
    code = library.Event_wait(event)
    library.Event_free(event)
    return code


def execute(
    library: NdkLibrary, compilation: int, way: Way, arguments: NdkArguments, output_count: int, options: RunOptions
) -> ExecutionOutcome:
    """Create an execution, run it, and return its results.

    Args:
        library: the library.
        compilation: a finished compilation.
        way: the way of computing.
        arguments: the arguments.
        output_count: the number of outputs.
        options: `measure`, `loop_timeout_ns` and `chain` are used.
    """
    with ExitStack() as stack:

        def new_execution() -> int:
            execution = library.create("Execution_create", compilation)
            stack.callback(library.Execution_free, execution)
            if options.measure:
                library.call("Execution_setMeasureTiming", execution, True)
            if options.loop_timeout_ns is not None:
                library.call("Execution_setLoopTimeout", execution, options.loop_timeout_ns)
            arguments.bind(execution)
            return execution

        try:
            execution = new_execution()
            computation = Computation(library, compilation, new_execution, options.chain)
            code = ResultCode(way.run(computation, execution))
        except CallFailed as failed:
            return ExecutionOutcome(_outcome(failed.code, str(failed)))
        outcome = _outcome(code, code.name)
        if outcome.status not in (ErrorStatus.NONE, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE):
            return ExecutionOutcome(outcome)
        shapes = [_shape(library, execution, index) for index in range(output_count)]
        outputs = [np.frombuffer(data, np.uint8) for data in arguments.outputs()]
        return ExecutionOutcome(outcome, shapes, _timing(library, execution, fenced=way.fenced), outputs)


def _outcome(code: ResultCode, reason: str) -> CallOutcome:
    status = _STATUSES.get(code, ErrorStatus.GENERAL_FAILURE)
    return CallOutcome(status, "" if status == ErrorStatus.NONE else reason)


def _shape(library: NdkLibrary, execution: int, index: int) -> types_pb2.OutputShape:
    rank = ctypes.c_uint32()
    code = library.Execution_getOutputOperandRank(execution, index, ctypes.byref(rank))
    dimensions: Any = (ctypes.c_uint32 * rank.value)()
    if rank.value:
        code = max(code, library.Execution_getOutputOperandDimensions(execution, index, dimensions))
    return types_pb2.OutputShape(dimensions=list(dimensions), is_sufficient=code == ResultCode.NO_ERROR)


def _timing(library: NdkLibrary, execution: int, *, fenced: bool) -> tuple[int, int]:
    codes = (DurationCode.ON_HARDWARE, DurationCode.IN_DRIVER)
    if fenced:
        codes = (DurationCode.FENCED_ON_HARDWARE, DurationCode.FENCED_IN_DRIVER)
    on_hardware, in_driver = (library.number("Execution_getDuration", execution, code)[1] for code in codes)
    return _duration(on_hardware), _duration(in_driver)


def _duration(nanoseconds: int) -> int:
    return -1 if nanoseconds == _NOT_MEASURED else nanoseconds
