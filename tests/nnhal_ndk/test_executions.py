"""Executions in all ways, with the results that they must have."""

import ctypes
import mmap
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nnhal.types import CacheState, OperandType, OperationType
from nnhal_ndk.api.constants import ResultCode
from nnhal_ndk.execution.compilation import NdkCompilation
from nnhal_ndk.objects import OBJECTS
from nnhal_tools.conformance.device.ndk_library import NdkLibrary, handles, operand_type, uint32s
from tests.nnhal_ndk.programs import BYTES, A, B, Program, expect

WAYS: dict[str, Callable[[NdkLibrary, Program, int], None]] = {}


def _way(function: Callable[[NdkLibrary, Program, int], None]) -> Callable[[NdkLibrary, Program, int], None]:
    WAYS[function.__name__] = function
    return function


@_way
def compute(library: NdkLibrary, program: Program, execution: int) -> None:
    expect(library.Execution_compute(execution))


@_way
def start_compute(library: NdkLibrary, program: Program, execution: int) -> None:
    expect(library.Event_wait(program.event("Execution_startCompute", execution)))


@_way
def start_compute_with_dependencies(library: NdkLibrary, program: Program, execution: int) -> None:
    first = program.event("Execution_startCompute", program.bound_execution(np.zeros((2, 3), np.float32)))
    event = program.event("Execution_startComputeWithDependencies", execution, handles(first), 1, 0)
    expect(library.Event_wait(event))


@_way
def burst_compute(library: NdkLibrary, program: Program, execution: int) -> None:
    burst = library.create("Burst_create", program.compilation)
    expect(library.Execution_burstCompute(execution, burst))
    library.Burst_free(burst)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("for_device", [True, False])
def test_two_tensors_are_added(library: NdkLibrary, way: str, for_device: bool) -> None:
    result = np.zeros((2, 3), np.float32)
    with Program.compiled(library, for_device=for_device) as program:
        WAYS[way](library, program, program.bound_execution(result))
    assert (result == A + B).all()


@pytest.mark.parametrize("way", WAYS)
def test_a_reusable_execution_sees_changed_inputs(library: NdkLibrary, way: str) -> None:
    result, a = np.zeros((2, 3), np.float32), A.copy()
    with Program.compiled(library) as program:
        execution = program.execution()
        expect(library.Execution_setReusable(execution, True))
        expect(library.Execution_setInput(execution, 0, None, a.ctypes.data, BYTES))
        expect(library.Execution_setInput(execution, 1, None, B.ctypes.data, BYTES))
        expect(library.Execution_setOutput(execution, 0, None, result.ctypes.data, BYTES))
        for _ in range(3):
            a += 1
            WAYS[way](library, program, execution)
            assert (result == a + B).all()


def test_arguments_lie_in_a_mapped_file(library: NdkLibrary) -> None:
    descriptor = os.memfd_create("arguments")
    offset = mmap.PAGESIZE + 64  # not at a page
    os.ftruncate(descriptor, offset + 3 * BYTES)
    os.pwrite(descriptor, A.tobytes() + B.tobytes(), offset)
    memory = library.create("Memory_createFromFd", 3 * BYTES, mmap.PROT_READ | mmap.PROT_WRITE, descriptor, offset)
    with Program.compiled(library) as program:
        execution = program.execution()
        expect(library.Execution_setInputFromMemory(execution, 0, None, memory, 0, BYTES))
        expect(library.Execution_setInputFromMemory(execution, 1, None, memory, BYTES, BYTES))
        expect(library.Execution_setOutputFromMemory(execution, 0, None, memory, 2 * BYTES, BYTES))
        expect(library.Execution_compute(execution))
    result = np.frombuffer(os.pread(descriptor, BYTES, offset + 2 * BYTES), np.float32)
    os.close(descriptor)
    library.Memory_free(memory)
    assert (result == (A + B).ravel()).all()


