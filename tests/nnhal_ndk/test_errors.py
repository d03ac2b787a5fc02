"""Documented errors of each function: the pointers that must not be NULL, wrong arguments, and wrong states."""

import ctypes
import math
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from nnhal.types import OperandType, OperationType
from nnhal_ndk.api.constants import ResultCode
from nnhal_ndk.api.functions import FUNCTIONS, Function, Parameter
from nnhal_ndk.objects import OBJECTS
from nnhal_tools.conformance.device.ndk_library import (
    CQuantParams,
    CType,
    NdkLibrary,
    handles,
    operand_type,
    quant_params,
    short_name,
    uint32s,
)
from tests.nnhal_ndk.programs import (
    BYTES,
    A,
    B,
    Program,
    add_tensors_model,
    device,
    expect,
    finished_model,
)

UNKNOWN_HANDLE = 0x1230
FLOATS = OperandType.TENSOR_FLOAT32

# ---- NULL -----------------------------------------------------------------------------------------------------

REQUIRED = [
    (function, parameter)
    for function in FUNCTIONS
    for parameter in function.parameters
    if parameter.is_pointer and not function.may_be_null(parameter)
]


@pytest.mark.parametrize(
    ("function", "parameter"), REQUIRED, ids=[f"{short_name(f.name)}-{p.name}" for f, p in REQUIRED]
)
def test_a_pointer_must_not_be_null(library: NdkLibrary, function: Function, parameter: Parameter) -> None:
    memory = ctypes.create_string_buffer(64)
    arguments: list[Any] = []
    for each in function.parameters:
        if each == parameter:
            arguments.append(None)
        elif each.type == "const ANeuralNetworksOperandType*":
            arguments.append(operand_type(FLOATS, (1,)))
        elif each.is_pointer:
            arguments.append(memory)
        else:
            arguments.append(1)
    code = getattr(library, short_name(function.name))(*arguments)
    expect(code, ResultCode.UNEXPECTED_NULL)


@pytest.mark.parametrize("function", [each for each in FUNCTIONS if each.is_free], ids=lambda each: each.name)
def test_null_and_unknown_handles_can_be_freed(library: NdkLibrary, function: Function) -> None:
    free = getattr(library, short_name(function.name))
    before = len(OBJECTS)
    free(None)
    free(UNKNOWN_HANDLE)
    assert len(OBJECTS) == before


HANDLES = [
    function
    for function in FUNCTIONS
    if function.parameters and "ANeuralNetworks" in function.parameters[0].type and function.parameters[0].is_handle
    if not function.is_free
]


@pytest.mark.parametrize("function", HANDLES, ids=lambda each: short_name(each.name))
def test_an_unknown_handle_is_refused(library: NdkLibrary, function: Function) -> None:
    zeros = ctypes.create_string_buffer(64)
    values = (zeros if each.is_pointer and not each.is_handle else UNKNOWN_HANDLE for each in function.parameters)
    small = {"uint32_t": 0, "int32_t": 0, "bool": True, "float": 1.0, "int": 0, "ANeuralNetworksOperationType": 0}
    arguments: list[Any] = [
        small.get(each.type, value) for each, value in zip(function.parameters, values, strict=True)
    ]
    arguments = [
        (ctypes.byref(ctypes.c_void_p()) if each.type.endswith("**") else argument)
        for each, argument in zip(function.parameters, arguments, strict=True)
    ]
    expect(getattr(library, short_name(function.name))(*arguments), ResultCode.BAD_DATA)


def test_elements_of_arrays_must_not_be_null(library: NdkLibrary) -> None:
    model, result = finished_model(library), ctypes.c_void_p()
    listed = handles(device(library), None)
    supported = (ctypes.c_bool * 1)()
    create = library.Compilation_createForDevices(model, listed, 2, ctypes.byref(result))
    expect(create, ResultCode.UNEXPECTED_NULL)
    expect(library.Model_getSupportedOperationsForDevices(model, listed, 2, supported), ResultCode.UNEXPECTED_NULL)
    library.Model_free(model)
    with Program.compiled(library) as program:
        execution = program.bound_execution(np.zeros((2, 3), np.float32))
        start = library.Execution_startComputeWithDependencies(execution, handles(None), 1, 0, ctypes.byref(result))
        expect(start, ResultCode.UNEXPECTED_NULL)


