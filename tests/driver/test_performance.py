"""Performance figures: what they say, and that they never change once they were measured."""

import json
import os
import stat
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from driver.backends import registry
from driver.backends.api import (
    Backend,
    CompiledSubgraph,
    CompileOptions,
    OperationView,
    Output,
    Run,
    SubgraphView,
    Support,
)
from driver.backends.reference.backend import CpuRef
from driver.device import Device
from driver.performance import FLT_MAX, Figures, Performance, measure
from driver.validation.model import validate_model
from driver.workloads import TYPES, WORKLOADS, inputs
from nnhal.types import AnyArray, Capabilities, OperandType, OperationType, PerformanceInfo
from tests.driver.one_operation import device, execute, prepare
from tests.shared import shared

ACCELERATED = ("CpuAcc", "CpuRef")


class Slow(CpuRef):
    """CpuRef with a rest before each subgraph: many times the time that a workload takes."""

    id = "Slow"

    def __init__(self, draws: float) -> None:
        super().__init__()
        self.draws = draws

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        return Resting(super().compile(subgraph, options))

    def performance(self) -> PerformanceInfo:
        return PerformanceInfo(2.0, 2.0 * self.draws)


class Resting(CompiledSubgraph):
    def __init__(self, behind: CompiledSubgraph) -> None:
        self.behind = behind

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        time.sleep(2e-3)
        self.behind.execute(inputs, outputs, run)


class OnlyAdd(CpuRef):
    id = "OnlyAdd"

    def supports(self, operation: OperationView) -> Support:
        return Support() if operation.type == OperationType.ADD else Support("only ADD")


def figures(capabilities: Capabilities) -> dict[int, PerformanceInfo]:
    return {entry.type: entry.info for entry in capabilities.operand_performance}


def asked(performance: Performance, *backends: Backend, version: str = "1") -> Capabilities:
    return performance.capabilities(backends or [CpuRef()], version)


# ---- What they say --------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", WORKLOADS)
def test_workloads_are_valid_and_run(group: str) -> None:
    model = WORKLOADS[group]()
    validate_model(model)
    _, outputs = execute(prepare(model), inputs(model))
    assert all(np.isfinite(output.astype(np.float64)).all() for output in outputs)


def test_every_operand_type_has_a_group() -> None:
    assert set(TYPES) == set(OperandType) - {OperandType.SUBGRAPH}
    assert set(TYPES.values()) | {"relaxed", "if", "while"} == set(WORKLOADS)


def test_the_reference_is_as_fast_as_itself() -> None:
    capabilities = device().get_capabilities()
    assert set(figures(capabilities).values()) == {PerformanceInfo(1.0, 1.0)}
    assert capabilities.if_performance == capabilities.while_performance == PerformanceInfo(1.0, 1.0)
    assert list(figures(capabilities)) == sorted(set(OperandType) - {OperandType.SUBGRAPH})


def test_a_slow_backend_has_high_figures_and_its_power_goes_with_them() -> None:
    capabilities = asked(Performance(), Slow(3.0), CpuRef())
    for info in (*figures(capabilities).values(), capabilities.if_performance, capabilities.while_performance):
        assert info.exec_time > 1.5
        assert info.power_usage == pytest.approx(3 * info.exec_time, rel=0.01)


def test_what_nobody_does_is_left_out() -> None:
    """OnlyAdd runs the loops' and branches' sums, and not a whole workload of any other group but IF's."""
    capabilities = asked(Performance(), OnlyAdd())
    assert figures(capabilities) == {}
    assert capabilities.relaxed_float32_to_float16_performance_tensor == PerformanceInfo(FLT_MAX, FLT_MAX)
    assert capabilities.while_performance == PerformanceInfo(FLT_MAX, FLT_MAX)
    assert capabilities.if_performance.exec_time < FLT_MAX


def test_the_accelerated_backend_is_measured() -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    found = measure(registry.create(ACCELERATED))
    assert all(info is not None and 0 < info.exec_time < FLT_MAX for info in found.values())
    assert found["quant16"] == PerformanceInfo(1.0, 1.0), "CpuRef runs it here as there"
    assert len({info.exec_time for info in found.values() if info}) > 2


# ---- That they never change -----------------------------------------------------------------------------


