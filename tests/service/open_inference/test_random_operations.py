"""Random operations on models by name, compared with what their documentation says."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import nnhal
from nnhal.inference import open_inference_pb2 as messages
from nnhal.inference.open_inference_pb2_grpc import GRPCInferenceServiceStub
from nnhal.types import ErrorKind
from nnhal_service.repository.repository import Repository
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.service.repository.counting import counting
from tests.service.repository.model_files import adding, put

BROKEN = 0
"""Contents of a file that is not a model. Other numbers stand for models, which add them."""
COUNTING, ADDING = "count", "add"
NOT_FOUND, UNAVAILABLE, INVALID = (
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.INVALID_ARGUMENT,
)
kinds, contents, versions = st.sampled_from([ADDING, COUNTING]), st.integers(BROKEN, 3), st.integers(1, 4)
asked = st.none() | versions


@dataclass
class Name:
    """Expected state of a name: the contents of its versions, whether it is unloaded, counts and sequences."""

    versions: dict[int, int] = field(default_factory=dict)
    is_unloaded: bool = False
    counts: Counter[tuple[int, str]] = field(default_factory=Counter)
    sequences: dict[tuple[int | None, int], tuple[int, int]] = field(default_factory=dict)

    def serving(self, version: int | None) -> int | grpc.StatusCode:
        """Return the version that serves a request, or the error."""
        if not self.versions:
            return NOT_FOUND
        if self.is_unloaded:
            return UNAVAILABLE
        if version is not None and version not in self.versions:
            return NOT_FOUND
        good = [each for each, content in self.versions.items() if content and version in (None, each)]
        return max(good, default=UNAVAILABLE)


def file_of(kind: str, content: int) -> bytes:
    """Return a file of a model."""
    return b"no model" if content == BROKEN else adding(content) if kind == ADDING else counting()


def result_of(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a call returns, or the code of its error."""
    try:
        return call(*arguments)
    except grpc.RpcError as error:
        return error.code()
    except nnhal.HalError as error:
        return NOT_FOUND if error.kind == ErrorKind.UNKNOWN_HANDLE else INVALID


class World:
    """A running service with its clients."""

    def __init__(self, folder: Path, repository: Repository, device: nnhal.Device, channel: grpc.Channel) -> None:
        self.folder, self.repository, self.device = folder, repository, device
        self.stub = GRPCInferenceServiceStub(channel)
        self.numbers = count()