def test_buffers_may_be_null_only_if_they_are_empty(library: NdkLibrary) -> None:
    model = add_tensors_model(library)
    expect(library.Model_setOperandValue(model, 2, None, 4), ResultCode.UNEXPECTED_NULL)
    expect(library.Model_setOperandValue(model, 2, None, 0))
    library.Model_free(model)
    with Program.compiled(library) as program:
        execution = program.execution()
        expect(library.Execution_setInput(execution, 0, None, None, BYTES), ResultCode.UNEXPECTED_NULL)
        expect(library.Execution_setInput(execution, 0, None, None, 0))


def test_dimensions_are_null_if_and_only_if_there_are_none(library: NdkLibrary) -> None:
    model = library.create("Model_create")
    for count, dimensions in ((2, None), (0, uint32s(2))):
        wrong = CType(FLOATS, count, dimensions, 0.0, 0)
        expect(library.Model_addOperand(model, ctypes.byref(wrong)), ResultCode.BAD_DATA)
    library.Model_free(model)


# ---- Models ---------------------------------------------------------------------------------------------------

INVALID_TYPES: dict[str, tuple[Any, ...]] = {
    "negative scale": (OperandType.TENSOR_QUANT8_ASYMM, (1,), -1.0, 0),
    "negative zero point": (OperandType.TENSOR_QUANT8_ASYMM, (1,), 1.0, -1),
    "zero point above 255": (OperandType.TENSOR_QUANT8_ASYMM, (1,), 1.0, 256),
    "zero point of int8": (OperandType.TENSOR_QUANT8_ASYMM_SIGNED, (1,), 1.0, 128),
    "scale of a float tensor": (OperandType.TENSOR_FLOAT32, (1,), 1.0, 0),
    "scale of a per-channel tensor": (OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL, (1,), 1.0, 0),
    "scalar with dimensions": (OperandType.INT32, (2,), 0.0, 0),
    "unknown type": (999, (1,), 0.0, 0),
    "negative type": (-1, (1,), 0.0, 0),
    "OEM type": (10000, (), 0.0, 0),
    "too large": (OperandType.TENSOR_FLOAT32, (2**16, 2**16), 0.0, 0),
    "dimension above 2**31": (OperandType.TENSOR_FLOAT32, (2**32 - 1, 0), 0.0, 0),
    "not a number": (OperandType.TENSOR_QUANT8_ASYMM, (1,), math.nan, 0),
}


@pytest.mark.parametrize("case", INVALID_TYPES)
def test_an_operand_type_is_invalid(library: NdkLibrary, case: str) -> None:
    model = library.create("Model_create")
    expect(library.Model_addOperand(model, operand_type(*INVALID_TYPES[case])), ResultCode.BAD_DATA)
    expect(library.Model_addOperand(model, operand_type(FLOATS, (1,))))
    library.Model_free(model)


MODEL_CASES: dict[str, Callable[[NdkLibrary, int], int]] = {
    "setOperandValue: unknown operand": lambda lib, m: lib.Model_setOperandValue(m, 9, b"1234", 4),
    "setOperandValue: negative operand": lambda lib, m: lib.Model_setOperandValue(m, -1, b"1234", 4),
    "setOperandValue: wrong size": lambda lib, m: lib.Model_setOperandValue(m, 2, b"12345678", 8),
    "setOperandValueFromModel: not a model operand": lambda lib, m: lib.Model_setOperandValueFromModel(
        m, 2, finished_model(lib)
    ),
    "symmPerChannel: wrong type": lambda lib, m: lib.Model_setOperandSymmPerChannelQuantParams(
        m, 0, quant_params(0, [1.0])
    ),
    "symmPerChannel: unknown operand": lambda lib, m: lib.Model_setOperandSymmPerChannelQuantParams(
        m, 9, quant_params(0, [1.0])
    ),
    "addOperation: unknown operation": lambda lib, m: lib.Model_addOperation(
        m, 0xDEAD, 3, uint32s(0, 1, 2), 1, uint32s(3)
    ),
    "addOperation: no inputs": lambda lib, m: lib.Model_addOperation(
        m, OperationType.ADD, 0, uint32s(0), 1, uint32s(3)
    ),
    "addOperation: no outputs": lambda lib, m: lib.Model_addOperation(
        m, OperationType.ADD, 3, uint32s(0, 1, 2), 0, uint32s(3)
    ),
    "addOperation: unknown operand": lambda lib, m: lib.Model_addOperation(
        m, OperationType.ADD, 3, uint32s(0, 1, 99), 1, uint32s(3)
    ),
    "addOperation: wrong type": lambda lib, m: lib.Model_addOperation(
        m, OperationType.ADD, 3, uint32s(0, 2, 2), 1, uint32s(3)
    ),
    "identify: unknown operand": lambda lib, m: lib.Model_identifyInputsAndOutputs(m, 1, uint32s(9), 1, uint32s(3)),
    "identify: a constant": lambda lib, m: lib.Model_identifyInputsAndOutputs(m, 1, uint32s(2), 1, uint32s(3)),
    "identify: input and output": lambda lib, m: lib.Model_identifyInputsAndOutputs(m, 1, uint32s(3), 1, uint32s(3)),
    "finish: no inputs": lambda lib, m: lib.Model_finish(m),
}


