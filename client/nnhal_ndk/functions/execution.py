"""Functions of executions."""

import struct
from functools import partial

from nnhal_ndk.execution.compilation import NdkCompilation
from nnhal_ndk.execution.event import event_of
from nnhal_ndk.execution.execution import NdkBurst, NdkExecution
from nnhal_ndk.execution.memory import NdkMemory
from nnhal_ndk.functions.handles import unpack_handles
from nnhal_ndk.functions.register import ndk_function
from nnhal_ndk.model.operand_type import GivenType
from nnhal_ndk.objects import OBJECTS
from nnhal_ndk.results import NdkError, bad_data


def _execution(handle: int) -> NdkExecution:
    return OBJECTS.get(handle, NdkExecution)


@ndk_function("ANeuralNetworksExecution_create")
def _create(compilation: int) -> tuple[int]:
    return (OBJECTS.add(NdkExecution(OBJECTS.get(compilation, NdkCompilation))),)


@ndk_function("ANeuralNetworksExecution_free")
def _free(execution: int) -> None:
    if not _execution(execution).is_computing:  # Android ignores the call too; the event is to be waited for first
        OBJECTS.remove(execution, NdkExecution)


def _set_buffer(
    execution: int,
    index: int,
    type_: int | None,
    dimensions: bytes | None,
    scale: float | None,
    zero_point: int | None,
    buffer: memoryview | None,
    *,
    is_output: bool,
) -> None:
    given = GivenType.of(type_, dimensions, scale, zero_point)
    _execution(execution).set_buffer(index, given, buffer, is_output=is_output)


def _set_memory(
    execution: int,
    index: int,
    type_: int | None,
    dimensions: bytes | None,
    scale: float | None,
    zero_point: int | None,
    memory: int,
    offset: int,
    length: int,
    *,
    is_output: bool,
) -> None:
    given = GivenType.of(type_, dimensions, scale, zero_point)
    content = OBJECTS.get(memory, NdkMemory)
    _execution(execution).set_memory(index, given, content, offset, length, is_output=is_output)


ndk_function("ANeuralNetworksExecution_setInput")(partial(_set_buffer, is_output=False))
ndk_function("ANeuralNetworksExecution_setInputFromMemory")(partial(_set_memory, is_output=False))
ndk_function("ANeuralNetworksExecution_setOutput")(partial(_set_buffer, is_output=True))
ndk_function("ANeuralNetworksExecution_setOutputFromMemory")(partial(_set_memory, is_output=True))


@ndk_function("ANeuralNetworksExecution_setMeasureTiming")
def _set_measure_timing(execution: int, measure: int) -> None:
    _execution(execution).set_measure_timing(bool(measure))


@ndk_function("ANeuralNetworksExecution_setTimeout")
def _set_timeout(execution: int, duration_ns: int) -> None:
    _execution(execution).set_timeout(duration_ns)


@ndk_function("ANeuralNetworksExecution_setLoopTimeout")
def _set_loop_timeout(execution: int, duration_ns: int) -> None:
    _execution(execution).set_loop_timeout(duration_ns)


@ndk_function("ANeuralNetworksExecution_setReusable")
def _set_reusable(execution: int, reusable: int) -> None:
    _execution(execution).set_reusable(bool(reusable))


@ndk_function("ANeuralNetworksExecution_enableInputAndOutputPadding")
def _enable_padding(execution: int, enable: int) -> None:
    _execution(execution).enable_padding(bool(enable))


@ndk_function("ANeuralNetworksExecution_compute")
def _compute(execution: int) -> None:
    _execution(execution).compute()


@ndk_function("ANeuralNetworksExecution_burstCompute")
def _burst_compute(execution: int, burst: int) -> None:
    _execution(execution).compute_in_burst(OBJECTS.get(burst, NdkBurst))


@ndk_function("ANeuralNetworksExecution_startCompute")
def _start_compute(execution: int) -> tuple[int]:
    return (OBJECTS.add(_execution(execution).start()),)


@ndk_function("ANeuralNetworksExecution_startComputeWithDependencies")
def _start_compute_with_dependencies(execution: int, dependencies: bytes | None, duration_ns: int) -> tuple[int]:
    events = [event_of(handle) for handle in unpack_handles(dependencies)]
    return (OBJECTS.add(_execution(execution).start_after(events, duration_ns)),)


@ndk_function("ANeuralNetworksExecution_getOutputOperandRank")
def _get_output_rank(execution: int, index: int) -> tuple[int]:
    try:
        return (len(_execution(execution).output_dimensions(index)),)
    except NdkError as error:
        raise NdkError(error.code, error.reason, (len(error.values),) if error.values else ()) from None


@ndk_function("ANeuralNetworksExecution_getOutputOperandDimensions")
def _get_output_dimensions(execution: int, index: int) -> tuple[bytes]:
    try:
        dimensions = _execution(execution).output_dimensions(index)
    except NdkError as error:
        raise NdkError(error.code, error.reason, (_pack(error.values),) if error.values else ()) from None
    if not dimensions:
        raise bad_data(f"output {index} is a scalar")
    return (_pack(dimensions),)


def _pack(dimensions: tuple[int, ...]) -> bytes:
    return struct.pack(f"{len(dimensions)}I", *dimensions)


@ndk_function("ANeuralNetworksExecution_getDuration")
def _get_duration(execution: int, code: int) -> tuple[int]:
    return (_execution(execution).duration_ns(code),)
