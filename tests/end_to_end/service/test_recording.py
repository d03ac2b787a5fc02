"""Recording of executions by real services: all paths, switches by an operator, kills, and a folder of two services."""

import os
import re
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal.client.core.session import Transport
from nnhal.recording.archive import Archive
from nnhal.types import AnyArray
from tests.cache.users import needs_root
from tests.concurrency import run_concurrently, wait_until
from tests.end_to_end.support.models import chain
from tests.end_to_end.support.service_process import Service, has_ended, start_service, stop_service
from tests.tools.cli.command import invoke

pytestmark = pytest.mark.slow
Run = Callable[[nnhal.PreparedModel, Sequence[AnyArray]], object]


def start(root: Path, name: str, share: float, *options: str) -> Service:
    folder = root / name
    folder.mkdir()
    recording = ("--record", str(root / "records"), "--record-share", str(share))
    return start_service(folder, *recording, *options, NNHAL_STATE_DIR=str(folder / "state"))


def values(count: int) -> list[AnyArray]:
    return [np.array([number, 1], np.float32) for number in range(count)]


@contextmanager
def connected(target: str, length: int = 2, transport: Transport = "auto") -> Iterator[nnhal.PreparedModel]:
    with (
        nnhal.connect(target, timeout=60, transport=transport) as device,
        device.prepare(chain(length)).result(60) as model,
    ):
        yield model


def execute(target: str, count: int, transport: Transport) -> None:
    with connected(target, transport=transport) as model:
        for x in values(count):
            model.execute([x])


def _run_burst(model: nnhal.PreparedModel, arrays: Sequence[AnyArray]) -> None:
    with model.burst() as burst:
        burst.execute(arrays)


@pytest.mark.parametrize("transport", ["grpc", "auto"])
def test_all_paths_and_operators(tmp_path: Path, transport: Transport) -> None:
    service = start(tmp_path, "a", 0, "--listen", f"unix:{tmp_path}/s", "--workers", "2")
    state = ("--state-dir", tmp_path / "a/state")
    runs: Sequence[Run] = (
        lambda model, arrays: model.execute(arrays),
        lambda model, arrays: model.execute_fenced(arrays).result(),
        _run_burst,
    )
    execute(service.target, 3, transport=transport)
    assert "records nothing" in invoke("record", "status", *state).stdout
    assert "2 workers recording 1 of the executions" in invoke("record", "start", "--share", "1", *state).stdout
    with connected(service.target, transport=transport) as model:
        for run in runs:
            for x in values(3):
                run(model, [x])
    assert re.search(r"\n9 records, .* to ", invoke("record", "status", *state).stdout)
    assert "stopped recording" in invoke("record", "stop", *state).stdout
    execute(service.target, 3, transport=transport)
    archive = Archive(tmp_path / "records")
    assert len(archive.records) == 9 and archive.problems == []
    for record in archive.records:
        (before,), (after,) = record.values()
        assert before is not None
        np.testing.assert_array_equal(after, 4 * before)
    assert Counter(record.path for record in archive.records)["fenced"] == 3
    assert archive.model(archive.records[0].model).main.operations == chain(2).main.operations
    log = service.log.read_text()
    assert "audit action=record by=user:" in log and "share=1.000" in log and "share=0.000" in log
    assert stop_service(service) == 0


def test_kills_lose_no_record_that_was_answered(tmp_path: Path) -> None:
    """Each service has a client. The worker of the first one is killed meanwhile, and its client goes on."""
    services = [start(tmp_path, name, 1) for name in "ab"]
    answered: list[set[float]] = [set(), set()]
    is_killed = threading.Event()

    def run(number: int) -> None:
        with connected(services[number].target, 2 + number) as model:
            while len(answered[number]) < 300 if number else not is_killed.is_set():
                x = float(len(answered[number]))
                model.execute([np.array([x, 1], np.float32)])
                answered[number].add(x)

    def kill(number: int) -> None:
        for _ in range(3):
            count = len(answered[0])
            assert wait_until(lambda count=count: len(answered[0]) > count + 10)  # type: ignore[misc]
            pid = services[0].pid
            os.kill(pid, signal.SIGKILL)
            assert wait_until(lambda pid=pid: has_ended(pid))  # type: ignore[misc]
        is_killed.set()

    run_concurrently(3, lambda number: kill(number) if number == 2 else run(number))
    archive = Archive(tmp_path / "records")
    assert len(archive.problems) <= 3  # a record that was being written
    recorded: dict[int, set[float]] = {2: set(), 3: set()}
    for record in archive.records:
        (x,), (y,) = record.values()
        assert x is not None
        length = len(archive.model(record.model).main.operations)
        np.testing.assert_array_equal(y, 2**length * x)
        recorded[length].add(float(x[0]))
    assert recorded[2] >= answered[0] and recorded[3] == answered[1]
    assert [stop_service(service) for service in services] == [0, 0]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield the folder of the recordings, a disk of 256 KiB."""
    folder = tmp_path / "records"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", folder], check=False).returncode:
        pytest.skip("this user may not mount a disk")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@needs_root
def test_full_disk(tmp_path: Path, small_disk: Path) -> None:
    """Executions go on, whole records stay, and recording goes on when there is room again."""
    service = start(tmp_path, "a", 1)
    with connected(service.target, transport="grpc") as model:
        for x in values(600):
            np.testing.assert_array_equal(model.execute([x])[0], 4 * x)
        assert service.logged("record-failed") and "No space left on device" in service.log.read_text()
        kept = Archive(small_disk)
        assert 0 < len(kept.records) < 600 and kept.problems == []
        subprocess.run(["mount", "-o", "remount,size=16m", small_disk], check=True)
        for x in values(20):
            model.execute([x])
    assert stop_service(service) == 0
    archive = Archive(small_disk)
    assert len(archive.records) == len(kept.records) + 20 and archive.problems == []