@pytest.mark.parametrize("case", MODEL_CASES)
def test_a_call_on_a_model_has_wrong_arguments(library: NdkLibrary, case: str) -> None:
    model = add_tensors_model(library)
    expect(MODEL_CASES[case](library, model), ResultCode.BAD_DATA)
    library.Model_free(model)


@pytest.mark.parametrize(
    ("channel_dim", "count", "values"),
    [(0, 2, None), (0, 0, None), (0, 2**32 - 1, [1.0]), (0, 3, [1.0] * 3), (2, 2, [1.0] * 2), (0, 2, [1.0, 0.0])],
    ids=["NULL", "none", "more than the array has", "too many", "no such dimension", "zero"],
)
def test_scales_per_channel_are_wrong(
    library: NdkLibrary, channel_dim: int, count: int, values: list[float] | None
) -> None:
    model = library.create("Model_create")
    expect(library.Model_addOperand(model, operand_type(OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL, (2, 3))))
    scales = None if values is None else (ctypes.c_float * len(values))(*values)
    wrong = CQuantParams(channel_dim, count, scales)
    set_scales = library.Model_setOperandSymmPerChannelQuantParams
    expect(set_scales(model, 0, ctypes.byref(wrong)), ResultCode.BAD_DATA)
    expect(set_scales(model, 0, quant_params(0, [1.0, 2.0])))
    library.Model_free(model)


def test_the_models_of_an_if_are_set_before_it_is_added(library: NdkLibrary) -> None:
    branch, model = finished_model(library), add_tensors_model(library)  # ADD of operands 0 and 1 to operand 3
    condition, then, otherwise, result = 4, 5, 6, 7
    for type_, shape in (
        (OperandType.TENSOR_BOOL8, (1,)),
        (OperandType.SUBGRAPH, ()),
        (OperandType.SUBGRAPH, ()),
        (FLOATS, (2, 3)),
    ):
        expect(library.Model_addOperand(model, operand_type(type_, shape)))
    add = (model, OperationType.IF, 5, uint32s(condition, then, otherwise, 0, 1), 1, uint32s(result))
    expect(library.Model_addOperation(*add), ResultCode.BAD_DATA)
    for operand in (then, otherwise):
        expect(library.Model_setOperandValueFromModel(model, operand, branch))
    too_few = uint32s(condition, then, otherwise, 0)
    expect(library.Model_addOperation(model, OperationType.IF, 4, too_few, 1, uint32s(result)), ResultCode.BAD_DATA)
    expect(library.Model_addOperation(*add))
    expect(library.Model_identifyInputsAndOutputs(model, 3, uint32s(0, 1, condition), 2, uint32s(3, result)))
    expect(library.Model_finish(model))
    for each in (model, branch):
        library.Model_free(each)


