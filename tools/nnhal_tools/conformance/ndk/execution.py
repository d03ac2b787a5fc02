"""Executions of the NNAPI C library, in each way of computing and each kind of memory."""

import ctypes
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

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

# ---- Arguments ------------------------------------------------------------------------------------------

Inputs = Sequence[AnyArray | None]


class NdkArguments:
    """Inputs of a vector and room for its outputs, to be bound to executions."""

    def __init__(self, library: NdkLibrary) -> None:
        self._library = library
        self._settings: list[tuple[Any, ...]] = []
        self._readers: list[Callable[[], bytes]] = []
        self._kept: list[AnyArray] = []  # arrays that the library reads when it executes
        self.memories = ExitStack()
        """Memories of the arguments, which `close` frees."""

    def add_input(self, index: int, array: AnyArray | None) -> None:
        """Add an input in a buffer of the program, or an omitted one."""
        if array is None:
            self._settings.append(("Execution_setInput", index, None, None, 0))
            return
        self._kept.append(np.ascontiguousarray(array))
        self._settings.append(("Execution_setInput", index, None, self._kept[-1].ctypes.data, array.nbytes))

    def add_output(self, index: int, size: int) -> None:
        """Add an output in a buffer of the program. An empty one has a buffer of one byte."""
        output = np.zeros(max(size, 1), np.uint8)
        self._settings.append(("Execution_setOutput", index, None, output.ctypes.data, output.nbytes))
        self._readers.append(output.tobytes)

    def add_input_in_memory(self, index: int, memory: int, offset: int = 0, size: int = 0) -> None:
        """Add an input in a memory of the library."""
        self._settings.append(("Execution_setInputFromMemory", index, None, memory, offset, size))

    def add_output_in_memory(
        self, index: int, read: Callable[[], bytes], memory: int, offset: int = 0, size: int = 0
    ) -> None:
        """Add an output in a memory of the library. `read`: returns its bytes."""
        self._settings.append(("Execution_setOutputFromMemory", index, None, memory, offset, size))
        self._readers.append(read)

    def bind(self, execution: int) -> None:
        """Set the inputs and outputs of an execution.

        Raises:
            CallFailed: the library refuses one.
        """
        for function, *arguments in self._settings:
            self._library.call(function, execution, *arguments)

    def outputs(self) -> list[bytes]:
        """Return the bytes of each output.

        Raises:
            CallFailed: the device does not return one, or it has another size.
        """
        return [read() for read in self._readers]

    def close(self) -> None:
        """Free the memories."""
        self.memories.close()


MakeArguments = Callable[[NdkLibrary, int, Inputs, Sequence[int]], NdkArguments]
"""Creates the arguments for a library, a compilation, arrays of inputs, and sizes of outputs in bytes."""


def buffer_arguments(library: NdkLibrary, compilation: int, inputs: Inputs, sizes: Sequence[int]) -> NdkArguments:
    """Return arguments in buffers of the program."""
    arguments = NdkArguments(library)
    for index, array in enumerate(inputs):
        arguments.add_input(index, array)
    for index, size in enumerate(sizes):
        arguments.add_output(index, size)
    return arguments


def memory_arguments(library: NdkLibrary, compilation: int, inputs: Inputs, sizes: Sequence[int]) -> NdkArguments:
    """Return arguments in one memory of a file, which starts with the inputs."""
    arguments = NdkArguments(library)
    lengths = [0 if array is None else array.nbytes for array in inputs] + [max(size, 1) for size in sizes]
    *offsets, end = accumulate((length + -length % _ALIGNMENT for length in lengths), initial=0)
    file = SharedFile(library, end)
    arguments.memories.callback(file.close)
    for index, (array, offset) in enumerate(zip(inputs, offsets, strict=False)):
        if array is None:
            arguments.add_input(index, None)
        else:
            file.write(offset, array.tobytes())
            arguments.add_input_in_memory(index, file.memory, offset, array.nbytes)
    places = zip(offsets[len(inputs) :], lengths[len(inputs) :], strict=True)
    for index, (offset, size) in enumerate(places):
        arguments.add_output_in_memory(index, partial(file.read, offset, size), file.memory, offset, size)
    return arguments


def device_arguments(library: NdkLibrary, compilation: int, inputs: Inputs, sizes: Sequence[int]) -> NdkArguments:
    """Return arguments in memories of the device, one for each. Empty values and omitted inputs are in no memory."""
    arguments = NdkArguments(library)

    def allocate(add_role: str, index: int) -> int:
        desc = library.create("MemoryDesc_create")
        try:
            library.call(add_role, desc, compilation, index, 1.0)
            library.call("MemoryDesc_finish", desc)
            memory = library.create("Memory_createFromDesc", desc)
        finally:
            library.MemoryDesc_free(desc)
        arguments.memories.callback(library.Memory_free, memory)
        return memory

    def contents(memory: int, size: int) -> bytes:
        with closing(SharedFile(library, size)) as file:
            library.call("Memory_copy", memory, file.memory)
            return file.read(0, size)

    try:
        for index, array in enumerate(inputs):
            if array is None or array.size == 0:
                arguments.add_input(index, None)
                continue
            memory = allocate("MemoryDesc_addInputRole", index)
            with closing(SharedFile(library, array.nbytes)) as file:
                file.write(0, array.tobytes())
                library.call("Memory_copy", file.memory, memory)
            arguments.add_input_in_memory(index, memory)
        for index, size in enumerate(sizes):
            if size == 0:
                arguments.add_output(index, size)
                continue
            memory = allocate("MemoryDesc_addOutputRole", index)
            arguments.add_output_in_memory(index, partial(contents, memory, size), memory)
    except BaseException:
        arguments.close()
        raise
    return arguments


ARGUMENTS: dict[str, MakeArguments] = {"buffers": buffer_arguments, "memories": memory_arguments}
"""Kinds of arguments that the program can address, by the name in reports."""

DEVICE_ARGUMENTS: dict[str, MakeArguments] = {"memories of the device": device_arguments}
"""Kinds of arguments that the program can only copy."""

# ---- Ways of computing ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Computation:
    """Computation that a way runs.

    `new_execution` creates an execution with all arguments and options. `chain`: another one may come before this one.
    """

    library: NdkLibrary
    compilation: int
    new_execution: Callable[[], int]
    chain: bool


@dataclass(frozen=True)
class Way:
    """Way of computing.

    `run` runs an execution to its end and returns the result code. `check` is the id in `generated` that fails when the
    way fails. `fenced`: dimensions of outputs must be known.
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
    """Create an execution of a finished compilation, run it, and return its results.

    Of the options `measure`, `loop_timeout_ns` and `chain` are used.
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
