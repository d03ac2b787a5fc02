"""GpuAcc: executions by the driver against the engine's C API alone and against CpuAcc, and warm starts.

`python -m tests.benchmark.gpu --adapter NAME` measures float models that it makes (a single convolution, MobileNet v2
and a network for super-resolution, with batches of 1 and 8), and the float models of ../shared/models. Each round
measures all paths one after the other. `--generated` leaves out ../shared, `--tiny` all but the convolution, and
`--memory` prints the memory of the GPU that nvidia-smi shows.
"""

import argparse
import subprocess
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from queue import SimpleQueue

import numpy as np

import nnhal.tflite
from nnhal import ModelBuilder
from nnhal.builder.graph import OperandRef
from nnhal.enums import FusedActivationFunc
from nnhal.types import (
    AnyArray,
    DataLocation,
    ExecutionConfig,
    ExecutionPreference,
    Memory,
    Model,
    Operand,
    OperandType,
    PrepareModelConfig,
    Request,
    RequestArgument,
    ReturnedPool,
)
from nnhal.types import OperationType as Op
from nnhal_driver.backends import registry
from nnhal_driver.backends.api import Backend, CompileOptions
from nnhal_driver.backends.gpu.backend import GpuAcc
from nnhal_driver.backends.gpu.engine import GpuMemory
from nnhal_driver.backends.gpu.litert_api import READ, WRITE, api
from nnhal_driver.backends.gpu.subgraph import GpuSubgraph
from nnhal_driver.backends.options import BackendOptions
from nnhal_driver.device import Device
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.graph import build_graphs, subgraph_view
from nnhal_driver.preparation.outcome import Outcome
from tests.benchmark.figures import Figure, model_path
from tests.benchmark.timing import elapsed_ms, median_us
from tests.driver.launches import launch_preparation

F32 = OperandType.TENSOR_FLOAT32
SHARED_MODELS = ("vww_96_float", "selfie_segmentation", "palm_detection_lite", "face_detection_short_range")
_RELU, _RELU6, _NONE = FusedActivationFunc.RELU, FusedActivationFunc.RELU6, FusedActivationFunc.NONE


