"""Models by name with nnhal's own clients: all ways to execute, changes of the folder, and a service that restarts."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nnhal
from nnhal import aio
from nnhal.client.core.session import Transport
from nnhal.types import ErrorKind, NamedModelState
from tests.concurrency import wait_until
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.nnhal.tflite.build import Op, Tensor, build, options
from tests.service.repository.model_files import adding, put

ONES = np.ones(2, np.float32)


def counting() -> bytes:
    """Return a file with a variable, to which each execution adds its input."""
    x, total, sum_ = Tensor((2,), name="x"), Tensor((2,)), Tensor((2,), name="y")
    resource = Tensor((), "RESOURCE", name="resource")
    handle = Op("VAR_HANDLE", [], [resource], options("VarHandle", container=b"", sharedName=b"total"))
    read = Op("READ_VARIABLE", [resource], [total], options("ReadVariable"))
    add = Op("ADD", [x, total], [sum_], options("Add"))
    assign = Op("ASSIGN_VARIABLE", [resource, sum_], [], options("AssignVariable"))
    return build(handle, read, add, assign, inputs=[x], outputs=[sum_])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("names")
    put(path / "models/add/1/model.tflite", adding(1))
    put(path / "models/add/2/model.tflite", adding(2))
    put(path / "models/broken.tflite", b"no model")
    put(path / "models/changed.tflite", adding(1))
    put(path / "models/count.tflite", counting())
    return path


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Service]:
    running = start_service(folder, "--models", str(folder / "models"), "--models-poll-s", "0.05")
    yield running
    stop_service(running)


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
