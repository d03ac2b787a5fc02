"""Stop in order: what runs has its grace on every path, and what is cut off is told why."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

import nnhal
from nnhal.types import ErrorStatus
from tests.concurrency import wait_until
from tests.end_to_end.support.raw_client import add_chain, execute_request, open_raw_session, prepare_request
from tests.end_to_end.support.service_process import Service, await_end
from tests.service.supervisor.hostile_service import VALUES, relu_model, start_hostile

pytestmark = pytest.mark.slow

Execute = Callable[[], Any]


@contextmanager
def one_of_each(device: nnhal.Device) -> Iterator[dict[str, Execute]]:
    """Yield an execution for each way to execute. They go to one session, so each has a model of its own."""
    with device.prepare(relu_model()).result(60) as prepared, prepared.burst() as burst:
        yield {"execute": lambda: prepared.execute([VALUES]), "burst": lambda: burst.execute([VALUES])}


def stop_while_executing(service: Service, execute: Execute, behavior: Path, *, finish: bool) -> Any:
    """Stop a service during an execution. Return its result, or its error."""
    results: list[Any] = []

    def work() -> None:
        try:
            results.append(execute())
        except BaseException as error:
            results.append(error)

    execute()
    behavior.write_text("execute wait")
    thread = threading.Thread(target=work)
    thread.start()
    assert wait_until(behavior.with_suffix(".waiting").exists, 60)
    service.process.send_signal(signal.SIGTERM)
    assert wait_until(lambda: service.logged("stopping sessions="), 60)
    if finish:
        behavior.write_text("")
    thread.join(60)
    behavior.write_text("")
    assert await_end(service) == 0, service.log.read_text()
    return results[0]


@pytest.mark.parametrize("way", ["execute", "burst"])
@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_running_execution_is_finished(tmp_path: Path, behavior: Path, transport: Any, way: str) -> None:
    service = start_hostile(tmp_path, behavior, NNHAL_STOP_GRACE_S="60")
    with (
        nnhal.connect(service.target, transport=transport) as device,
        suppress(nnhal.HalError),
        one_of_each(device) as ways,
    ):
        result = stop_while_executing(service, ways[way], behavior, finish=True)
    np.testing.assert_array_equal(result[0], VALUES)


@pytest.mark.parametrize("way", ["execute", pytest.param("burst", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_execution_that_is_cut_off_is_told_why(tmp_path: Path, behavior: Path, transport: Any, way: str) -> None:
    service = start_hostile(tmp_path, behavior, NNHAL_STOP_GRACE_S="0.2")
    with (
        nnhal.connect(service.target, transport=transport) as device,
        suppress(nnhal.HalError),
        one_of_each(device) as ways,
    ):
        device._session._timeout = 4  # only now: a busy service may need longer to respond
        error = stop_while_executing(service, ways[way], behavior, finish=False)
    assert isinstance(error, nnhal.HalError) and error.status == ErrorStatus.DEVICE_UNAVAILABLE, error


def test_no_call_that_is_cut_off_looks_as_if_its_client_had_cancelled_it(tmp_path: Path, behavior: Path) -> None:
    service = start_hostile(tmp_path, behavior, NNHAL_STOP_GRACE_S="0.2")
    with open_raw_session(service.target) as raw:
        *_, event = raw.device.PrepareModel(prepare_request(raw, add_chain(1)))
        request = execute_request(raw, event.notify.prepared_model, [VALUES])
        behavior.write_text("execute hang")
        running = os.cpu_count() or 1
        calls = [raw.prepared_model.ExecuteSynchronously.future(request) for _ in range(2 * running)]
        assert wait_until(behavior.with_suffix(".waiting").exists, 60)
        service.process.send_signal(signal.SIGTERM)
        told = [(call.code(), call.details()) for call in calls]
    assert await_end(service) == 0, service.log.read_text()
    assert {code for code, _ in told} == {grpc.StatusCode.UNAVAILABLE}, told
    assert sum("the service is stopping" in text for _, text in told) >= running, told
