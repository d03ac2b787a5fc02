"""Services that die: result codes, and recovery when the service is there again."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from nnhal_ndk.api.constants import ResultCode
from nnhal_ndk.device_list import DeviceSource
from nnhal_ndk.devices import NdkDevice
from nnhal_ndk.objects import OBJECTS
from nnhal_tools.conformance.device.ndk_library import NdkLibrary, handles
from tests.concurrency import wait_until
from tests.end_to_end.support.service_process import Service, await_end, has_ended, start_service, stop_running
from tests.nnhal_ndk.programs import A, B, Program, expect, finished_model


@pytest.fixture
def mortal_service(tmp_path: Path) -> Iterator[Service]:
    service = start_service(tmp_path, "--backends", "CpuRef")
    yield service
    service.process.terminate()
    await_end(service)


@pytest.fixture
def mortal_device(library: NdkLibrary, mortal_service: Service) -> Iterator[NdkDevice]:
    """Yield a device of a service that the test may kill."""
    with closing(NdkDevice(DeviceSource(mortal_service.target, options={"timeout": 60.0}))) as device:
        yield device
    OBJECTS.remove(device.handle, NdkDevice)


def _compilation(library: NdkLibrary, device: NdkDevice, model: int) -> int:
    return library.create("Compilation_createForDevices", model, handles(device.handle), 1)


def _compiled(library: NdkLibrary, device: NdkDevice) -> Program:
    model = finished_model(library)
    program = Program(library, model, _compilation(library, device, model))
    expect(library.Compilation_finish(program.compilation))
    return program


def _wait(library: NdkLibrary, program: Program, name: str, *arguments: object) -> int:
    return library.Event_wait(program.event(name, *arguments))


def test_calls_after_the_death_of_the_service_fail_with_dead_object(
    library: NdkLibrary, mortal_service: Service, mortal_device: NdkDevice
) -> None:
    result, pid = np.zeros((2, 3), np.float32), mortal_service.pid
    with _compiled(library, mortal_device) as program:
        burst = library.create("Burst_create", program.compilation)
        expect(library.Execution_compute(program.bound_execution(result)))
        expect(library.Execution_burstCompute(program.bound_execution(result), burst))
        stop_running(pid)
        event = program.event("Execution_startCompute", program.bound_execution(result))
        mortal_device.hal._session._timeout = 0.1  # only now: a busy service may need longer to respond
        mortal_service.process.kill()
        assert wait_until(lambda: has_ended(pid), 60)
        expect(library.Event_wait(event), ResultCode.DEAD_OBJECT)

        supported, other = np.zeros(1, np.bool_), _compilation(library, mortal_device, program.model)

        def execution() -> int:
            return program.bound_execution(result)

        calls: list[Callable[[], int]] = [
            lambda: library.Execution_compute(execution()),
            lambda: library.Execution_burstCompute(execution(), burst),
            lambda: _wait(library, program, "Execution_startComputeWithDependencies", execution(), None, 0, 0),
            lambda: library.Compilation_finish(other),
            lambda: library.number("Burst_create", program.compilation)[0],
            lambda: library.Model_getSupportedOperationsForDevices(
                program.model, handles(mortal_device.handle), 1, supported.ctypes.data
            ),
        ]
        for call in calls:
            expect(call(), ResultCode.DEAD_OBJECT)
        library.Burst_free(burst)
        library.Compilation_free(other)


def test_a_failed_dependency_fails_the_execution(
    library: NdkLibrary, mortal_service: Service, mortal_device: NdkDevice
) -> None:
    result, pid = np.zeros((2, 3), np.float32), mortal_service.pid
    with _compiled(library, mortal_device) as dead, Program.compiled(library) as alive:
        stop_running(pid)
        first = dead.event("Execution_startCompute", dead.bound_execution(result))
        second = alive.event(
            "Execution_startComputeWithDependencies", alive.bound_execution(result), handles(first), 1, 0
        )
        mortal_device.hal._session._timeout = 0.1
        mortal_service.process.kill()
        expect(library.Event_wait(first), ResultCode.DEAD_OBJECT)
        expect(library.Event_wait(second), ResultCode.OP_FAILED)
    assert not result.any()


def test_a_compilation_survives_a_restart_of_its_service(
    library: NdkLibrary, mortal_service: Service, mortal_device: NdkDevice
) -> None:
    result, pid = np.zeros((2, 3), np.float32), mortal_service.pid
    with _compiled(library, mortal_device) as program:
        execution = program.execution()
        expect(library.Execution_setReusable(execution, True))
        for index, value in enumerate((A, B)):
            expect(library.Execution_setInput(execution, index, None, value.ctypes.data, value.nbytes))
        expect(library.Execution_setOutput(execution, 0, None, result.ctypes.data, result.nbytes))
        expect(library.Execution_compute(execution))
        os.kill(pid, signal.SIGKILL)  # its supervisor starts another one
        assert wait_until(lambda: has_ended(pid), 60)
        result.fill(0)
        expect(library.Execution_compute(execution))
    assert (result == A + B).all()