class Measurements:
    """Stands for `measure`: other figures each time, and slow enough for others to come in between."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, backends: Sequence[Backend]) -> Figures:
        self.count += 1
        figure = self.count / 8
        time.sleep(0.02)
        return {group: None if group == "quant16" else PerformanceInfo(figure, 2 * figure) for group in WORKLOADS}


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> Measurements:
    made = Measurements()
    monkeypatch.setattr("driver.performance.measure", made)
    return made


def test_another_process_takes_what_is_kept(tmp_path: Path, measurements: Measurements) -> None:
    first = asked(Performance(tmp_path / "made" / "here"))
    assert asked(Performance(tmp_path / "made" / "here")) == first
    assert measurements.count == 1
    (path,) = tmp_path.glob("*/*/*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert list(tmp_path.glob("**/*.new")) == []


def test_devices_of_one_process_share_them(measurements: Measurements) -> None:
    """Also where there is no folder."""
    performance = Performance()
    one, other = (Device(name, [CpuRef()], performance=performance) for name in "ab")
    assert one.get_capabilities() == other.get_capabilities()
    for each in (one, other):
        each.close()
    assert measurements.count == 1


def test_nothing_is_measured_before_somebody_asks(tmp_path: Path, measurements: Measurements) -> None:
    Device("a", [CpuRef()], performance=Performance(tmp_path)).close()
    assert (measurements.count, list(tmp_path.iterdir())) == (0, [])


def test_another_version_or_engine_is_measured_on_its_own(tmp_path: Path, measurements: Measurements) -> None:
    class Updated(CpuRef):
        def fingerprint(self) -> str:
            return "engine 2"

    def all_three() -> list[Capabilities]:
        return [
            asked(Performance(tmp_path)),
            asked(Performance(tmp_path), version="2"),
            asked(Performance(tmp_path), Updated()),
        ]

    first = all_three()
    assert measurements.count == 3
    assert all_three() == first
    assert measurements.count == 3


def _kept(folder: Path) -> tuple[Path, Capabilities]:
    found = asked(Performance(folder))
    (path,) = folder.glob("*.json")
    return path, found


def _with_figure(text: str, figure: object) -> str:
    kept = json.loads(text)
    kept["figures"]["float32"] = figure
    return json.dumps(kept)


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
def test_a_damaged_file_is_replaced(tmp_path: Path, damaged: Callable[[str], str], measurements: Measurements) -> None:
    path, _ = _kept(tmp_path)
    path.write_text(damaged(path.read_text()))
    after = asked(Performance(tmp_path))
    assert measurements.count == 2
    assert asked(Performance(tmp_path)) == after
    assert measurements.count == 2


@pytest.mark.usefixtures("measurements")
def test_a_file_that_others_can_write_is_replaced(tmp_path: Path) -> None:
    path, before = _kept(tmp_path)
    path.chmod(0o622)
    assert asked(Performance(tmp_path)) != before
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.usefixtures("measurements")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_replaced(tmp_path: Path) -> None:
    path, before = _kept(tmp_path)
    os.chown(path, 12345, 12345)
    assert asked(Performance(tmp_path)) != before
    assert path.stat().st_uid == os.geteuid()


@pytest.mark.usefixtures("measurements")
def test_a_link_or_a_pipe_in_its_place_is_replaced(tmp_path: Path) -> None:
    path, before = _kept(tmp_path)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    after = asked(Performance(tmp_path))
    assert after != before
    path.unlink()
    os.mkfifo(path)
    last = asked(Performance(tmp_path))
    assert last != after
    assert asked(Performance(tmp_path)) == last
    assert path.is_file()


@pytest.mark.parametrize("place", ["a file/state", "a file"])
def test_a_folder_that_cannot_be_used_is_logged(
    tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture, measurements: Measurements
) -> None:
    (tmp_path / "a file").touch()
    performance = Performance(tmp_path / place)
    found = asked(performance)
    assert "cannot be kept" in caplog.text
    assert asked(performance) == found, "for the life of this process"
    assert measurements.count == 1


def test_a_disk_that_is_full_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, measurements: Measurements
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    performance = Performance(tmp_path)
    assert asked(performance) == asked(performance)
    assert "No space left" in caplog.text
    assert measurements.count == 1
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_many_threads_measure_once(tmp_path: Path, measurements: Measurements) -> None:
    performance = Performance(tmp_path)
    found: list[Capabilities] = []
    threads = [threading.Thread(target=lambda: found.append(asked(performance))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(one == found[0] for one in found)
    assert measurements.count == 1


@pytest.mark.usefixtures("measurements")
def test_processes_that_start_together_agree(tmp_path: Path) -> None:
    """Each object stands for a process: they know of each other by the folder alone."""
    found: list[Capabilities] = []
    threads = [threading.Thread(target=lambda: found.append(asked(Performance(tmp_path)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(one == found[0] for one in found)


@pytest.mark.usefixtures("measurements")
def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    asked(Performance(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    for version in "23":
        asked(Performance(tmp_path), version=version)
        asked(Performance(tmp_path), version=version)
    assert len(os.listdir("/proc/self/fd")) == before


def test_real_models_run_wholly_on_the_accelerated_backend() -> None:
    """Merging and regions leave them in one piece."""
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    import nnhal.tflite
    from driver.graph import graphs
    from driver.placement import place

    for name in ("kws_ref_model.tflite", "vww_96_float.tflite", "mobilenet_v2_1.0_224_quant.tflite"):
        placement = place(graphs(nnhal.tflite.load(shared(f"models/{name}"))), registry.create(ACCELERATED))
        assert [partition.backend for partition in placement.partitions] == ["CpuAcc"]
