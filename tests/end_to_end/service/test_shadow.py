"""Shadow of a real service: differences of a wrong backend, kills, hangs, and another service as the shadow."""

import json
import os
import re
import signal
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal.recording.archive import Archive
from nnhal.types import Model, OperandType, OperationType
from tests.concurrency import wait_until
from tests.end_to_end.support.service_process import (
    Service,
    has_ended,
    helper_pid,
    start_service,
    stop_running,
    stop_service,
)
from tests.service.repository.model_files import adding as adding_to_input
from tests.service.repository.model_files import put
from tests.tools.cli.command import invoke
from tests.tools.replay import plugins

pytestmark = pytest.mark.slow
PLUGINS = str(Path(plugins.__file__).parent)
WRONG = ("--shadow", "DefectRef", "--dynamic-backends-path", PLUGINS, "--backends", "CpuRef")
SUM = np.full(2, 100, np.float32)
"""The wrong backend subtracts 2 from sums above 60."""


def adding(operations: int = 1) -> Model:
    b = nnhal.ModelBuilder()
    x = b.input(OperandType.TENSOR_FLOAT32, [2])
    for _ in range(operations):
        x = b.add(OperationType.ADD, x, np.zeros(2, np.float32), 0, output=x.description)
    b.output(x)
    return b.build()


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Service]:
    folder.mkdir(exist_ok=True)
    common = ("--shadow-share", "1", "--http-listen", "127.0.0.1:0")
    service = start_service(folder, *common, *options, NNHAL_STATE_DIR=str(folder / "state"))
    try:
        yield service
    finally:
        assert stop_service(service) == 0


@contextmanager
def prepared(service: Service, model: Model | None = None) -> Iterator[nnhal.PreparedModel]:
    with (
        nnhal.connect(service.target, timeout=60) as device,
        device.prepare(model or adding()).result(60) as model_,
    ):
        yield model_


def results(service: Service) -> Counter[str]:
    """Return the counts of the shadow by result."""
    assert wait_until(lambda: service.logged("http-serving"), 60)
    port = re.findall(r"http-serving port=(\d+)", service.log.read_text())[0]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        rows = re.findall(
            r'nnhal_shadow_executions_total{model="\w+",result="([\w ]+)"} (\d+)', response.read().decode()
        )
    counts: Counter[str] = Counter()
    for result, count in rows:
        counts[result] += int(count)
    return counts


def finished(service: Service, expected: int) -> Counter[str]:
    """Return the counts by result, once there are as many."""
    assert wait_until(lambda: results(service).total() >= expected, 60), results(service)
    return results(service)


def execute(model: nnhal.PreparedModel, count: int, x: np.ndarray = SUM) -> None:
    for _ in range(count):
        np.testing.assert_array_equal(model.execute([x])[0], x)


def test_differences_of_a_wrong_backend_are_counted_and_recorded(tmp_path: Path) -> None:
    with serving(tmp_path / "a", *WRONG, "--record", str(tmp_path / "records"), "--record-share", "1e-9") as service:
        helper_pid(service, "nnhal-shadow")
        with prepared(service) as model:
            execute(model, 12)
            execute(model, 5, SUM / 10)
        counts = finished(service, 17)
        assert (counts["different"], counts["equal"]) == (12, 5)
        log = service.log.read_text()
        assert log.count("shadow-different") == 10 and "output=0" in log
    archive = Archive(tmp_path / "records")
    assert archive.problems == [] and len(archive.records) == 10
    for record in archive.records:
        (x,), (y,) = record.values()
        np.testing.assert_array_equal(x, SUM)
        np.testing.assert_array_equal(y, SUM)
    assert {record.identity for record in archive.records} == {"anonymous"}
    assert len(archive.model(archive.records[0].model).main.operations) == 1


