"""Streams of models with states on a real service, with both clients."""

import asyncio
import contextlib
import gc
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

import nnhal
import nnhal.aio
import nnhal.tflite
from nnhal.client.core.session import Transport
from nnhal.client.sync.stream import DeviceStates
from nnhal.types import AnyArray, ErrorStatus, Model, ModelState
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import tensor
from tests.end_to_end.support.service_process import Service, start_service, stop_service
from tests.shared import SHARED

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


def test_more_streams_than_connections(service: Service, recwarn: pytest.WarningsRecorder) -> None:
    """Those that get no connection to the data socket use gRPC. A stream that is not closed releases its connection."""
    with nnhal.connect(service.target) as device, device.prepare(running_sum()).result(60) as prepared:
        for _ in range(2):
            streams = [prepared.stream() for _ in range(20)]
            for count in range(1, 4):
                assert [stream.step([ONE])[0].tolist() for stream in streams] == [[2 * (10 + count)] * 3] * 20
            del streams
            gc.collect()
    assert [warning for warning in recwarn if warning.category is ResourceWarning] == []


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


@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_cancelled_step_leaves_the_states(service: Service, transport: Transport) -> None:
    """The service may still run the step when the next one begins. A step that is done already counts."""

    async def run() -> None:
        async with nnhal.aio.connect(service.target, transport=transport) as device:
            stream, total = (await device.prepare(running_sum())).stream(), 10
            for _ in range(20):
                cancelled = asyncio.create_task(stream.step([100 * ONE]))
                await asyncio.sleep(0)
                cancelled.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await cancelled
                    total += 100
                total += 1
                assert (await stream.step([ONE]))[0].tolist() == [2 * total] * 3
            await stream.close()

    asyncio.run(run())


@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_steps_equal_those_of_litert(service: Service, transport: Transport) -> None:
    """Two streams of a real model at once, with errors in the middle and a reset."""
    path = SHARED / "models/micro_wakeword_alexa.tflite"
    if not path.exists():
        pytest.skip("../shared/models is not present")
    random = np.random.default_rng(4)
    with nnhal.connect(service.target, transport=transport) as device:
        prepared = device.prepare(nnhal.tflite.load(path)).result(60)
        streams = [prepared.stream() for _ in range(2)]
        engines = [LiteRTStream(path) for _ in streams]
        for step in range(120):
            for stream, engine in zip(streams, engines, strict=True):
                window = random.integers(-128, 128, (1, 3, 40)).astype(np.int8)
                if step % 10 == 9:
                    with pytest.raises(nnhal.HalError, match="int64"):
                        stream.step([window.astype(np.int64)])
                    with pytest.raises(nnhal.HalError, match="deadline"):
                        stream.step([window], deadline=0)
                (score,) = stream.step([window], measure_timing=step % 7 == 0)
                assert score.tobytes() == engine.step(window)
            if step == 60:
                streams[0].reset()
                engines[0] = LiteRTStream(path)
        for stream in streams:
            stream.close()


class LiteRTStream:
    """Steps of a model with variables in LiteRT."""

    def __init__(self, path: Path) -> None:
        self._engine = Interpreter(str(path))
        self._engine.allocate_tensors()

    def step(self, window: AnyArray) -> bytes:
        """Return the bytes of the output."""
        self._engine.set_tensor(self._engine.get_input_details()[0]["index"], window)
        self._engine.invoke()
        output: AnyArray = self._engine.get_tensor(self._engine.get_output_details()[0]["index"])
        return output.tobytes()


@dataclass
class Sums:
    """A random model with states: each of its inputs is added to some of its states.

    Attributes:
        added: for each state, the number of the input that is added to it.
        values: the states.
    """

    model: Model
    added: Sequence[int]
    values: list[AnyArray]

    def step(self, inputs: Sequence[AnyArray]) -> list[AnyArray]:
        """Return the outputs of the model, which are twice its new states."""
        self.values = [value + inputs[i] for value, i in zip(self.values, self.added, strict=True)]
        return [2 * value for value in self.values]


