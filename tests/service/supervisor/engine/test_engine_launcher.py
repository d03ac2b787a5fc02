"""Engines from the side of a worker, whose process is this test: it may answer anything."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from nnhal.errors import HalError, general_failure
from nnhal_driver.activity import TABLE_BYTES, ActivityTable, Stage, subject_of
from nnhal_driver.backends.engine_process import EngineDiedError, EngineModel
from nnhal_service.channel import Channel
from nnhal_service.quarantine import QuarantineFile
from nnhal_service.supervisor.engine.engine_launcher import EngineProcess, EngineProcesses
from nnhal_service.supervisor.engine.engine_memory import EngineMemory
from nnhal_service.supervisor.engine.main import RUN

DIGEST = bytes(range(32))
FORMS = [("<f4", (2,))]
NOTHING = object()
"""No answer."""


class Impostor:
    """Supervisor and process of an engine with one input and one output. `answers`: what it sends, in order."""

    def __init__(self, folder: Path, answers: list[object]) -> None:
        self.supervisor, self._channel = Channel.pair()
        self.quarantine = QuarantineFile(folder)
        self.launcher = EngineProcesses(self.supervisor, self.quarantine, has_sandbox=True)
        self._answers = answers
        self.crash = b""
        self._done = threading.Event()

    def _serve(self) -> None:
        received = self._channel.receive()
        assert received is not None
        end, lifeline, model, self.memory, stacks, output = received[1]
        channel = Channel.from_descriptor(end)
        for number, answer in enumerate(self._answers):
            if number:
                assert channel.socket.recv(2**16) == RUN
            if answer is not NOTHING:
                channel.socket.send(answer if isinstance(answer, bytes) else json.dumps(answer).encode())
        if len(self._answers) > 1:
            self._done.wait(60)
        os.write(stacks, self.crash)
        channel.close()
        for descriptor in (lifeline, model, stacks, output):
            os.close(descriptor)

    @contextmanager
    def engine(self) -> Iterator[EngineProcess]:
        """Launch the engine, for a model with a digest."""
        thread = threading.Thread(target=self._serve)
        thread.start()
        file = os.memfd_create("model")
        activities = ActivityTable(memoryview(bytearray(TABLE_BYTES)))
        with activities.record(Stage.EXECUTING, subject_of(DIGEST, b"")):
            process = self.launcher.launch(EngineModel("Npu", "", file, [0], [1], 1, 2**20, 2**20), lambda: None)
            try:
                yield process
            finally:
                self._done.set()
        os.close(file)
        thread.join(60)


@pytest.mark.parametrize(
    "answer",
    [
        b"{",
        b"[" * 10_000,
        [],
        {},
        {"outputs": 3},
        {"outputs": []},
        {"outputs": [["<f4", [2]], ["<f4", [2]]]},
        {"outputs": [["O", [2]]]},
        {"outputs": [["<U3", [2]]]},
        {"outputs": [["nonsense", [2]]]},
        {"outputs": [["<f4", [-1]]]},
        {"outputs": [["<f4", [2.5]]]},
        {"outputs": [["<f4", [1] * 40]]},
        {"outputs": [["<f4", "2"]]},
        {"outputs": [["<f4", [2**40]]]},
        {"outputs": [["<f4", [2**62, 2**62]]]},
        {"outputs": [["<f4", [2**62, 0, 2**62]]]},
    ],
    ids=lambda answer: str(answer)[:40],
)
def test_answers_are_not_trusted(tmp_path: Path, answer: object) -> None:
    impostor = Impostor(tmp_path, [{"inputs": FORMS}, answer])
    with impostor.engine() as engine:
        engine.write(0, np.ones(2, np.float32))
        with pytest.raises(EngineDiedError, match="the process of the engine ended: its "):
            engine.invoke(lambda: None)
    ((crash,),) = impostor.quarantine.crashes().values()
    assert crash.backend == "Npu" and crash.sure


def test_crash_accuses_the_model_and_a_kill_does_not(tmp_path: Path) -> None:
    for crash, text in ((b"", "it was killed"), (b"Fatal Python error: Bus error\n\nThread", "Bus error")):
        impostor = Impostor(tmp_path, [{"inputs": FORMS}])
        impostor.crash = crash
        with impostor.engine() as engine, pytest.raises(EngineDiedError, match=f"ended: {text}"):
            engine.invoke(lambda: None)
    ((only,),) = impostor.quarantine.crashes().values()
    assert only.how == "in an engine: Bus error"


def test_error_of_the_engine_is_that_of_litert(tmp_path: Path) -> None:
    impostor = Impostor(tmp_path, [{"inputs": FORMS}, {"error": "gather index out of bounds"}])
    with impostor.engine() as engine, pytest.raises(RuntimeError, match=r"^gather index out of bounds$"):
        engine.invoke(lambda: None)
    assert not impostor.quarantine.crashes()


def test_caller_ends_while_it_waits(tmp_path: Path) -> None:
    def end() -> None:
        raise general_failure("the execution was cancelled")

    impostor = Impostor(tmp_path, [{"inputs": FORMS}, NOTHING])
    with impostor.engine() as engine, pytest.raises(HalError, match="the execution was cancelled"):
        engine.invoke(end)


def test_booleans_of_the_engine_are_0_or_1(tmp_path: Path) -> None:
    impostor = Impostor(tmp_path, [{"inputs": FORMS}, {"outputs": [["|b1", [3]]]}])
    with impostor.engine() as engine:
        forms = [*FORMS, ("|u1", (3,))]
        *_, output = EngineMemory(impostor.memory).arrays(forms, may_grow=True)
        output[...] = [0, 2, 255]
        engine.invoke(lambda: None)
        assert engine.view(1).view(np.uint8).tolist() == [0, 1, 1]
