"""Recorder: sampling, and that a record that cannot be written disturbs no execution."""

from pathlib import Path

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.recording.archive import Archive
from nnhal.types import ExecutionConfig, Request
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_service.identity.identity import ANONYMOUS, Identity
from nnhal_service.metrics.calls import MeteredCall
from nnhal_service.recording.recorder import Recorder
from nnhal_service.recording.rules import RecordingRules, ShadowRules
from nnhal_service.sessions.session import Session
from nnhal_service.settings import Settings
from tests.driver.control_flow_models import counts, f, less_than, loop
from tests.driver.one_operation import prepare
from tests.end_to_end.support.models import chain
from tests.service.recording.requests import request


@pytest.fixture(scope="module")
def model() -> PreparedModel:
    prepared = prepare(chain(2)).prepared_model
    assert prepared is not None
    return prepared


def run(
    recorder: Recorder, model: PreparedModel, asked: Request, identity: Identity = ANONYMOUS, loop_timeout_ns: int = -1
) -> None:
    call = MeteredCall("unary")
    recorder.begin(call, Session("s1", identity), model)
    model.execute_synchronously(asked, ExecutionConfig(loop_timeout_duration_ns=loop_timeout_ns), call)


def recorder_of(folder: Path, share: float = 1.0, **settings: object) -> Recorder:
    return Recorder(Settings.model_validate({"record": folder, "record_share": share, **settings}), {"CpuRef": "1"})


def test_share_of_the_executions_is_recorded(tmp_path: Path, model: PreparedModel) -> None:
    recorder = recorder_of(tmp_path, 0.25)
    for number in range(200):
        run(recorder, model, request(f(number, 1)))
    recorder.close()
    records, archives = Archive(tmp_path).records, recorder.archives
    assert archives is not None
    assert 20 < len(records) == archives.written < 90 and archives.lost == 0
    for record in records:
        inputs, outputs = record.values()
        assert inputs[0] is not None and outputs[0] is not None
        np.testing.assert_array_equal(outputs[0], 4 * inputs[0])
    assert records[0].backends == {"CpuRef": 2} and 0 < records[0].device_ns <= records[0].duration_ns


def test_identities_have_archives_of_their_own(tmp_path: Path, model: PreparedModel) -> None:
    recorder = recorder_of(tmp_path, record_identities=("token:a", "token:b"))
    for name in "abca":
        run(recorder, model, request(f(1, 1)), Identity("token", name))
    recorder.close()
    assert len(Archive(tmp_path, "token:a").records) == 2 and len(Archive(tmp_path, "token:b").records) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["token:a", "token:b"]


def test_values_can_be_left_out(tmp_path: Path, model: PreparedModel) -> None:
    recorder = recorder_of(tmp_path, record_values=False)
    run(recorder, model, request(f(1, 1)))
    recorder.close()
    (record,) = Archive(tmp_path).records
    assert not record.has_values and record.inputs[0] is not None and len(record.inputs[0]["sha256"]) == 64
    assert record.inputs[0]["shape"] == [2]
    assert f(1, 1).tobytes() not in next(tmp_path.glob("*/*")).read_bytes()


def test_failed_executions_have_their_status(tmp_path: Path) -> None:
    endless = prepare(loop(less_than(), counts())).prepared_model
    assert endless is not None
    recorder = recorder_of(tmp_path)
    with pytest.raises(HalError):
        run(recorder, endless, request(f(0), f(np.inf)), loop_timeout_ns=0)
    recorder.close()
    (record,) = Archive(tmp_path).records
    assert record.status == "missed_deadline_transient" and not record.outputs and record.inputs[0] is not None


def test_switches_count_at_once(tmp_path: Path, model: PreparedModel) -> None:
    recorder = recorder_of(tmp_path, 0.0)
    assert not recorder.is_active and not list(tmp_path.iterdir())
    recorder.switch(RecordingRules(1.0))
    run(recorder, model, request(f(1, 1)))
    recorder.switch(RecordingRules())
    call = MeteredCall("unary")
    assert not recorder.is_active
    recorder.begin(call, Session("s1", ANONYMOUS), model)
    assert call.observer is None and len(Archive(tmp_path).records) == 1
    elsewhere = Recorder(Settings(), {})
    elsewhere.switch(RecordingRules(1.0))
    assert not elsewhere.is_active, "there is no folder"
    elsewhere.switch(ShadowRules(1.0))
    assert not elsewhere.is_active, "there is no shadow"


def test_execution_goes_on_without_its_record(tmp_path: Path, model: PreparedModel) -> None:
    (tmp_path / "file").write_text("")
    recorder = recorder_of(tmp_path / "file")
    run(recorder, model, request(f(1, 1)))
    assert recorder.archives is not None and (recorder.archives.written, recorder.archives.lost) == (0, 1)