def test_a_tensor_stays_on_the_device_between_executions(library: NdkLibrary) -> None:
    result = np.zeros((2, 3), np.float32)
    with Program.compiled(library) as program:
        desc = library.create("MemoryDesc_create")
        expect(library.MemoryDesc_addOutputRole(desc, program.compilation, 0, 1.0))
        expect(library.MemoryDesc_addInputRole(desc, program.compilation, 0, 1.0))
        expect(library.MemoryDesc_finish(desc))
        memory = library.create("Memory_createFromDesc", desc)
        library.MemoryDesc_free(desc)
        first, second = program.execution(), program.execution()
        expect(library.Execution_setInput(first, 0, None, A.ctypes.data, BYTES))
        expect(library.Execution_setInput(first, 1, None, B.ctypes.data, BYTES))
        expect(library.Execution_setOutputFromMemory(first, 0, None, memory, 0, 0))
        expect(library.Execution_setInputFromMemory(second, 0, None, memory, 0, 0))
        expect(library.Execution_setInput(second, 1, None, B.ctypes.data, BYTES))
        expect(library.Execution_setOutput(second, 0, None, result.ctypes.data, BYTES))
        expect(library.Execution_compute(first))
        expect(library.Execution_compute(second))
        library.Memory_free(memory)
    assert (result == A + B + B).all()


def test_an_output_that_is_too_small_tells_its_dimensions(library: NdkLibrary) -> None:
    result, small = np.zeros((2, 3), np.float32), np.zeros(2, np.float32)
    with Program.compiled(library, (0, 3)) as program:
        for output, code in ((small, ResultCode.OUTPUT_INSUFFICIENT_SIZE), (result, ResultCode.NO_ERROR)):
            execution = program.execution()
            given = operand_type(OperandType.TENSOR_FLOAT32, (2, 3))
            expect(library.Execution_setInput(execution, 0, given, A.ctypes.data, BYTES))
            expect(library.Execution_setInput(execution, 1, given, B.ctypes.data, BYTES))
            expect(library.Execution_setOutput(execution, 0, None, output.ctypes.data, output.nbytes))
            expect(library.Execution_compute(execution), code)
            rank, dimensions = ctypes.c_uint32(), uint32s(0, 0)
            expect(library.Execution_getOutputOperandRank(execution, 0, ctypes.byref(rank)), code)
            expect(library.Execution_getOutputOperandDimensions(execution, 0, dimensions), code)
            assert (rank.value, *dimensions) == (2, 2, 3)
    assert not small.any()
    assert (result == A + B).all()


def test_an_output_of_other_dimensions_than_given_is_an_error_of_the_whole_execution(library: NdkLibrary) -> None:
    model, rank = library.create("Model_create"), ctypes.c_uint32()
    for _ in range(3):
        expect(library.Model_addOperand(model, operand_type(OperandType.TENSOR_FLOAT32, (0,))))
    for output in (1, 2):
        expect(library.Model_addOperation(model, OperationType.FLOOR, 1, uint32s(0), 1, uint32s(output)))
    expect(library.Model_identifyInputsAndOutputs(model, 1, uint32s(0), 2, uint32s(1, 2)))
    expect(library.Model_finish(model))
    compilation = library.create("Compilation_create", model)
    expect(library.Compilation_finish(compilation))
    two, three = (operand_type(OperandType.TENSOR_FLOAT32, (size,)) for size in (2, 3))
    result = np.zeros(3, np.float32)
    with Program(library, model, compilation) as program:
        execution = program.execution()
        expect(library.Execution_setInput(execution, 0, two, A.ctypes.data, 8))
        expect(library.Execution_setOutput(execution, 0, two, result.ctypes.data, 8))
        expect(library.Execution_setOutput(execution, 1, three, result.ctypes.data, 12))
        expect(library.Execution_compute(execution), ResultCode.OP_FAILED)
        for output in (0, 1):
            query = library.Execution_getOutputOperandRank(execution, output, ctypes.byref(rank))
            expect(query, ResultCode.BAD_STATE)


def test_a_fenced_execution_has_a_descriptor_that_becomes_readable(library: NdkLibrary) -> None:
    result = np.zeros((2, 3), np.float32)
    with Program.compiled(library) as program:
        execution = program.bound_execution(result)
        event = program.event("Execution_startComputeWithDependencies", execution, None, 0, 0)
        descriptor = ctypes.c_int(-1)
        expect(library.Event_getSyncFenceFd(event, ctypes.byref(descriptor)))
        imported = program.event("Event_createFromSyncFenceFd", descriptor.value)
        os.close(descriptor.value)
        expect(library.Event_wait(imported))
        assert (result == A + B).all()