def random_sums(random: np.random.Generator, size: int) -> Sums:
    """Return a model with its inputs, states and outputs in any order."""
    count, states = int(random.integers(1, 4)), int(random.integers(1, 5))
    type_ = tensor(T.TENSOR_FLOAT32, (size,))
    names = [f"x{i}" for i in range(count)] + [f"s{i}" for i in range(states)]
    inputs = [str(name) for name in random.permutation(names)]
    builder = nnhal.ModelBuilder()
    operands = {name: builder.input(T.TENSOR_FLOAT32, (size,), name=name) for name in inputs}
    added = [int(i) for i in random.integers(0, count, states)]
    results = {}
    for i, x in enumerate(added):
        results[f"s{i}"] = builder.add(Op.ADD, operands[f"s{i}"], operands[f"x{x}"], 0, output=type_)
        results[f"y{i}"] = builder.add(Op.MUL, results[f"s{i}"], np.array([2], np.float32), 0, output=type_)
    outputs = [str(name) for name in random.permutation(list(results))]
    for name in outputs:
        builder.output(results[name], name=name)
    initial = [random.integers(-9, 9, size).astype(np.float32) for _ in added]
    listed = [
        ModelState(f"s{i}", inputs.index(f"s{i}"), outputs.index(f"s{i}"), value) for i, value in enumerate(initial)
    ]
    random.shuffle(listed)
    return Sums(replace(builder.build(), states=tuple(listed)), added, initial)


@pytest.mark.parametrize("transport", ["auto", "grpc"])
@pytest.mark.parametrize(("seed", "size"), [(seed, 5) for seed in range(12)] + [(50, 800_000)])
def test_random_models_with_states(service: Service, transport: Transport, seed: int, size: int) -> None:
    """Inputs, outputs and states in any order. The large ones exceed a message and a packet's area."""
    random = np.random.default_rng(seed)
    sums = random_sums(random, size)
    count = len(sums.model.input_names) - len(sums.model.states)
    with (
        nnhal.connect(service.target, transport=transport) as device,
        device.prepare(sums.model).result(60).stream() as stream,
    ):
        for step in range(6):
            inputs = [random.integers(-9, 9, size).astype(np.float32) for _ in range(count)]
            named = {f"x{i}": array for i, array in enumerate(inputs)}
            positional = [named[name] for name in sums.model.input_names if name in named]
            outputs = stream.step(named if step % 2 else positional)
            expected = sums.step(inputs)
            assert sorted(outputs.names) == [f"y{i}" for i in range(len(expected))]
            for i, value in enumerate(expected):
                assert np.array_equal(outputs[f"y{i}"], value)


def test_broken_channel_is_replaced_by_grpc(service: Service) -> None:
    with nnhal.connect(service.target) as device, device.prepare(running_sum()).result(60).stream() as stream:
        stream.step([ONE])
        assert stream.step([ONE])[0].tolist() == [24] * 3
        states = stream._states
        assert isinstance(states, DeviceStates)
        assert states._channel is not None
        states._channel.connection.shutdown(socket.SHUT_RDWR)
        for value in (26, 28, 30):
            assert stream.step([ONE])[0].tolist() == [value] * 3


@pytest.mark.parametrize("transport", ["auto", "grpc"])
def test_open_shapes(service: Service, transport: Transport) -> None:
    """Each shape of an input is a request of its own."""
    builder = nnhal.ModelBuilder()
    x, total = builder.input(T.TENSOR_FLOAT32, (0,), name="x"), builder.input(T.TENSOR_FLOAT32, (1,), name="total")
    doubled = builder.add(Op.ADD, x, total, 0, output=tensor(T.TENSOR_FLOAT32, (0,)))
    builder.output(doubled, name="y")
    builder.output(builder.add(Op.ADD, total, total, 0, output=tensor(T.TENSOR_FLOAT32, (1,))), name="total")
    model = replace(builder.build(), states=(ModelState("total", 1, 1, np.ones(1, np.float32)),))
    with (
        nnhal.connect(service.target, transport=transport) as device,
        device.prepare(model).result(60).stream() as stream,
    ):
        for step in range(60):
            size = 1 + (step * 1000) % 7001
            (y,) = stream.step([np.full(size, step, np.float32)])
            assert np.array_equal(y, np.full(size, step + np.float32(2) ** step, np.float32))
