"""Probes: a new model that crashes or hangs does so in a process of its own, and no client notices it."""

from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal_service.quarantine import QuarantineFile
from tests.end_to_end.support.service_process import stop_service
from tests.service.supervisor.hostile_service import VALUES, relu_model, start_hostile

pytestmark = pytest.mark.slow


def backends_of(device: nnhal.Device, model: nnhal.Model) -> set[str]:
    with device.prepare(model).result(120) as prepared:
        np.testing.assert_array_equal(prepared.execute([VALUES])[0], VALUES)
        return {partition.backend for partition in prepared.placement.partitions}


def test_harmless_model_is_probed_once(tmp_path: Path, behavior: Path) -> None:
    service = start_hostile(tmp_path, behavior, "--probe")
    with nnhal.connect(service.target) as device:
        for model in (relu_model(), relu_model(), relu_model(2)):
            assert backends_of(device, model) == {"Hostile"}
    assert service.log.read_text().count(" probed ") == 2
    assert stop_service(service) == 0


@pytest.mark.parametrize("method", ["compile", "execute"])
def test_crash_in_a_probe_disturbs_nobody(tmp_path: Path, behavior: Path, method: str) -> None:
    service = start_hostile(tmp_path, behavior, "--probe")
    worker = service.pid
    with nnhal.connect(service.target) as device, device.prepare(relu_model(2)).result(120) as other:
        behavior.write_text(f"{method} crash")
        with device.prepare(relu_model()).result(120) as prepared:
            assert {partition.backend for partition in prepared.placement.partitions} == {"CpuRef"}
            assert [warning.code for warning in prepared.warnings] == ["backend-quarantined"]
        behavior.write_text("")
        np.testing.assert_array_equal(other.execute([VALUES])[0], VALUES)
    assert service.pid == worker
    ((crash,),) = QuarantineFile(tmp_path / "state").crashes().values()
    assert (crash.backend, crash.how) == ("Hostile", "in a probe: the process crashed")
    assert stop_service(service) == 0


def test_probe_ends_with_its_preparation(tmp_path: Path, behavior: Path) -> None:
    service = start_hostile(tmp_path, behavior, "--probe")
    with nnhal.connect(service.target) as device:
        behavior.write_text("compile hang")
        with pytest.raises(nnhal.HalError):
            device.prepare(relu_model(), deadline=2.0).result(120)
        behavior.write_text("")
        assert backends_of(device, relu_model(2)) == {"Hostile"}
    assert stop_service(service) == 0