def test_a_dependency_may_be_freed_before_it_ends(library: NdkLibrary) -> None:
    with Program.compiled(library) as program:
        for _ in range(8):
            result = np.zeros((2, 3), np.float32)
            reader, writer = os.pipe()
            fence = library.create("Event_createFromSyncFenceFd", reader)
            os.close(reader)
            execution = program.bound_execution(result)
            event = program.event("Execution_startComputeWithDependencies", execution, handles(fence), 1, 0)
            library.Event_free(fence)
            assert not result.any()
            os.write(writer, b"1")
            expect(library.Event_wait(event))
            os.close(writer)
            assert (result == A + B).all()


def test_durations_are_measured(library: NdkLibrary) -> None:
    result = np.zeros((2, 3), np.float32)
    with Program.compiled(library) as program:
        execution = program.execution()
        expect(library.Execution_setMeasureTiming(execution, True))
        for index, value in enumerate((A, B)):
            expect(library.Execution_setInput(execution, index, None, value.ctypes.data, BYTES))
        expect(library.Execution_setOutput(execution, 0, None, result.ctypes.data, BYTES))
        expect(library.Execution_compute(execution))
        (code, on_hardware), (_, in_driver) = (library.number("Execution_getDuration", execution, i) for i in (0, 1))
        expect(code)
        assert 0 < on_hardware <= in_driver < 2**63


@pytest.mark.parametrize("way", WAYS)
def test_memory_may_be_larger_than_padded_arguments(library: NdkLibrary, way: str) -> None:
    padded, result = np.append(A, 7).astype(np.float32), np.zeros(8, np.float32)
    with Program.compiled(library) as program:
        execution = program.execution()
        expect(library.Execution_enableInputAndOutputPadding(execution, True))
        expect(library.Execution_setInput(execution, 0, None, padded.ctypes.data, padded.nbytes))
        expect(library.Execution_setInput(execution, 1, None, B.ctypes.data, BYTES))
        expect(library.Execution_setOutput(execution, 0, None, result.ctypes.data, result.nbytes))
        WAYS[way](library, program, execution)
    assert (result == [*(A + B).ravel(), 0, 0]).all()


@pytest.mark.parametrize(
    ("duration_ns", "codes"),
    [
        (600 * 10**9, {ResultCode.NO_ERROR}),
        (1, {ResultCode.MISSED_DEADLINE_TRANSIENT, ResultCode.MISSED_DEADLINE_PERSISTENT}),
    ],
)
def test_a_timeout_limits_the_computation(library: NdkLibrary, duration_ns: int, codes: set[ResultCode]) -> None:
    result = np.zeros((2, 3), np.float32)
    with Program.compiled(library) as program:
        execution = program.bound_execution(result)
        expect(library.Execution_setTimeout(execution, duration_ns))
        assert library.Execution_compute(execution) in codes


def test_a_compilation_is_cached_in_the_folder_of_the_program(library: NdkLibrary, tmp_path: Path) -> None:
    contents = []
    for _ in range(2):
        with Program.compiled(library, finish=False) as program:
            expect(library.Compilation_setCaching(program.compilation, bytes(tmp_path), bytes(range(32))))
            expect(library.Compilation_finish(program.compilation))
            result = np.zeros((2, 3), np.float32)
            expect(library.Execution_compute(program.bound_execution(result)))
            assert (result == A + B).all()
            prepared = OBJECTS.get(program.compilation, NdkCompilation).plan.single
            assert prepared is not None
            contents.append({path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()})
            state = prepared.prepared.cache.state
    assert contents[0] == contents[1] != {}
    assert state == CacheState.HIT


def test_a_folder_that_cannot_be_used_does_not_matter(library: NdkLibrary, tmp_path: Path) -> None:
    with Program.compiled(library, finish=False) as program:
        expect(library.Compilation_setCaching(program.compilation, bytes(tmp_path / "missing"), bytes(32)))
        expect(library.Compilation_finish(program.compilation))