def test_operators_see_names_and_drift_and_choose_models(tmp_path: Path) -> None:
    """The shadow takes one model by its name, and then another one."""
    put(tmp_path / "models/first/2/model.tflite", adding_to_input(0))
    put(tmp_path / "models/second.tflite", adding_to_input(1))
    options = ("--models", str(tmp_path / "models"), "--shadow-models", "first/2")
    state = ("--state-dir", tmp_path / "a/state")

    def drift() -> dict[str, tuple[int, int]]:
        models = json.loads(invoke("top", "--json", *state).stdout)["models"]
        return {each["model_name"]: (each["shadow_compared"], each["shadow_different"]) for each in models}

    with serving(tmp_path / "a", *WRONG, *options) as service, nnhal.connect(service.target, timeout=60) as device:
        helper_pid(service, "nnhal-shadow")
        models = [device.model(name) for name in ("first", "second")]
        switches = [
            ((), "repeats 1 of the executions on DefectRef; model first/2", {"first/2": (3, 3), "second/1": (0, 0)}),
            (
                ("start", "--share", "1", "--model", "second"),
                "repeats 1 of the executions on DefectRef; model second",
                {"first/2": (3, 3), "second/1": (3, 3)},
            ),
            (("stop",), "repeats nothing", {"first/2": (3, 3), "second/1": (3, 3)}),
        ]
        for arguments, status, expected in switches:
            if arguments:
                assert invoke("shadow", *arguments, *state).exit_code == 0
            assert invoke("shadow", "status", *state).stdout == f"{status}\n"
            for model in models * 3:
                model.execute([SUM])
            assert wait_until(lambda expected=expected: drift() == expected, 60), drift()  # type: ignore[misc]
        cache = json.loads(invoke("top", "--json", *state).stdout)["cache"]
        assert sorted(entry["model_name"] for entry in cache["entries"]) == ["first/2", "second/1"]
        listed = json.loads(invoke("cache", "list", "--json", "--cache-dir", cache["directory"]).stdout)
        assert sorted(entry["name"] for entry in listed) == ["first/2", "second/1"]
        assert results(service) == {"different": 6}
    assert re.search(r"audit action=shadow by=user:.* models=second ", service.log.read_text())


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.nightly)])
def test_client_does_not_notice_kills(tmp_path: Path, kills: int) -> None:
    with serving(tmp_path / "a", *WRONG) as service, prepared(service) as model:
        worker, is_over, executed, failures = service.pid, threading.Event(), list[int](), list[BaseException]()

        def run() -> None:
            try:
                while not is_over.is_set():
                    execute(model, 1)
                    executed.append(1)
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        pid = 0
        for _ in range(kills):
            pid, before = helper_pid(service, "nnhal-shadow", pid), len(executed)
            os.kill(pid, signal.SIGKILL)
            assert wait_until(lambda pid=pid: has_ended(pid))  # type: ignore[misc]
            assert wait_until(lambda before=before: len(executed) > before + 10)  # type: ignore[misc]
        helper_pid(service, "nnhal-shadow", pid)
        compared = results(service)["different"]
        assert wait_until(lambda: results(service)["different"] > compared, 60), "the last one works"
        is_over.set()
        thread.join()
        assert not failures and service.pid == worker
        assert service.log.read_text().count("shadow-died") == kills


def test_shadow_that_hangs_drops_executions_and_catches_up(tmp_path: Path) -> None:
    with serving(tmp_path / "a", *WRONG) as service, prepared(service) as model:
        pid = helper_pid(service, "nnhal-shadow")
        execute(model, 1)
        finished(service, 1)
        stop_running(pid)
        execute(model, 400)
        assert wait_until(lambda: results(service)["dropped"] > 100, 60)
        os.kill(pid, signal.SIGCONT)
        assert finished(service, 401)["different"] > 10
        assert results(service).total() == 401 and not service.logged("shadow-died")


def test_another_service_is_the_shadow(tmp_path: Path) -> None:
    with serving(tmp_path / "b", "--backends", "CpuRef") as other:
        with serving(tmp_path / "a", "--shadow", other.target) as service:
            helper_pid(service, "nnhal-shadow")
            with prepared(service) as model:
                execute(model, 5)
            assert finished(service, 5) == {"equal": 5}
        assert not results(other)


@pytest.mark.nightly
def test_dead_shadow_is_reported(tmp_path: Path) -> None:
    with serving(tmp_path / "a", "--shadow", f"unix:{tmp_path}/none") as service, prepared(service) as model:
        execute(model, 300)
        assert wait_until(lambda: service.logged("shadow-died"), 60)
        assert results(service)["dropped"] > 0
        assert "is the service running" in service.log.read_text()
