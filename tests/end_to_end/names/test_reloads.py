"""Changes of a repository under load: no call fails on a name that has a good version, and every answer is one of them.

Two names are used all the time: one with numbered versions, and one whose only file is replaced.
"""

import os
import random
import shutil
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import grpc
import numpy as np
import pytest

import nnhal
from nnhal.inference import open_inference_pb2 as messages
from nnhal.inference.open_inference_pb2_grpc import GRPCInferenceServiceStub
from tests.concurrency import wait_until
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.service.repository.model_files import adding, put

ZEROS = np.zeros(2, np.float32)
NAMES = ("numbered", "replaced")


class Changes:
    """Random changes of a folder. There is always a good version of each name."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        self._good = [1]
        self._number = 1
        put(self._path(1), adding(1))
        put(folder / "replaced.tflite", adding(1))

    def _path(self, version: int) -> Path:
        return self._folder / "numbered" / str(version) / "model.tflite"

    def make(self) -> None:
        """Make one change."""
        kinds = (
            self.add,
            self.add_broken,
            self.remove,
            self.replace,
            self.break_,
            self.link,
            self.grow,
            self.add_other,
        )
        self._number += 1
        self._random.choice(kinds)()

    def add(self) -> None:
        put(self._path(self._number), adding(self._number))
        self._good.append(self._number)

    def add_broken(self) -> None:
        put(self._path(self._number), adding(self._number)[: self._random.randrange(200)])

    def grow(self) -> None:
        """Write a new version in pieces."""
        data, path = adding(self._number), self._path(self._number)
        path.parent.mkdir()
        with path.open("wb") as file:
            for start in range(0, len(data), 100):
                file.write(data[start : start + 100])
                file.flush()
        self._good.append(self._number)

    def remove(self) -> None:
        if len(self._good) > 1:
            version = self._good.pop(self._random.randrange(len(self._good)))
            shutil.rmtree(self._path(version).parent)

    def link(self) -> None:
        """Add a version that is a link: to a good one, out of the folder, or to nothing."""
        path = self._path(self._number)
        path.parent.mkdir()
        path.symlink_to(self._random.choice(["/etc/passwd", "../none", "../../replaced.tflite"]))

    def replace(self) -> None:
        put(self._folder / "replaced.tflite", adding(self._number))

    def break_(self) -> None:
        put(self._folder / "replaced.tflite", b"broken")

    def add_other(self) -> None:
        path = self._folder / f"other{self._number % 3}.tflite"
        path.unlink() if path.exists() else put(path, adding(self._number))


def infer(stub: GRPCInferenceServiceStub, name: str) -> float:
    request = messages.ModelInferRequest(model_name=name, raw_input_contents=[ZEROS.tobytes()])
    request.inputs.add(name="x", datatype="FP32", shape=[2])
    return float(np.frombuffer(stub.ModelInfer(request, timeout=60).raw_output_contents[0], np.float32)[0])


def prepare(device: nnhal.Device, name: str) -> float:
    with device.model(name) as model:
        return float(model.execute([ZEROS])[0][0])


def is_loaded(service: Service, name: str, workers: int) -> bool:
    return service.log.read_text().count(f" model-loaded model={name} ") >= workers


def connect(stack: ExitStack, target: str) -> list[GRPCInferenceServiceStub]:
    """Return a stub for each name with a connection of its own, which may lead to another worker."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [stack.enter_context(grpc.insecure_channel(target, options)) for _ in NAMES]
    return [GRPCInferenceServiceStub(channel) for channel in channels]


@pytest.mark.parametrize(
    ("count", "workers"),
    [
        pytest.param(40, 1, marks=pytest.mark.slow),
        pytest.param(1000, 1, marks=pytest.mark.nightly),
        pytest.param(1000, 2, marks=pytest.mark.nightly),
    ],
)
def test_no_call_fails_while_the_repository_changes(tmp_path: Path, count: int, workers: int) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    changes = Changes(folder, int(os.environ.get("NNHAL_SEED", "1")))
    for config in ("numbered/config.toml", "replaced.toml"):
        put(folder / config, b"warm = true")
    options = ("--models", str(folder), "--models-poll-s", "0.02", "--workers", str(workers))
    service = start_service(tmp_path, *options)
    done, failures, answers = threading.Event(), [], [0] * 4
    try:
        with ExitStack() as stack:
            for name in NAMES:  # it is in the memory of each worker before its file may be broken
                assert wait_until(partial(is_loaded, service, name, workers), 120)
            devices = [stack.enter_context(nnhal.connect(service.target, timeout=60)) for _ in NAMES]
            stubs = connect(stack, service.target)

            def use(number: int, call: Callable[[str], float]) -> None:
                while not done.is_set():
                    try:
                        assert 1 <= call(NAMES[number % 2]) <= count + 1
                        answers[number] += 1
                    except Exception as error:
                        failures.append(error)
                        done.set()

            calls = [*(partial(infer, stub) for stub in stubs), *(partial(prepare, device) for device in devices)]
            threads = [threading.Thread(target=use, args=each, daemon=True) for each in enumerate(calls)]
            for thread in threads:
                thread.start()
            for _ in range(count):
                before = sum(answers)
                changes.make()
                while sum(answers) < before + 4 and not done.is_set():  # changes and calls take turns
                    done.wait(0.001)
            done.set()
            for thread in threads:
                thread.join(60)
            assert failures == []
    finally:
        stop_service(service)
