"""Second runs: results, what is kept of whom, and the errors that end a shadow."""

import os
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from nnhal.errors import DeadObjectError, HalError
from nnhal.recording.archive import Archive
from nnhal.types import AnyArray, ErrorStatus, ExecutionConfig, Model
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_service.identity.identity import ANONYMOUS, Identity
from nnhal_service.metrics.calls import MeteredCall
from nnhal_service.metrics.worker_metrics import WorkerMetrics
from nnhal_service.packets import receive
from nnhal_service.recording.archives import Archives
from nnhal_service.recording.recorder import Recorder
from nnhal_service.recording.rules import ShadowRules
from nnhal_service.recording.shadow import repeater, sender
from nnhal_service.recording.shadow.repeater import KEPT, Repeater, ShadowLostError
from nnhal_service.recording.shadow.sender import ShadowSender
from nnhal_service.sessions.session import Session
from nnhal_service.settings import Settings
from tests.driver.control_flow_models import f
from tests.driver.one_operation import prepare
from tests.end_to_end.support.models import chain
from tests.service.recording.requests import request


class FakeShadow:
    """Device whose outputs are those of `chain(2)` plus an error, or which raises."""

    def __init__(self, error: float = 0.0, raises: HalError | None = None) -> None:
        self.error = error
        self.raises = raises
        self.prepared: list[Model] = []

    def prepare(self, model: Model, **_: object) -> "FakeShadow":
        self.prepared.append(model)
        return self

    def result(self) -> "FakeShadow":
        return self

    def execute(self, inputs: list[AnyArray], deadline: float) -> list[AnyArray]:
        if self.raises is not None:
            raise self.raises
        return [4 * inputs[0] + np.float32(self.error)]


