"""Performance figures: what they say, and that they never change once they were measured."""

import itertools
import json
import os
import stat
import threading
import time
from collections.abc import Sequence
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
from driver.performance import FLT_MAX, Performance, measure
from driver.validation.model import validate_model
from driver.workloads import TYPES, WORKLOADS, inputs
from nnhal.types import AnyArray, Capabilities, OperandType, OperationType, PerformanceInfo
from tests.driver.one_operation import device, execute, prepare
from tests.shared import shared

ACCELERATED = ("CpuAcc", "CpuRef")


class Slow(CpuRef):
    """CpuRef with a rest before each subgraph: a multiple of its time, more of it at each measurement."""

    id = "Slow"
    measured = itertools.count(1)

    def __init__(self, draws: float = 1.0) -> None:
        super().__init__()
        self.compiled = 0
        self.rest = next(Slow.measured) * 1e-3
        self.draws = draws

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        self.compiled += 1
        return Resting(super().compile(subgraph, options), self.rest)

    def performance(self) -> PerformanceInfo:
        return PerformanceInfo(2.0, 2.0 * self.draws)


class Resting(CompiledSubgraph):
    def __init__(self, behind: CompiledSubgraph, rest: float) -> None:
        self.behind, self.rest = behind, rest

    def execute(self, inputs: Sequence[AnyArray | None], outputs: Sequence[Output], run: Run) -> None:
        time.sleep(self.rest)
        self.behind.execute(inputs, outputs, run)


class OnlyAdd(CpuRef):
    id = "OnlyAdd"

    def supports(self, operation: OperationView) -> Support:
        return Support() if operation.type == OperationType.ADD else Support("only ADD")


def figures(capabilities: Capabilities) -> dict[int, PerformanceInfo]:
    return {entry.type: entry.info for entry in capabilities.operand_performance}


def asked(performance: Performance, *backends: Backend, version: str = "1") -> Capabilities:
    return performance.capabilities(backends, version)


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
    capabilities = asked(Performance(), Slow(draws=3.0), CpuRef())
    for info in (*figures(capabilities).values(), capabilities.if_performance, capabilities.while_performance):
        assert info.exec_time > 1.5
        assert info.power_usage == pytest.approx(3 * info.exec_time, rel=0.01)


def test_what_nobody_does_is_left_out() -> None:
    capabilities = asked(Performance(), OnlyAdd())
    assert set(figures(capabilities)) == {OperandType.INT32, OperandType.UINT32, OperandType.TENSOR_INT32} - {
        type_ for type_, group in TYPES.items() if group == "int32"
    }
    assert capabilities.relaxed_float32_to_float16_performance_tensor == PerformanceInfo(FLT_MAX, FLT_MAX)
    assert capabilities.if_performance.exec_time < FLT_MAX


def test_the_accelerated_backend_is_measured() -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")
    found = measure(registry.create(ACCELERATED))
    assert all(info is not None and 0 < info.exec_time < FLT_MAX for info in found.values())
    assert found["quant16"] == PerformanceInfo(1.0, 1.0), "CpuRef runs it here as there"
    assert len({info.exec_time for info in found.values() if info}) > 2


# ---- That they never change -----------------------------------------------------------------------------


def test_another_process_takes_what_is_kept(tmp_path: Path) -> None:
    first = asked(Performance(tmp_path), Slow(), CpuRef())
    again = Slow()
    assert asked(Performance(tmp_path), again, CpuRef()) == first
    assert again.compiled == 0
    (path,) = tmp_path.glob("*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.glob("*.new")) == []


def test_devices_of_one_process_share_them() -> None:
    """Also where there is no folder."""
    performance = Performance()
    one, other = (Device(name, [Slow(), CpuRef()], performance=performance) for name in "ab")
    assert one.get_capabilities() == other.get_capabilities()
    for each in (one, other):
        each.close()


def test_another_version_is_measured_on_its_own(tmp_path: Path) -> None:
    performance = Performance(tmp_path)
    first, second = (asked(performance, Slow(), version=version) for version in "12")
    assert first != second
    assert [asked(Performance(tmp_path), Slow(), version=version) for version in "12"] == [first, second]


def _kept(folder: Path) -> tuple[Path, Capabilities]:
    found = asked(Performance(folder), Slow())
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
        lambda text: text + " " * 70_000 + "{",
        lambda text: "[" * 60_000,
    ],
)
def test_a_damaged_file_is_replaced(tmp_path: Path, damaged: object) -> None:
    path, before = _kept(tmp_path)
    path.write_text(damaged(path.read_text()))  # type: ignore[operator]
    after = asked(Performance(tmp_path), Slow())
    assert after != before
    assert asked(Performance(tmp_path), Slow()) == after


def test_a_file_that_others_can_write_is_replaced(tmp_path: Path) -> None:
    path, before = _kept(tmp_path)
    path.chmod(0o622)
    assert asked(Performance(tmp_path), Slow()) != before
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_replaced(tmp_path: Path) -> None:
    path, before = _kept(tmp_path)
    os.chown(path, 12345, 12345)
    assert asked(Performance(tmp_path), Slow()) != before
    assert path.stat().st_uid == os.geteuid()


def test_a_link_or_a_pipe_in_its_place_is_not_followed(tmp_path: Path) -> None:
    path, before = _kept(tmp_path)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert asked(Performance(tmp_path), Slow()) != before
    path.unlink()
    os.mkfifo(path)
    after = asked(Performance(tmp_path), Slow())
    assert asked(Performance(tmp_path), Slow()) == after


@pytest.mark.parametrize("place", ["a file/state", "a file"])
def test_a_folder_that_cannot_be_used_is_logged(tmp_path: Path, place: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a file").touch()
    performance = Performance(tmp_path / place)
    backend = Slow()
    found = asked(performance, backend)
    assert "cannot be kept" in caplog.text
    measured = backend.compiled
    assert asked(performance, backend) == found, "for the life of this process"
    assert backend.compiled == measured


def test_many_threads_measure_once(tmp_path: Path) -> None:
    performance, backend = Performance(tmp_path), Slow()
    found: list[Capabilities] = []
    threads = [threading.Thread(target=lambda: found.append(asked(performance, backend))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(one == found[0] for one in found)
    once = Slow()
    asked(Performance(), once)
    assert backend.compiled == once.compiled


def test_processes_that_start_together_agree(tmp_path: Path) -> None:
    """Each object stands for a process: they know of each other by the folder alone."""
    found: list[Capabilities] = []
    threads = [threading.Thread(target=lambda: found.append(asked(Performance(tmp_path), Slow()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(one == found[0] for one in found)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    asked(Performance(tmp_path), Slow())
    before = len(os.listdir("/proc/self/fd"))
    for version in "23":
        asked(Performance(tmp_path), Slow(), version=version)
        asked(Performance(tmp_path), Slow(), version=version)
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