class Network:
    """A network of images under construction, with random weights."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._builder = ModelBuilder()
        self._random = np.random.default_rng(0)
        self.value: OperandRef = self._builder.input(F32, shape)
        self.shape = shape

    def _weights(self, *shape: int, fan_in: int) -> OperandRef:
        return self._builder.constant((self._random.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32))

    def _add(self, type_: Op, *arguments: OperandRef | int, shape: tuple[int, ...]) -> None:
        self.value = self._builder.add(type_, self.value, *arguments, output=Operand(F32, shape))
        self.shape = shape

    def convolve(self, channels: int, size: int = 1, stride: int = 1, activation: int = _NONE) -> None:
        """Add a CONV_2D with SAME padding."""
        batch, height, width, depth = self.shape
        weights = self._weights(channels, size, size, depth, fan_in=size * size * depth)
        bias = self._builder.constant(np.zeros(channels, np.float32))
        shape = (batch, -(-height // stride), -(-width // stride), channels)
        self._add(Op.CONV_2D, weights, bias, 1, stride, stride, activation, shape=shape)

    def convolve_depthwise(self, stride: int) -> None:
        """Add a DEPTHWISE_CONV_2D of 3 by 3 with SAME padding."""
        batch, height, width, depth = self.shape
        bias = self._builder.constant(np.zeros(depth, np.float32))
        shape = (batch, -(-height // stride), -(-width // stride), depth)
        weights = self._weights(1, 3, 3, depth, fan_in=9)
        self._add(Op.DEPTHWISE_CONV_2D, weights, bias, 1, stride, stride, 1, _RELU6, shape=shape)

    def add(self, other: OperandRef) -> None:
        """Add another value."""
        self._add(Op.ADD, other, 0, shape=self.shape)

    def classify(self, classes: int) -> None:
        """Add a mean over each image and a FULLY_CONNECTED."""
        batch, _, _, depth = self.shape
        axes = self._builder.constant(np.array([1, 2], np.int32))
        self._add(Op.MEAN, axes, 0, shape=(batch, depth))
        bias = self._builder.constant(np.zeros(classes, np.float32))
        self._add(Op.FULLY_CONNECTED, self._weights(classes, depth, fan_in=depth), bias, 0, shape=(batch, classes))

    def build(self) -> Model:
        """Return the model."""
        self._builder.output(self.value)
        return self._builder.build()


def mobilenet(batch: int) -> Model:
    """Return a MobileNet v2."""
    network = Network((batch, 224, 224, 3))
    network.convolve(32, 3, 2, _RELU6)
    blocks = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expansion, channels, count, stride in blocks:
        for number in range(count):
            before = network.value
            if expansion > 1:
                network.convolve(network.shape[3] * expansion, activation=_RELU6)
            network.convolve_depthwise(1 if number else stride)
            network.convolve(channels)
            if number:
                network.add(before)
    network.convolve(1280, activation=_RELU6)
    network.classify(1000)
    return network.build()


def super_resolution(batch: int, size: int = 128, blocks: int = 16) -> Model:
    """Return a network like EDSR: residual blocks of two convolutions with 64 channels."""
    network = Network((batch, size, size, 3))
    network.convolve(64, 3)
    head = network.value
    for _ in range(blocks):
        before = network.value
        network.convolve(64, 3, activation=_RELU)
        network.convolve(64, 3)
        network.add(before)
    network.convolve(64, 3)
    network.add(head)
    network.convolve(12, 3)
    return network.build()


def convolution() -> Model:
    """Return a single small convolution, whose call is all that takes time."""
    network = Network((1, 8, 8, 4))
    network.convolve(4, 3)
    return network.build()


def models(with_shared: bool) -> Iterator[tuple[str, Model]]:
    """Yield the names and the models, the smallest first."""
    yield "convolution", convolution()
    for batch in (1, 8):
        yield f"MobileNet v2, batch {batch}", mobilenet(batch)
        yield f"super-resolution, batch {batch}", super_resolution(batch)
    for name in SHARED_MODELS if with_shared else ():
        if model_path(name).exists():
            yield name, nnhal.tflite.load(model_path(name))


class Prepared:
    """A model on some backends, by the driver in this process."""

    def __init__(self, model: Model, backends: Sequence[Backend], inputs: Sequence[AnyArray]) -> None:
        self._device = Device("bench", backends)
        config = PrepareModelConfig(preference=ExecutionPreference.FAST_SINGLE_ANSWER)
        outcomes: SimpleQueue[Outcome] = SimpleQueue()
        launch_preparation(self._device, model, outcomes.put, config)
        outcome = outcomes.get()
        if outcome.prepared_model is None:
            raise RuntimeError(outcome.reason)
        self.model = outcome.prepared_model
        pools = [Memory.of(array.tobytes()) for array in inputs]
        arguments = [RequestArgument(False, DataLocation(i, 0, array.nbytes)) for i, array in enumerate(inputs)]
        results = (RequestArgument(False, DataLocation(len(pools))),) * len(self.model.outputs)
        self._config = ExecutionConfig()
        self._request = self.model.validate(Request(tuple(arguments), results, (*pools, ReturnedPool())), self._config)

    def __call__(self) -> object:
        return self.model.execute_valid(self._request, self._config, ExecutionCall())

    @property
    def placement(self) -> str:
        """The number of operations on each backend."""
        backends = [operation.backend for operation in self.model.placement.operations]
        return ", ".join(f"{backends.count(name)} {name}" for name in dict.fromkeys(backends))


class EngineCalls:
    """An execution by the functions of the C API and nothing else, with buffers that are used again."""

    def __init__(self, compiled: GpuSubgraph, memory: GpuMemory, inputs: Sequence[AnyArray]) -> None:
        self._compiled = compiled._gpu._compiled
        self._inputs = [(memory.to_own(array), array) for array in inputs]
        shapes = [shape for _, shape in compiled.model.outputs]
        self._outputs = [(memory.acquire(shape, np.dtype(np.float32)), np.empty(shape, np.float32)) for shape in shapes]
        ffi = api().ffi
        self._address, self._is_async = ffi.new("void **"), ffi.new("bool *")
        self._read = ffi.new("void *[]", [buffer.handle for buffer, _ in self._inputs])
        self._written = ffi.new("void *[]", [buffer.handle for buffer, _ in self._outputs])

    def __call__(self) -> None:
        engine, copy, address = api().library, api().ffi.memmove, self._address
        for buffer, array in self._inputs:
            engine.LiteRtLockTensorBuffer(buffer.handle, address, WRITE)
            copy(address[0], array, array.nbytes)
            engine.LiteRtUnlockTensorBuffer(buffer.handle)
        for buffer, _ in self._outputs:
            engine.LiteRtClearTensorBufferEvent(buffer.handle)
        counts = len(self._inputs), len(self._outputs)
        engine.LiteRtRunCompiledModelAsync(
            self._compiled, 0, counts[0], self._read, counts[1], self._written, self._is_async
        )
        for buffer, array in self._outputs:
            engine.LiteRtLockTensorBuffer(buffer.handle, address, READ)
            copy(array, address[0], array.nbytes)
            engine.LiteRtUnlockTensorBuffer(buffer.handle)


def measure(name: str, model: Model, adapter: str, rounds: int) -> Iterator[Figure]:
    """Yield the figures of one model."""
    random = np.random.default_rng(1)
    shapes = [model.main.operands[i].dimensions for i in model.main.input_indexes]
    inputs = [random.random(shape).astype(np.float32) for shape in shapes]
    backend = GpuAcc(BackendOptions({"adapter": adapter, "placement": "always"}))
    graph = build_graphs(model)[0]
    view = subgraph_view(graph, range(len(graph.operations)), relaxed=False)
    options = CompileOptions(ExecutionPreference.FAST_SINGLE_ANSWER)
    cold_ms, compiled = elapsed_ms(lambda: backend.compile(view, options))
    assert isinstance(compiled, GpuSubgraph)
    sections = compiled.save()
    warm_ms = [elapsed_ms(lambda: backend.load(view, sections, options))[0] for _ in range(5)]
    memory = backend._memory

    measured = GpuAcc(BackendOptions({"adapter": adapter}))
    calls: dict[str, Callable[[], object]] = {
        "C API alone": EngineCalls(compiled, memory, inputs),
        "driver, GpuAcc": Prepared(model, [backend], inputs),
        "driver, CpuAcc": Prepared(model, registry.create(["CpuAcc"]), inputs),
        "driver, GpuAcc and CpuAcc": Prepared(model, [measured, *registry.create(["CpuAcc"])], inputs),
    }
    for call in calls.values():
        median_us(call, 12)
    latencies: dict[str, list[float]] = {path: [] for path in calls}
    for _ in range(rounds):
        for path, call in calls.items():
            latencies[path].append(median_us(call, 10) / 1e3)
    yield Figure(f"{name}: first compilation", [cold_ms], "ms")
    yield Figure(f"{name}: from saved programs", warm_ms, "ms")
    for path, values in latencies.items():
        call = calls[path]
        placed = call.placement if isinstance(call, Prepared) else ""
        yield Figure(f"{name}: {path} ({placed})" if placed else f"{name}: {path}", values, "ms")
    pairs = zip(latencies["driver, GpuAcc"], latencies["C API alone"], strict=True)
    yield Figure(f"{name}: the driver adds", [(own - bound) * 1e3 for own, bound in pairs], "us", 30.0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapter", default="", help="part of the name of a GPU; by default the first in hardware")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--generated", action="store_true", help="leave out ../shared/models")
    parser.add_argument("--tiny", action="store_true", help="measure the convolution only")
    parser.add_argument("--memory", action="store_true", help="print the memory of the GPU before and after")
    options = parser.parse_args(arguments)
    if options.memory:
        _show_memory()
    print(f"GpuAcc: {GpuAcc(BackendOptions({'adapter': options.adapter})).fingerprint()}")
    for name, model in islice(models(not options.generated), 1 if options.tiny else None):
        try:
            for figure in measure(name, model, options.adapter, options.rounds):
                print(figure, flush=True)
        except (nnhal.HalError, RuntimeError) as error:
            print(f"{name}: not measured: {error}", flush=True)
    if options.memory:
        _show_memory()


def _show_memory() -> None:
    query = ["nvidia-smi", "--query-gpu=name,memory.used,utilization.gpu", "--format=csv,noheader"]
    print(subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip(), flush=True)


if __name__ == "__main__":
    main()