class Setup:
    """Worker and shadow, with the socket between them."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.own, self.other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2**16)
        self.settings = Settings.model_validate(
            {"record": folder, "record_share": 1e-12, "shadow": "Fake", "shadow_share": 1, **settings}
        )
        self.metrics = WorkerMetrics()
        self.recorder = Recorder(self.settings, {}, ShadowSender(self.own, self.metrics))
        self.archives = Archives.of(self.settings, {"shadow": "Fake", "backends": {}})
        self.counts: Counter[str] = Counter()

    def execute(self, model: PreparedModel, count: int = 1, identity: Identity = ANONYMOUS) -> None:
        for number in range(count):
            call = MeteredCall("unary")
            self.recorder.begin(call, Session("s1", identity), model)
            result = model.execute_synchronously(request(f(number, 1)), ExecutionConfig(), call)
            assert result.output_sufficient_size

    def repeat(self, repeater: Repeater) -> int:
        """Repeat what waits, and return how much that was."""
        count = 0
        while (received := receive(self.other)) is not None:
            message, files = received
            try:
                repeater.repeat(message, files)
            finally:
                for file in files:
                    os.close(file)
            count += 1
        return count

    def repeater(self, device: FakeShadow) -> Repeater:
        return Repeater(cast(Any, device), lambda label, result: self.counts.update([result]), self.archives)

    def dropped(self) -> float:
        values = self.metrics.snapshot().values.get("nnhal_shadow_executions", {})
        return sum(value for (_, result), value in values.items() if result == "dropped")


@pytest.fixture(scope="module")
def model() -> PreparedModel:
    prepared = prepare(chain(2)).prepared_model
    assert prepared is not None
    return prepared


@contextmanager
def setup(folder: Path, **settings: object) -> Iterator[Setup]:
    created = Setup(folder, **settings)
    with created.own, created.other:
        yield created
    created.recorder.close()
    assert created.archives is not None
    created.archives.close()


@pytest.mark.parametrize(("error", "result"), [(0, "equal"), (1e-6, "within tolerance"), (1, "different")])
def test_results(tmp_path: Path, model: PreparedModel, error: float, result: str) -> None:
    with setup(tmp_path) as shadowed:
        shadowed.execute(model, 3)
        device = FakeShadow(error)
        assert shadowed.repeat(shadowed.repeater(device)) == 3
        assert shadowed.counts == {result: 3} and len(device.prepared) == 1
        assert device.prepared[0].main.operations == chain(2).main.operations


def test_differences_go_to_the_archive_of_their_identity(tmp_path: Path, model: PreparedModel) -> None:
    with setup(tmp_path, record_identities=("token:a", "token:b")) as shadowed:
        for name, count in (("a", 2), ("b", 3), ("c", 4)):
            shadowed.execute(model, count, Identity("token", name))
        shadowed.repeat(shadowed.repeater(FakeShadow(1)))
        assert shadowed.counts == {"different": 9}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["token:a", "token:b"]
    assert [len(Archive(tmp_path, f"token:{name}").records) for name in "ab"] == [2, 3]
    inputs, outputs = Archive(tmp_path, "token:a").records[1].values()
    assert inputs[0] is not None and outputs[0] is not None
    np.testing.assert_array_equal(outputs[0], 4 * inputs[0])


def test_first_differences_are_kept(tmp_path: Path, model: PreparedModel) -> None:
    with setup(tmp_path) as shadowed:
        shadowed.execute(model, KEPT + 5)
        shadowed.repeat(shadowed.repeater(FakeShadow(1)))
        assert shadowed.counts == {"different": KEPT + 5}
    assert len(Archive(tmp_path).records) == KEPT


@pytest.mark.parametrize("settings", [{"record_values": False}, {"record_share": 0}])
def test_nothing_is_kept_against_the_rules(tmp_path: Path, model: PreparedModel, settings: dict[str, object]) -> None:
    with setup(tmp_path, **settings) as shadowed:
        shadowed.execute(model, 2)
        shadowed.repeat(shadowed.repeater(FakeShadow(1)))
        assert shadowed.counts == {"different": 2}
    assert not list(tmp_path.iterdir())


def test_shadow_takes_chosen_executions(tmp_path: Path, model: PreparedModel) -> None:
    named = replace(model, name="face/2", digest=b"\xab" * 32)
    with setup(tmp_path, shadow_identities=("token:a",), shadow_models=("cat", "face")) as shadowed:
        shadowed.execute(named, 2, Identity("token", "a"))
        shadowed.execute(named, 3, Identity("token", "b"))
        shadowed.execute(model, 4, Identity("token", "a"))
        repeater = shadowed.repeater(FakeShadow())
        assert shadowed.repeat(repeater) == 2
        shadowed.recorder.switch(ShadowRules(0.0, models=("face",)))
        shadowed.execute(named)
        assert shadowed.repeat(repeater) == 0
        shadowed.recorder.switch(ShadowRules(1.0, models=("abab",)))
        shadowed.execute(named)
        shadowed.execute(model)
        assert shadowed.repeat(repeater) == 1


def test_full_queue_drops_and_counts(tmp_path: Path, model: PreparedModel) -> None:
    with setup(tmp_path) as shadowed:
        before = len(os.listdir("/proc/self/fd"))
        shadowed.execute(model, 300)
        dropped = shadowed.dropped()
        assert 100 < dropped < 300
        assert shadowed.repeat(shadowed.repeater(FakeShadow())) == 300 - dropped
        assert len(os.listdir("/proc/self/fd")) == before + 1  # that of the model
        shadowed.execute(model)
        assert shadowed.repeat(shadowed.repeater(FakeShadow())) == 1


def test_large_values_are_dropped(tmp_path: Path, model: PreparedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "MAX_BYTES", 15)
    with setup(tmp_path) as shadowed:
        shadowed.execute(model)
        assert shadowed.dropped() == 1 and receive(shadowed.other) is None


def test_closed_socket_disturbs_no_execution(tmp_path: Path, model: PreparedModel) -> None:
    with setup(tmp_path) as shadowed:
        shadowed.other.close()
        shadowed.execute(model, 2)
        assert shadowed.dropped() == 2


def test_errors_of_models_are_counted_and_others_end_the_shadow(
    tmp_path: Path, model: PreparedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[dict[str, object]] = []
    monkeypatch.setattr(repeater._FAILED, "log", lambda **fields: lines.append(fields))
    with setup(tmp_path) as shadowed:
        shadowed.execute(model, 2)
        shadowed.repeat(shadowed.repeater(FakeShadow(raises=HalError(ErrorStatus.GENERAL_FAILURE, "no"))))
        assert shadowed.counts == {"failed": 2} and [line["why"] for line in lines] == ["no", "no"]
        for error in (
            DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, "gone"),
            HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, "late"),
        ):
            shadowed.execute(model)
            with pytest.raises(ShadowLostError):
                shadowed.repeat(shadowed.repeater(FakeShadow(raises=error)))
        assert shadowed.counts == {"failed": 4}
