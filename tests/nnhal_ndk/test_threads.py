"""Mistakes of programs with several threads: one object used by all of them."""

import ctypes
import threading
from collections.abc import Callable

import numpy as np

from nnhal_ndk.api.constants import ResultCode
from nnhal_ndk.objects import OBJECTS
from nnhal_tools.conformance.device.ndk_library import NdkLibrary
from tests.nnhal_ndk.programs import BYTES, A, B, Program, add_tensors_model, expect

THREADS, CALLS = 4, 20


def _in_threads(call: Callable[[], int]) -> list[ResultCode]:
    """Return the results of many calls from several threads."""
    codes: list[ResultCode] = []

    def run() -> None:
        for _ in range(CALLS):
            codes.append(ResultCode(call()))

    threads = [threading.Thread(target=run) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(codes) == THREADS * CALLS
    return codes


def test_one_computation_of_an_execution_is_in_progress(library: NdkLibrary) -> None:
    result = np.zeros((2, 3), np.float32)
    with Program.compiled(library) as program:
        execution = program.execution()
        expect(library.Execution_setReusable(execution, True))
        for index, value in enumerate((A, B)):
            expect(library.Execution_setInput(execution, index, None, value.ctypes.data, BYTES))
        expect(library.Execution_setOutput(execution, 0, None, result.ctypes.data, BYTES))
        codes = _in_threads(lambda: library.Execution_compute(execution))
    assert ResultCode.NO_ERROR in codes
    assert set(codes) <= {ResultCode.NO_ERROR, ResultCode.BAD_STATE}
    assert (result == A + B).all()


def test_one_thread_at_a_time_uses_a_burst(library: NdkLibrary) -> None:
    with Program.compiled(library) as program:
        burst = library.create("Burst_create", program.compilation)

        def compute() -> int:
            result = np.zeros((2, 3), np.float32)
            execution = library.create("Execution_create", program.compilation)
            for index, value in enumerate((A, B)):
                expect(library.Execution_setInput(execution, index, None, value.ctypes.data, BYTES))
            expect(library.Execution_setOutput(execution, 0, None, result.ctypes.data, BYTES))
            code = library.Execution_burstCompute(execution, burst)
            library.Execution_free(execution)
            assert (result == (A + B if code == ResultCode.NO_ERROR else 0)).all()
            return code

        codes = _in_threads(compute)
        library.Burst_free(burst)
    assert ResultCode.NO_ERROR in codes
    assert set(codes) <= {ResultCode.NO_ERROR, ResultCode.BAD_STATE}


def test_a_model_is_finished_by_several_threads(library: NdkLibrary) -> None:
    model = add_tensors_model(library)
    indexes = (ctypes.c_uint32 * 3)(0, 1, 3)
    outputs = ctypes.addressof(indexes) + 8
    expect(library.Model_identifyInputsAndOutputs(model, 2, indexes, 1, outputs))
    codes = _in_threads(lambda: library.Model_finish(model))
    assert set(codes) == {ResultCode.NO_ERROR, ResultCode.BAD_STATE}
    library.Model_free(model)


def test_an_object_is_freed_once(library: NdkLibrary) -> None:
    before = len(OBJECTS)
    model = library.create("Model_create")

    def free() -> int:
        library.Model_free(model)
        return 0

    _in_threads(free)
    assert len(OBJECTS) == before
    expect(library.Model_finish(model), ResultCode.BAD_DATA)