class Operations(RuleBasedStateMachine):
    """Operations on two names that no other example uses: a model that adds a number, and one that counts."""

    world: World

    def __init__(self) -> None:
        super().__init__()
        number = next(self.world.numbers)
        self.names = {kind: f"{kind}{number}" for kind in (ADDING, COUNTING)}
        self.expected = {kind: Name() for kind in self.names}

    # ---- Files ------------------------------------------------------------------------------------------

    @rule(kind=kinds, version=versions, content=contents)
    def put_file(self, kind: str, version: int, content: int) -> None:
        name = self.expected[kind]
        if content == BROKEN and version in name.versions:
            return  # whether the one before goes on depends on what is in memory
        put(self.world.folder / self.names[kind] / str(version) / "model.tflite", file_of(kind, content))
        name.versions[version] = content
        for _ in range(2):  # after the second look, the file is complete
            self.world.repository.check()

    @rule(kind=kinds, version=asked, content=contents)
    def push(self, kind: str, version: int | None, content: int) -> None:
        name, data = self.expected[kind], file_of(kind, content)
        newest = max(name.versions, default=0)
        number = version or newest
        is_same = number in name.versions and file_of(kind, name.versions[number]) == data
        expected: object = number if is_same else version or newest + 1
        if not is_same and (content == BROKEN or version in name.versions):
            expected = INVALID
        assert result_of(lambda: self.world.device.push_model(self.names[kind], data, version=version)) == expected
        if isinstance(expected, int):
            name.versions[expected] = name.versions[number] if is_same else content

    @rule(kind=kinds, version=asked)
    def remove(self, kind: str, version: int | None) -> None:
        name = self.expected[kind]
        is_there = version in name.versions if version else bool(name.versions)
        removed = result_of(lambda: self.world.device.remove_model(self.names[kind], version))
        assert removed == (None if is_there else NOT_FOUND)
        for number in [version] if version else list(name.versions):
            name.versions.pop(number, None)

    # ---- Choices ----------------------------------------------------------------------------------------

    @rule(kind=kinds)
    def unload(self, kind: str) -> None:
        name, request = self.expected[kind], messages.RepositoryModelUnloadRequest(model_name=self.names[kind])
        code = result_of(self.world.stub.RepositoryModelUnload, request)
        assert code == (messages.RepositoryModelUnloadResponse() if name.versions else NOT_FOUND)
        name.is_unloaded = name.is_unloaded or bool(name.versions)

    @rule(kind=kinds)
    def load(self, kind: str) -> None:
        name, request = self.expected[kind], messages.RepositoryModelLoadRequest(model_name=self.names[kind])
        expected: object = messages.RepositoryModelLoadResponse()
        if not name.versions:
            expected = NOT_FOUND
        elif name.versions[max(name.versions)] == BROKEN:
            expected = UNAVAILABLE
        assert result_of(self.world.stub.RepositoryModelLoad, request) == expected
        name.is_unloaded = name.is_unloaded and not name.versions
        self.world.repository.check()

    # ---- Requests ---------------------------------------------------------------------------------------

    def infer(self, kind: str, version: int | None, size: int = 2, **sequence: int) -> object:
        """Return the version that has answered, and the first value of its output; or the code of the error."""
        request = messages.ModelInferRequest(model_name=self.names[kind], model_version=str(version or ""))
        request.inputs.add(name="x", datatype="FP32", shape=[size])
        request.raw_input_contents.append(np.ones(size, np.float32).tobytes())
        for name, value in sequence.items():
            request.parameters[f"sequence_{name}"].int64_param = int(value)
        response = result_of(self.world.stub.ModelInfer, request)
        if not isinstance(response, messages.ModelInferResponse):
            return response
        return int(response.model_version), float(np.frombuffer(response.raw_output_contents[0], np.float32)[0])

    @rule(kind=kinds, version=asked, size=st.sampled_from([2, 2, 3]))
    def use(self, kind: str, version: int | None, size: int) -> None:
        name = self.expected[kind]
        serving = name.serving(version)
        expected: object = serving
        if isinstance(serving, int):
            number = 1 + (name.versions[serving] if kind == ADDING else 0)
            expected = (serving, float(number)) if size == 2 else INVALID
            name.counts[serving, "success" if size == 2 else "fail"] += 1
        assert self.infer(kind, version, size) == expected

    @rule(version=asked, id_=st.integers(1, 2), is_start=st.booleans(), is_end=st.booleans())
    def step(self, version: int | None, id_: int, is_start: bool, is_end: bool) -> None:
        name, key = self.expected[COUNTING], (version, id_)
        serving = name.serving(version)
        expected: object = serving
        if isinstance(serving, int):
            started = (serving, 0) if is_start else name.sequences.get(key)
            if started is None:
                expected = INVALID
                name.counts[serving, "fail"] += 1
            else:
                expected = name.sequences[key] = started[0], started[1] + 1
                name.counts[started[0], "success"] += 1
                if is_end:
                    del name.sequences[key]
        assert self.infer(COUNTING, version, id=id_, start=is_start, end=is_end) == expected

    # ---- Lists ------------------------------------------------------------------------------------------

    @invariant()
    def index_is_right(self) -> None:
        rows = self.world.stub.RepositoryIndex(messages.RepositoryIndexRequest()).models
        for kind, name in self.expected.items():
            found = {int(row.version): row.state for row in rows if row.name == self.names[kind]}
            is_good = {number: content and not name.is_unloaded for number, content in name.versions.items()}
            assert found == {number: "READY" if good else "UNAVAILABLE" for number, good in is_good.items()}

    @invariant()
    def readiness_is_right(self) -> None:
        for kind, name in self.expected.items():
            for version in (None, 1, 2):
                request = messages.ModelReadyRequest(name=self.names[kind], version=str(version or ""))
                assert self.world.stub.ModelReady(request).ready == isinstance(name.serving(version), int)

    @precondition(lambda self: any(name.versions for name in self.expected.values()))
    @rule()
    def read_statistics(self) -> None:
        for kind, name in self.expected.items():
            if name.versions:
                rows = self.world.stub.ModelStatistics(messages.ModelStatisticsRequest(name=self.names[kind]))
                for row in rows.model_stats:
                    number, stats = int(row.version), row.inference_stats
                    counts = {"success": stats.success.count, "fail": stats.fail.count}
                    assert counts == {outcome: name.counts[number, outcome] for outcome in counts}, (kind, number)


@pytest.fixture(scope="module", autouse=True)
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("models")
    settings = Settings(
        listen=("127.0.0.1:0",),
        cache_bytes=0,
        models=str(folder),
        models_poll_s=1e6,
        models_push=True,
        backends=("CpuRef",),
    )
    with (
        Server(settings) as server,
        nnhal.connect(server.addresses[0]) as device,
        grpc.insecure_channel(server.addresses[0]) as channel,
    ):
        assert server.repository is not None
        Operations.world = World(folder, server.repository, device, channel)
        yield


@pytest.mark.parametrize("examples", [10, pytest.param(300, marks=pytest.mark.nightly)])
def test_operations(examples: int) -> None:
    run_state_machine_as_test(Operations, settings=hypothesis.settings(max_examples=examples, stateful_step_count=25))