CHANGES: dict[str, Callable[[NdkLibrary, int], int]] = {
    "addOperand": lambda lib, m: lib.Model_addOperand(m, operand_type(FLOATS, (1,))),
    "setOperandValue": lambda lib, m: lib.Model_setOperandValue(m, 2, b"1234", 4),
    "setOperandSymmPerChannelQuantParams": lambda lib, m: lib.Model_setOperandSymmPerChannelQuantParams(
        m, 0, quant_params(0, [1.0])
    ),
    "setOperandValueFromModel": lambda lib, m: lib.Model_setOperandValueFromModel(m, 2, m),
    "addOperation": lambda lib, m: lib.Model_addOperation(m, OperationType.ADD, 3, uint32s(0, 1, 2), 1, uint32s(3)),
    "identifyInputsAndOutputs": lambda lib, m: lib.Model_identifyInputsAndOutputs(m, 1, uint32s(0), 1, uint32s(3)),
    "relaxComputationFloat32toFloat16": lambda lib, m: lib.Model_relaxComputationFloat32toFloat16(m, True),
    "finish": lambda lib, m: lib.Model_finish(m),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_finished_model_and_an_invalid_one_cannot_be_changed(library: NdkLibrary, case: str) -> None:
    finished, invalid = finished_model(library), add_tensors_model(library)
    expect(library.Model_finish(invalid), ResultCode.BAD_DATA)
    for model in (finished, invalid):
        expect(CHANGES[case](library, model), ResultCode.BAD_STATE)
        library.Model_free(model)


@pytest.mark.parametrize(
    ("operations", "output", "code"),
    [
        ([(5, 4), (3, 5)], 4, ResultCode.NO_ERROR),  # the operation that is added last comes between the others
        ([(5, 4), (4, 5)], 3, ResultCode.BAD_DATA),
    ],
    ids=["any order", "a circle"],
)
def test_operations_are_sorted(
    library: NdkLibrary, operations: list[tuple[int, int]], output: int, code: ResultCode
) -> None:
    model = add_tensors_model(library)  # adds 0 and 1 to 3
    for _ in range(2):
        expect(library.Model_addOperand(model, operand_type(FLOATS, (2, 3))))
    for read, written in operations:
        expect(library.Model_addOperation(model, OperationType.ADD, 3, uint32s(read, 1, 2), 1, uint32s(written)))
    expect(library.Model_identifyInputsAndOutputs(model, 2, uint32s(0, 1), 1, uint32s(output)))
    expect(library.Model_finish(model), code)
    if code == ResultCode.NO_ERROR:
        supported = (ctypes.c_bool * 3)()
        listed = handles(device(library))
        expect(library.Model_getSupportedOperationsForDevices(model, listed, 1, supported))
        assert all(supported)
        result = np.zeros((2, 3), np.float32)
        compilation = library.create("Compilation_create", model)
        expect(library.Compilation_finish(compilation))
        with Program(library, model, compilation) as program:
            expect(library.Execution_compute(program.bound_execution(result)))
        assert (result == A + 3 * B).all()
    else:
        library.Model_free(model)


# ---- Compilations and executions ------------------------------------------------------------------------------


@contextmanager
def _unfinished(library: NdkLibrary, *, for_device: bool = True) -> Iterator[Program]:
    with Program.compiled(library, for_device=for_device, finish=False) as program:
        yield program


OPTIONS: dict[str, Callable[[NdkLibrary, int], int]] = {
    "setPreference": lambda lib, c: lib.Compilation_setPreference(c, 1),
    "setPriority": lambda lib, c: lib.Compilation_setPriority(c, 100),
    "setTimeout": lambda lib, c: lib.Compilation_setTimeout(c, 60 * 10**9),
    "setCaching": lambda lib, c: lib.Compilation_setCaching(c, b"/tmp", bytes(32)),
    "finish": lambda lib, c: lib.Compilation_finish(c),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_options_are_set_before_a_compilation_is_finished(library: NdkLibrary, case: str) -> None:
    with _unfinished(library) as program:
        expect(OPTIONS[case](library, program.compilation))
    with Program.compiled(library) as program:
        expect(OPTIONS[case](library, program.compilation), ResultCode.BAD_STATE)


def test_options_of_a_compilation_are_invalid(library: NdkLibrary) -> None:
    with _unfinished(library, for_device=False) as program:
        for preference in (-1, 3):
            expect(library.Compilation_setPreference(program.compilation, preference), ResultCode.BAD_DATA)
        for priority in (0, 89, 111):
            expect(library.Compilation_setPriority(program.compilation, priority), ResultCode.BAD_DATA)
        expect(library.Compilation_setTimeout(program.compilation, 10**9), ResultCode.BAD_DATA)


def test_what_needs_a_finished_object_is_refused_before(library: NdkLibrary) -> None:
    result, number = ctypes.c_void_p(1), ctypes.c_uint32()
    model = add_tensors_model(library)
    listed = handles(device(library))
    supported = (ctypes.c_bool * 1)()
    expect(library.Compilation_create(model, ctypes.byref(result)), ResultCode.BAD_STATE)
    assert result.value is None
    expect(library.Compilation_createForDevices(model, listed, 1, ctypes.byref(result)), ResultCode.BAD_STATE)
    expect(library.Model_getSupportedOperationsForDevices(model, listed, 1, supported), ResultCode.BAD_STATE)
    library.Model_free(model)
    desc = library.create("MemoryDesc_create")
    expect(library.Memory_createFromDesc(desc, ctypes.byref(result)), ResultCode.BAD_STATE)
    with _unfinished(library) as program:
        expect(library.Execution_create(program.compilation, ctypes.byref(result)), ResultCode.BAD_STATE)
        expect(library.Burst_create(program.compilation, ctypes.byref(result)), ResultCode.BAD_STATE)
        expect(library.MemoryDesc_addInputRole(desc, program.compilation, 0, 1.0), ResultCode.BAD_DATA)
        for kind in ("AlignmentForInput", "PaddingForInput", "AlignmentForOutput", "PaddingForOutput"):
            query = getattr(library, f"Compilation_getPreferredMemory{kind}")
            expect(query(program.compilation, 0, ctypes.byref(number)), ResultCode.BAD_STATE)
    library.MemoryDesc_free(desc)


@pytest.mark.parametrize("kind", ["AlignmentForInput", "PaddingForInput", "AlignmentForOutput", "PaddingForOutput"])
def test_preferences_of_memory_are_powers_of_two(library: NdkLibrary, kind: str) -> None:
    with Program.compiled(library) as program:
        code, value = library.number(f"Compilation_getPreferredMemory{kind}", program.compilation, 0)
        expect(code)
        assert value > 0 and value & (value - 1) == 0
        expect(library.number(f"Compilation_getPreferredMemory{kind}", program.compilation, 9)[0], ResultCode.BAD_DATA)


def test_lists_of_devices_are_neither_empty_nor_have_one_twice(library: NdkLibrary) -> None:
    model, first, result = finished_model(library), device(library), ctypes.c_void_p()
    for listed, count in ((handles(first), 0), (handles(first, first), 2)):
        expect(library.Compilation_createForDevices(model, listed, count, ctypes.byref(result)), ResultCode.BAD_DATA)
    expect(library.getDevice(99, ctypes.byref(result)), ResultCode.BAD_DATA)
    library.Model_free(model)


EXECUTION_CASES: dict[str, Callable[[NdkLibrary, int], int]] = {
    "setInput: wrong size": lambda lib, e: lib.Execution_setInput(e, 0, None, A.ctypes.data, 20),
    "setInput: unknown": lambda lib, e: lib.Execution_setInput(e, 9, None, A.ctypes.data, BYTES),
    "setInput: negative": lambda lib, e: lib.Execution_setInput(e, -1, None, A.ctypes.data, BYTES),
    "setInput: other dimensions": lambda lib, e: lib.Execution_setInput(
        e, 0, operand_type(FLOATS, (3, 2)), A.ctypes.data, BYTES
    ),
    "setInput: other rank": lambda lib, e: lib.Execution_setInput(
        e, 0, operand_type(FLOATS, (6,)), A.ctypes.data, BYTES
    ),
    "setOutput: wrong size": lambda lib, e: lib.Execution_setOutput(e, 0, None, A.ctypes.data, 20),
    "setOutput: unknown": lambda lib, e: lib.Execution_setOutput(e, 1, None, A.ctypes.data, BYTES),
    "compute: nothing is set": lambda lib, e: lib.Execution_compute(e),
    "getDuration: unknown": lambda lib, e: lib.Execution_getDuration(e, 9, ctypes.byref(ctypes.c_uint64())),
}


@pytest.mark.parametrize("case", EXECUTION_CASES)
def test_a_call_on_an_execution_has_wrong_arguments(library: NdkLibrary, case: str) -> None:
    with Program.compiled(library) as program:
        expect(EXECUTION_CASES[case](library, program.execution()), ResultCode.BAD_DATA)


PREPARATION: dict[str, Callable[[NdkLibrary, int], int]] = {
    "setInput": lambda lib, e: lib.Execution_setInput(e, 0, None, A.ctypes.data, BYTES),
    "setOutput": lambda lib, e: lib.Execution_setOutput(e, 0, None, A.ctypes.data, BYTES),
    "setMeasureTiming": lambda lib, e: lib.Execution_setMeasureTiming(e, True),
    "setTimeout": lambda lib, e: lib.Execution_setTimeout(e, 10**9),
    "setLoopTimeout": lambda lib, e: lib.Execution_setLoopTimeout(e, 10**9),
    "setReusable": lambda lib, e: lib.Execution_setReusable(e, True),
    "enableInputAndOutputPadding": lambda lib, e: lib.Execution_enableInputAndOutputPadding(e, True),
    "compute": lambda lib, e: lib.Execution_compute(e),
    "startCompute": lambda lib, e: lib.Execution_startCompute(e, ctypes.byref(ctypes.c_void_p())),
    "startComputeWithDependencies": lambda lib, e: lib.Execution_startComputeWithDependencies(
        e, None, 0, 0, ctypes.byref(ctypes.c_void_p())
    ),
}


@pytest.mark.parametrize("case", PREPARATION)
def test_a_computed_execution_cannot_be_changed_or_computed_again(library: NdkLibrary, case: str) -> None:
    with Program.compiled(library) as program:
        execution = program.bound_execution(np.zeros((2, 3), np.float32))
        expect(library.Execution_compute(execution))
        expect(PREPARATION[case](library, execution), ResultCode.BAD_STATE)


def test_results_are_there_after_a_computation_only(library: NdkLibrary) -> None:
    number = ctypes.c_uint64()
    with Program.compiled(library) as program:
        execution = program.bound_execution(np.zeros((2, 3), np.float32))
        rank = library.Execution_getOutputOperandRank(execution, 0, ctypes.byref(number))
        dimensions = library.Execution_getOutputOperandDimensions(execution, 0, uint32s(0, 0))
        duration = library.Execution_getDuration(execution, 0, ctypes.byref(number))
        for code in (rank, dimensions, duration):
            expect(code, ResultCode.BAD_STATE)
        expect(library.Execution_compute(execution))
        expect(library.Execution_getOutputOperandRank(execution, 7, ctypes.byref(number)), ResultCode.BAD_DATA)
        expect(library.Execution_getOutputOperandDimensions(execution, 7, uint32s(0, 0)), ResultCode.BAD_DATA)
        expect(library.Execution_getDuration(execution, 0, ctypes.byref(number)), ResultCode.BAD_STATE)
        assert number.value == 2**64 - 1


def test_an_argument_is_set_once(library: NdkLibrary) -> None:
    with Program.compiled(library) as program:
        execution = program.bound_execution(np.zeros((2, 3), np.float32))
        expect(library.Execution_setInput(execution, 0, None, B.ctypes.data, BYTES), ResultCode.BAD_STATE)
        expect(library.Execution_enableInputAndOutputPadding(execution, True), ResultCode.BAD_STATE)
        other = program.execution()
        expect(library.Execution_setInput(other, 0, None, B.ctypes.data, BYTES - 4), ResultCode.BAD_DATA)
        expect(library.Execution_enableInputAndOutputPadding(other, True), ResultCode.BAD_STATE)


def test_times_need_a_compilation_for_one_device(library: NdkLibrary) -> None:
    with Program.compiled(library, for_device=False) as program:
        execution = program.bound_execution(np.zeros((2, 3), np.float32))
        expect(library.Execution_setMeasureTiming(execution, True), ResultCode.BAD_DATA)
        expect(library.Execution_setTimeout(execution, 10**9), ResultCode.BAD_DATA)
        event = ctypes.byref(ctypes.c_void_p())
        start = library.Execution_startComputeWithDependencies(execution, None, 0, 10**9, event)
        expect(start, ResultCode.BAD_DATA)
        expect(library.Execution_compute(execution), ResultCode.BAD_STATE)  # it counts as computed


def test_an_execution_without_all_arguments_counts_as_computed(library: NdkLibrary) -> None:
    rank = ctypes.c_uint32()
    with Program.compiled(library) as program:
        execution = program.execution()
        expect(library.Execution_setInput(execution, 0, None, A.ctypes.data, BYTES))
        expect(library.Execution_compute(execution), ResultCode.BAD_DATA)
        expect(library.Execution_setInput(execution, 1, None, B.ctypes.data, BYTES), ResultCode.BAD_STATE)
        expect(library.Execution_compute(execution), ResultCode.BAD_STATE)
        for output in (0, 9):
            query = library.Execution_getOutputOperandRank(execution, output, ctypes.byref(rank))
            expect(query, ResultCode.BAD_STATE)


def test_a_computed_execution_is_refused_by_a_burst(library: NdkLibrary) -> None:
    with Program.compiled(library) as program:
        burst = library.create("Burst_create", program.compilation)
        execution = program.bound_execution(np.zeros((2, 3), np.float32))
        expect(library.Execution_burstCompute(execution, burst))
        expect(library.Execution_burstCompute(execution, burst), ResultCode.BAD_STATE)
        library.Burst_free(burst)


def test_a_burst_belongs_to_one_compilation(library: NdkLibrary) -> None:
    with Program.compiled(library) as program, Program.compiled(library) as other:
        burst = library.create("Burst_create", other.compilation)
        execution = program.bound_execution(np.zeros((2, 3), np.float32))
        expect(library.Execution_burstCompute(execution, burst), ResultCode.BAD_DATA)
        library.Burst_free(burst)


# ---- Memories and events --------------------------------------------------------------------------------------


def test_memories_of_descriptors_are_in_files(library: NdkLibrary) -> None:
    descriptor = os.memfd_create("memory")
    os.ftruncate(descriptor, 64)
    read, result = mmap.PROT_READ, ctypes.byref(ctypes.c_void_p())
    for size, number, offset in (
        (0, descriptor, 0),
        (64, -1, 0),
        (64, 999_999, 0),
        (65, descriptor, 0),
        (8, descriptor, 64),
    ):
        expect(library.Memory_createFromFd(size, read, number, offset, result), ResultCode.BAD_DATA)
    memory = library.create("Memory_createFromFd", 64, read, descriptor, 0)
    with Program.compiled(library) as program:
        for offset, length in ((0, 23), (0, 0), (48, BYTES), (2**63, 2**63)):
            set_input = library.Execution_setInputFromMemory(program.execution(), 0, None, memory, offset, length)
            expect(set_input, ResultCode.BAD_DATA)
    model = add_tensors_model(library)
    expect(library.Model_setOperandValueFromMemory(model, 2, memory, 62, 4), ResultCode.BAD_DATA)
    expect(library.Model_setOperandValueFromMemory(model, 2, memory, 60, 4))
    library.Model_free(model)
    library.Memory_free(memory)
    os.close(descriptor)


def test_memories_that_are_copied_match(library: NdkLibrary) -> None:
    descriptor = os.memfd_create("memory")
    os.ftruncate(descriptor, 4096)
    access = mmap.PROT_READ | mmap.PROT_WRITE
    small, large = (library.create("Memory_createFromFd", size, access, descriptor, 0) for size in (BYTES, 2 * BYTES))
    with Program.compiled(library) as program:
        desc = library.create("MemoryDesc_create")
        expect(library.MemoryDesc_finish(desc), ResultCode.BAD_DATA)
        for index, frequency in ((9, 1.0), (0, 0.0), (0, 1.5), (0, math.nan)):
            add = library.MemoryDesc_addInputRole(desc, program.compilation, index, frequency)
            expect(add, ResultCode.BAD_DATA)
        expect(library.MemoryDesc_addInputRole(desc, program.compilation, 0, 1.0))
        expect(library.MemoryDesc_addInputRole(desc, program.compilation, 0, 1.0), ResultCode.BAD_DATA)
        expect(library.MemoryDesc_setDimensions(desc, 2, uint32s(2, 4)), ResultCode.BAD_DATA)
        expect(library.MemoryDesc_setDimensions(desc, 2, uint32s(2, 3)))
        expect(library.MemoryDesc_finish(desc))
        expect(library.MemoryDesc_finish(desc), ResultCode.BAD_STATE)
        expect(library.MemoryDesc_setDimensions(desc, 2, uint32s(2, 3)), ResultCode.BAD_STATE)
        expect(library.MemoryDesc_addInputRole(desc, program.compilation, 1, 1.0), ResultCode.BAD_STATE)
        expect(library.MemoryDesc_addOutputRole(desc, program.compilation, 0, 1.0), ResultCode.BAD_STATE)
        tensor, other = (library.create("Memory_createFromDesc", desc) for _ in range(2))
        library.MemoryDesc_free(desc)
        execution = program.execution()
        expect(library.Execution_setInputFromMemory(execution, 1, None, tensor, 0, 0), ResultCode.BAD_DATA)
        expect(library.Execution_setInputFromMemory(execution, 0, None, tensor, 0, BYTES), ResultCode.BAD_DATA)
        expect(library.Memory_copy(tensor, small), ResultCode.BAD_DATA)  # uninitialized
        expect(library.Memory_copy(large, tensor), ResultCode.BAD_DATA)
        expect(library.Memory_copy(small, large), ResultCode.BAD_DATA)
        os.pwrite(descriptor, A.tobytes(), 0)
        expect(library.Memory_copy(small, tensor))
        os.pwrite(descriptor, bytes(BYTES), 0)
        expect(library.Memory_copy(tensor, small))
        expect(library.Memory_copy(large, tensor), ResultCode.BAD_DATA)
        expect(library.Memory_copy(tensor, small), ResultCode.BAD_DATA)  # the copy that failed has cleared it
        expect(library.Memory_copy(small, tensor))
        expect(library.Memory_copy(tensor, tensor))
        expect(library.Memory_copy(tensor, small))
        expect(library.Memory_copy(other, tensor), ResultCode.BAD_DATA)  # other is uninitialized
        expect(library.Memory_copy(tensor, small), ResultCode.BAD_DATA)
    assert os.pread(descriptor, BYTES, 0) == A.tobytes()
    for memory in (small, large, tensor, other):
        library.Memory_free(memory)
    os.close(descriptor)


def test_an_execution_that_fails_leaves_its_memory_uninitialized(library: NdkLibrary) -> None:
    descriptor = os.memfd_create("memory")
    os.ftruncate(descriptor, BYTES)
    file = library.create("Memory_createFromFd", BYTES, mmap.PROT_READ | mmap.PROT_WRITE, descriptor, 0)
    with Program.compiled(library) as program:
        tensors = []
        for add_role in (library.MemoryDesc_addInputRole, library.MemoryDesc_addOutputRole):
            desc = library.create("MemoryDesc_create")
            expect(add_role(desc, program.compilation, 0, 1.0))
            expect(library.MemoryDesc_finish(desc))
            tensors.append(library.create("Memory_createFromDesc", desc))
            library.MemoryDesc_free(desc)
        uninitialized, result = tensors
        for code in (ResultCode.OP_FAILED, ResultCode.BAD_DATA):
            expect(library.Memory_copy(file, result))
            execution = program.execution()
            if code == ResultCode.OP_FAILED:  # otherwise an input is missing
                expect(library.Execution_setInputFromMemory(execution, 0, None, uninitialized, 0, 0))
            expect(library.Execution_setInput(execution, 1, None, B.ctypes.data, BYTES))
            expect(library.Execution_setOutputFromMemory(execution, 0, None, result, 0, 0))
            expect(library.Execution_compute(execution), code)
            expect(library.Memory_copy(result, file), ResultCode.BAD_DATA)
    for memory in (file, *tensors):
        library.Memory_free(memory)
    os.close(descriptor)


def test_finished_objects_do_not_take_memories(library: NdkLibrary) -> None:
    descriptor = os.memfd_create("memory")
    os.ftruncate(descriptor, BYTES)
    memory = library.create("Memory_createFromFd", BYTES, mmap.PROT_READ | mmap.PROT_WRITE, descriptor, 0)
    os.close(descriptor)
    with Program.compiled(library) as program:
        expect(library.Model_setOperandValueFromMemory(program.model, 2, memory, 0, 4), ResultCode.BAD_STATE)
        execution = program.bound_execution(np.zeros((2, 3), np.float32))
        expect(library.Execution_compute(execution))
        for name in ("setInputFromMemory", "setOutputFromMemory"):
            set_argument = getattr(library, f"Execution_{name}")
            expect(set_argument(execution, 0, None, memory, 0, BYTES), ResultCode.BAD_STATE)
    library.Memory_free(memory)


def test_events_without_a_sync_fence_have_no_descriptor(library: NdkLibrary) -> None:
    descriptor = ctypes.c_int(7)
    with Program.compiled(library) as program:
        event = program.event("Execution_startCompute", program.bound_execution(np.zeros((2, 3), np.float32)))
        expect(library.Event_getSyncFenceFd(event, ctypes.byref(descriptor)), ResultCode.BAD_DATA)
        assert descriptor.value == -1
    descriptor.value = 7
    expect(library.Event_getSyncFenceFd(None, ctypes.byref(descriptor)), ResultCode.UNEXPECTED_NULL)
    assert descriptor.value == -1
    for number in (-1, 0, 999_999):
        created = ctypes.c_void_p()
        expect(library.Event_createFromSyncFenceFd(number, ctypes.byref(created)), ResultCode.BAD_DATA)


def test_hardware_buffers_exist_on_android_only(library: NdkLibrary) -> None:
    create = library.Memory_createFromAHardwareBuffer(UNKNOWN_HANDLE, ctypes.byref(ctypes.c_void_p()))
    expect(create, ResultCode.OP_FAILED)


def test_nothing_is_left_behind(library: NdkLibrary) -> None:
    before = len(OBJECTS)
    with Program.compiled(library) as program:
        expect(library.Execution_compute(program.bound_execution(np.zeros((2, 3), np.float32))))
        assert len(OBJECTS) == before + 3
    assert len(OBJECTS) == before
