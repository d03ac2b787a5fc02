"""Streams of models with states on a real service, with both clients."""

import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal.client.core.session import Transport
from nnhal.types import ErrorStatus, Model, ModelState
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import tensor
from tests.end_to_end.support.service_process import Service, start_service, stop_service

ONE = np.ones(3, np.float32)


def running_sum() -> Model:
    """Return a model with the outputs 2 * (sum of all inputs) and the state, which starts at 10."""
    builder = nnhal.ModelBuilder()
    x, total = (builder.input(T.TENSOR_FLOAT32, (3,), name=name) for name in ("x", "total"))
    after = builder.add(Op.ADD, x, total, 0, output=tensor(T.TENSOR_FLOAT32, (3,)))
    doubled = builder.add(Op.ADD, after, after, 0, output=tensor(T.TENSOR_FLOAT32, (3,)))
    builder.output(doubled, name="doubled")
    builder.output(after, name="total")
    return replace(builder.build(), states=(ModelState("total", 1, 1, np.full(3, 10, np.float32)),))


@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_states_stay_between_steps(service: Service, transport: Transport) -> None:
    with nnhal.connect(service.target, transport=transport) as device:
        prepared = device.prepare(running_sum()).result(60)
        with prepared.stream() as stream, prepared.stream() as other:
            for count in range(1, 5):
                outputs = stream.step([ONE])
                assert outputs.names == ("doubled",)
                assert outputs[0].tolist() == [2 * (10 + count)] * 3
            assert other.step({"x": ONE})["doubled"].tolist() == [22] * 3
            stream.reset()
            assert stream.step([ONE])[0].tolist() == [22] * 3


def test_failed_step_leaves_the_states(service: Service) -> None:
    with nnhal.connect(service.target) as device, device.prepare(running_sum()).result(60).stream() as stream:
        stream.step([ONE])
        with pytest.raises(nnhal.HalError, match="2 inputs given; the model takes 1"):
            stream.step([ONE, ONE])
        with pytest.raises(nnhal.HalError) as caught:
            stream.step([ONE], deadline=0)
        assert caught.value.status == ErrorStatus.MISSED_DEADLINE_PERSISTENT
        assert stream.step([ONE])[0].tolist() == [24] * 3


def test_model_without_states(service: Service) -> None:
    with nnhal.connect(service.target) as device, pytest.raises(nnhal.HalError, match="the model has no states"):
        device.prepare(replace(running_sum(), states=())).result(60).stream()


def test_buffers_are_released(service: Service) -> None:
    """More streams in sequence than the session may have buffers."""
    with nnhal.connect(service.target) as device, device.prepare(running_sum()).result(60) as prepared:
        for _ in range(200):
            with prepared.stream() as stream:
                stream.step([ONE])


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_restart_is_a_clear_error(tmp_path: Path, transport: Transport) -> None:
    target = f"unix:{tmp_path}/socket"
    service = start_service(tmp_path, "--listen", target)
    with nnhal.connect(target, transport=transport) as device:
        stream = device.prepare(running_sum(), cache=True).result(60).stream()
        stream.step([ONE])
        stop_service(service)
        service = start_service(tmp_path, "--listen", target)
        for _ in range(2):
            with pytest.raises(nnhal.SessionLostError, match=r"the states of the stream were lost.*call reset\(\)"):
                stream.step([ONE])
        stream.reset()
        assert stream.step([ONE])[0].tolist() == [22] * 3
    assert stop_service(service) == 0


def test_asyncio_client(service: Service) -> None:
    async def run() -> list[float]:
        async with nnhal.aio.connect(service.target) as device:
            prepared = await device.prepare(running_sum())
            async with prepared.stream() as stream:
                results = await asyncio.gather(*(stream.step([ONE]) for _ in range(5)))
                return sorted(float(result[0][0]) for result in results)

    assert asyncio.run(run()) == [22, 24, 26, 28, 30]
