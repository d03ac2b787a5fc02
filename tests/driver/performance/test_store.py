"""Store of performance figures: they are measured once and never change."""

import json
import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from nnhal.types import Capabilities, PerformanceInfo
from nnhal_driver.backends.api import Backend
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceHost
from nnhal_driver.performance.benchmark_models import BENCHMARK_MODELS
from nnhal_driver.performance.measurement import Figures
from nnhal_driver.performance.store import PerformanceStore


def capabilities_of(store: PerformanceStore, *backends: Backend, version: str = "1") -> Capabilities:
    return store.capabilities(backends or [CpuRef()], version)


class Measurements:
    """Substitute for `measure` that returns other figures each time, and pauses to let other threads interfere."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, backends: Sequence[Backend]) -> Figures:
        self.count += 1
        figure = self.count / 8
        time.sleep(0.02)
        return {
            group: None if group == "quant16" else PerformanceInfo(figure, 2 * figure) for group in BENCHMARK_MODELS
        }


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> Measurements:
    fake = Measurements()
    monkeypatch.setattr("nnhal_driver.performance.store.measure", fake)
    return fake


def test_another_process_reads_the_file(tmp_path: Path, measurements: Measurements) -> None:
    first = capabilities_of(PerformanceStore(tmp_path / "new" / "folder"))
    assert capabilities_of(PerformanceStore(tmp_path / "new" / "folder")) == first
    assert measurements.count == 1
    (path,) = tmp_path.glob("*/*/*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(tmp_path.glob("**/*.new")) == []


def test_devices_of_one_process_share_figures(measurements: Measurements) -> None:
    store = PerformanceStore()
    devices = [Device(name, [CpuRef()], host=DeviceHost(performance=store)) for name in "ab"]
    assert devices[0].get_capabilities() == devices[1].get_capabilities()
    for device in devices:
        device.close()
    assert measurements.count == 1


def test_nothing_is_measured_before_the_first_request(tmp_path: Path, measurements: Measurements) -> None:
    Device("a", [CpuRef()], host=DeviceHost(performance=PerformanceStore(tmp_path))).close()
    assert (measurements.count, list(tmp_path.iterdir())) == (0, [])


def test_each_version_and_engine_has_figures_of_its_own(tmp_path: Path, measurements: Measurements) -> None:
    class Updated(CpuRef):
        def fingerprint(self) -> str:
            return "engine 2"

    def all_capabilities() -> list[Capabilities]:
        return [
            capabilities_of(PerformanceStore(tmp_path)),
            capabilities_of(PerformanceStore(tmp_path), version="2"),
            capabilities_of(PerformanceStore(tmp_path), Updated()),
        ]

    first = all_capabilities()
    assert measurements.count == 3
    assert all_capabilities() == first
    assert measurements.count == 3


def _write_file(folder: Path) -> tuple[Path, Capabilities]:
    capabilities = capabilities_of(PerformanceStore(folder))
    (path,) = folder.glob("*.json")
    return path, capabilities


def _with_figure(text: str, figure: object) -> str:
    content = json.loads(text)
    content["figures"]["float32"] = figure
    return json.dumps(content)


@pytest.mark.parametrize(
    "damaged",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "null",
        lambda text: text.replace("float32", "float33"),
        lambda text: text.replace('"version": "1"', '"version": "2"'),
        lambda text: _with_figure(text, [0.0, 1.0]),
        lambda text: _with_figure(text, [-1.0, 1.0]),
        lambda text: _with_figure(text, [float("nan"), 1.0]),
        lambda text: _with_figure(text, [float("inf"), 1.0]),
        lambda text: _with_figure(text, [1.0]),
        lambda text: _with_figure(text, ["1.0", "1.0"]),
        lambda text: _with_figure(text, 1.0),
        lambda text: "[" * 60_000,
    ],
)
def test_damaged_file_is_replaced(tmp_path: Path, damaged: Callable[[str], str], measurements: Measurements) -> None:
    path, _ = _write_file(tmp_path)
    path.write_text(damaged(path.read_text()))
    after = capabilities_of(PerformanceStore(tmp_path))
    assert measurements.count == 2
    assert capabilities_of(PerformanceStore(tmp_path)) == after
    assert measurements.count == 2


@pytest.mark.usefixtures("measurements")
def test_file_that_others_can_write_is_replaced(tmp_path: Path) -> None:
    path, before = _write_file(tmp_path)
    path.chmod(0o622)
    assert capabilities_of(PerformanceStore(tmp_path)) != before
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.usefixtures("measurements")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_file_of_another_user_is_replaced(tmp_path: Path) -> None:
    path, before = _write_file(tmp_path)
    os.chown(path, 12345, 12345)
    assert capabilities_of(PerformanceStore(tmp_path)) != before
    assert path.stat().st_uid == os.geteuid()


@pytest.mark.usefixtures("measurements")
def test_link_or_pipe_in_place_of_the_file_is_replaced(tmp_path: Path) -> None:
    path, before = _write_file(tmp_path)
    path.rename(tmp_path / "target")
    path.symlink_to(tmp_path / "target")
    after = capabilities_of(PerformanceStore(tmp_path))
    assert after != before
    path.unlink()
    os.mkfifo(path)
    last = capabilities_of(PerformanceStore(tmp_path))
    assert last != after
    assert capabilities_of(PerformanceStore(tmp_path)) == last
    assert path.is_file()


@pytest.mark.parametrize("folder", ["a file/state", "a file"])
def test_unusable_folder_is_logged(
    tmp_path: Path, folder: str, caplog: pytest.LogCaptureFixture, measurements: Measurements
) -> None:
    (tmp_path / "a file").touch()
    store = PerformanceStore(tmp_path / folder)
    first = capabilities_of(store)
    assert "cannot be kept" in caplog.text
    assert capabilities_of(store) == first, "for the life of this process"
    assert measurements.count == 1


def test_full_disk_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, measurements: Measurements
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    store = PerformanceStore(tmp_path)
    assert capabilities_of(store) == capabilities_of(store)
    assert "No space left" in caplog.text
    assert measurements.count == 1
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_concurrent_threads_measure_once(tmp_path: Path, measurements: Measurements) -> None:
    store = PerformanceStore(tmp_path)
    results: list[Capabilities] = []
    threads = [threading.Thread(target=lambda: results.append(capabilities_of(store))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert all(result == results[0] for result in results)
    assert measurements.count == 1


@pytest.mark.usefixtures("measurements")
def test_processes_that_start_together_agree(tmp_path: Path) -> None:
    """Each object represents a process. They share only the folder."""
    results: list[Capabilities] = []
    threads = [
        threading.Thread(target=lambda: results.append(capabilities_of(PerformanceStore(tmp_path)))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4
    assert all(result == results[0] for result in results)


@pytest.mark.usefixtures("measurements")
def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    capabilities_of(PerformanceStore(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    for version in "23":
        capabilities_of(PerformanceStore(tmp_path), version=version)
        capabilities_of(PerformanceStore(tmp_path), version=version)
    assert len(os.listdir("/proc/self/fd")) == before
