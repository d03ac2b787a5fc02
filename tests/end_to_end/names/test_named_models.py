"""Models by name with nnhal's own clients: all ways to execute, changes of the folder, and a service that restarts."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

import nnhal
from nnhal import aio
from nnhal.client.core.session import Transport
from nnhal.inference import open_inference_pb2 as inference
from nnhal.inference.open_inference_pb2_grpc import GRPCInferenceServiceStub
from nnhal.types import AnyArray, ErrorKind, NamedModelState
from tests.concurrency import run_concurrently, wait_until
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.service.repository.counting import counting
from tests.service.repository.model_files import adding, adding_to_items, put

ONES = np.ones(2, np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("names")
    put(path / "models/add/1/model.tflite", adding(1))
    put(path / "models/add/2/model.tflite", adding(2))
    put(path / "models/broken.tflite", b"no model")
    put(path / "models/changed.tflite", adding(1))
    put(path / "models/count.tflite", counting())
    put(path / "models/joined.tflite", adding_to_items(1))
    put(path / "models/joined.toml", b"max_batch = 4\nmax_delay = 60000")
    return path


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    running = start_service(folder, "--models", str(folder / "models"), "--models-poll-s", "0.05")
    yield running
    stop_service(running)


def infer(target: str, name: str, value: AnyArray) -> AnyArray:
    """Return the output of a model over the Open Inference Protocol."""
    tensor = inference.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=value.shape)
    request = inference.ModelInferRequest(model_name=name, inputs=[tensor], raw_input_contents=[value.tobytes()])
    with grpc.insecure_channel(target) as channel:
        response = GRPCInferenceServiceStub(channel).ModelInfer(request)
    return np.frombuffer(response.raw_output_contents[0], np.float32).reshape(tuple(response.outputs[0].shape))


@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_named_model_is_a_prepared_model_as_any_other(service: Service, transport: Transport) -> None:
    with nnhal.connect(service.target, transport=transport) as device:
        model = device.model("add")
        assert (model.input_names, model.output_names) == (("x",), ("y",))
        assert model.execute({"x": ONES})["y"].tolist() == [3, 3]
        with model.burst() as burst:
            assert burst.execute([ONES])[0].tolist() == [3, 3]
        assert model.execute_fenced([ONES]).result()[0].tolist() == [3, 3]
        assert model.reusable([ONES]).run()[0].tolist() == [3, 3]
        with device.allocate(outputs=[(model, "y")]) as buffer:
            model.execute([ONES], outputs=[buffer])
            assert buffer.read().tolist() == [3, 3]
        assert device.model("add", 1).execute([ONES])[0].tolist() == [2, 2]


def test_states(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        model = device.model("count")
        assert len(model.states) == 1
        with model.stream() as stream:
            assert [stream.step([ONES])[0].tolist() for _ in range(3)] == [[1, 1], [2, 2], [3, 3]]


def test_requests_of_several_clients_join(service: Service) -> None:
    """All paths share the batches: nothing would come back for a minute if one did not join."""

    def use(number: int) -> None:
        value = np.full((1, 2), number, np.float32)
        with nnhal.connect(service.target, transport="grpc" if number % 2 else "auto") as device:
            model = device.model("joined")
            assert model.execute([value])[0].tolist() == [[number + 1] * 2]
            with model.burst() as burst:
                assert burst.execute([value])[0].tolist() == [[number + 1] * 2]
            assert infer(service.target, "joined", value).tolist() == [[number + 1] * 2]
            assert model.execute([value], deadline=10)[0].tolist() == [[number + 1] * 2]  # it does not wait for others

    run_concurrently(4, use)


def test_joined_requests_count_as_one_execution(service: Service) -> None:
    def counts() -> tuple[int, int]:
        with grpc.insecure_channel(service.target) as channel:
            request = inference.ModelStatisticsRequest(name="joined")
            (stats,) = GRPCInferenceServiceStub(channel).ModelStatistics(request).model_stats
        return stats.inference_count, stats.execution_count

    def use(number: int) -> None:
        infer(service.target, "joined", np.full((1, 2), number, np.float32))

    requests, executions = counts()
    run_concurrently(4, use)
    assert counts() == (requests + 4, executions + 1)


async def test_asyncio(service: Service) -> None:
    async with aio.connect(service.target) as device:
        assert {each.name for each in await device.models()} >= {"add", "broken", "count"}
        model = await device.model("add", 2)
        assert (await model.execute([ONES]))[0].tolist() == [3, 3]


def test_list_and_errors(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        entries = {(each.name, each.version): each for each in device.models()}
        assert entries["broken", 1].state == NamedModelState.FAILED
        assert "TFL3" in entries["broken", 1].reason
        for name, version, kind, text in (
            ("other", None, ErrorKind.UNKNOWN_HANDLE, "model 'other' is not found"),
            ("add", 3, ErrorKind.UNKNOWN_HANDLE, "has no version 3; it has 1, 2"),
            ("broken", None, ErrorKind.UNSPECIFIED, "TFL3"),
        ):
            with pytest.raises(nnhal.HalError, match=text) as caught:
                device.model(name, version)
            assert caught.value.kind == kind
        with pytest.raises(TypeError, match="version"):
            device.model("add", "1")  # type: ignore[arg-type]


def test_unload_and_load(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        model = device.model("changed")
        device.unload_model("changed")
        with pytest.raises(nnhal.HalError, match="'changed' is unloaded"):
            device.model("changed")
        assert model.execute([ONES])[0].tolist() == [2, 2]
        device.load_model("changed")
        assert device.model("changed").execute([ONES])[0].tolist() == [2, 2]


def test_changes_are_found(folder: Path, service: Service) -> None:
    with nnhal.connect(service.target) as device:
        old = device.model("changed")
        put(folder / "models/changed.tflite", adding(5))
        assert wait_until(lambda: device.model("changed").execute([ONES])[0].tolist() == [6, 6], 60)
        assert old.execute([ONES])[0].tolist() == [2, 2]
        put(folder / "models/changed.tflite", adding(1))
        assert wait_until(lambda: device.model("changed").execute([ONES])[0].tolist() == [2, 2], 60)


def test_worker_that_dies_is_replaced(service: Service) -> None:
    with nnhal.connect(service.target) as device:
        model = device.model("add")
        assert model.execute([ONES])[0].tolist() == [3, 3]
        os.kill(service.pid, signal.SIGKILL)
        assert model.execute([ONES])[0].tolist() == [3, 3]


def test_service_without_models(tmp_path: Path) -> None:
    with nnhal.connect() as device:
        assert device.models() == []
        with pytest.raises(nnhal.HalError, match="has no models by name; its operator can name a folder with --models"):
            device.model("add")
