"""Large tensors and large models: throughput against copies of memory and bare sockets, and peak memory.

`python -m tests.benchmark.large` sends inputs of 24 MiB to a model that returns their first elements, so that it
measures little but the transport: over gRPC, over shared memory, and over shared memory that the caller fills. Beside
them run a copy of the same bytes in memory, a bare Unix socket that passes them, and a bare Unix socket with a memfd
(see `bare.unix_socket`). The second part prepares and runs a model with 300 MB of weights. Peaks are those of VmHWM
above the memory before, in multiples of the tensor or the weights, each in new processes. A page of shared memory
counts in both of them.
"""

import argparse
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

import numpy as np

import nnhal
import nnhal.tflite
from nnhal.client.core.arrays import Outputs
from nnhal.cpu import available_cpus
from nnhal.embedded import EmbeddedService
from nnhal.types import AnyArray
from tests.benchmark.bare.grpc_server import Call, server_process
from tests.benchmark.bare.unix_socket import CONNECT_LIMIT_S, SocketTask, serve, socket_call
from tests.benchmark.figures import Figure
from tests.benchmark.payloads import MIB, OUTPUT_ELEMENTS, head_model
from tests.benchmark.timing import checked_median_us, elapsed_ms, median_us, own_processes
from tests.benchmark.warm_start import load_engine
from tests.end_to_end.support.process_usage import status_bytes
from tests.nnhal.tflite.build import Op, Tensor, build, options, pack, unpack

P = ParamSpec("P")
R = TypeVar("R")

TENSOR_BYTES = 24 * MIB
TENSOR_PEAK = 2.5
"""Limit of the peak of one process, in multiples of the tensor."""
WEIGHTS_MB = 300
MODEL_PEAK = 2.5
"""Limit of the peak of one process, in multiples of the weights."""
_LAYERS = 3
_PREPARE_LIMIT_S = 300
_EXECUTIONS = 3
"""Executions whose peak is measured. The second one may define the request."""

PATHS = ("gRPC unary", "gRPC burst", "same-machine unary", "same-machine burst", "same-machine burst in place")
TRANSPORTS = {"gRPC": "grpc", "same-machine": "auto"}


@dataclass(frozen=True)
class Peaks:
    """Growth of the memory of two processes up to their peaks, in bytes."""

    client: int
    service: int


class PeakMeter:
    """Measures how much the memory of this process and of its descendants grows from now to its peak."""

    def __init__(self) -> None:
        self._own, *self._services = own_processes()
        for pid in (self._own, *self._services):
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is now what is resident now
        self._before = {pid: status_bytes(pid, "VmRSS") for pid in (self._own, *self._services)}

    def peaks(self) -> Peaks:
        """Return the growth up to the peak, for services the sum."""
        return Peaks(self._growth(self._own), sum(map(self._growth, self._services)))

    def _growth(self, pid: int) -> int:
        return status_bytes(pid, "VmHWM") - self._before[pid]


def in_new_process(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return the result of a function in a new process, whose memory holds nothing from before."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *args, **kwargs).result()


# ---- Bare servers ------------------------------------------------------------------------------------------


def head(data: memoryview) -> bytes:
    """Return the first elements of an input, which is copied before, as an engine does."""
    return np.frombuffer(data, np.float32).copy()[:OUTPUT_ELEMENTS].tobytes()


def serve_bare(path: str) -> None:
    """Serve the bare socket with a memfd at a path, and the one that passes the bytes beside it."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(stream_path(path))
        listener.listen()
        threading.Thread(target=_serve_stream, args=(listener,), daemon=True).start()
        serve({"head": SocketTask(TENSOR_BYTES, lambda: head)}, path)


def stream_path(path: str) -> str:
    """Return the path of the socket that passes the bytes."""
    return f"{path}.stream"


def _serve_stream(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    with connection:
        data = memoryview(bytearray(TENSOR_BYTES))
        while _receive_all(connection, data):
            connection.sendall(head(data))


def _receive_all(connection: socket.socket, data: memoryview) -> bool:
    """Fill a buffer from a socket. Return False if the other end has closed it."""
    received = 0
    while received < len(data):
        count = connection.recv_into(data[received:])
        if not count:
            return False
        received += count
    return True


@contextmanager
def stream_call(path: str, data: AnyArray) -> Iterator[Call]:
    """Yield a call that passes the bytes of an input through a Unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(CONNECT_LIMIT_S)
        connection.connect(stream_path(path))
        connection.settimeout(None)
        view, output = data.data.cast("B"), bytearray(OUTPUT_ELEMENTS * 4)

        def call() -> bytes:
            connection.sendall(view)
            if not _receive_all(connection, memoryview(output)):
                raise RuntimeError("the server has closed the connection")
            return bytes(output)

        yield call


# ---- Large tensors -----------------------------------------------------------------------------------------


def example() -> AnyArray:
    """Return the input, the same in every process."""
    return np.random.default_rng(7).random(TENSOR_BYTES // 4, np.float32)


def first_output(execute: Callable[[list[AnyArray]], Outputs], data: AnyArray) -> bytes:
    """Execute with one input and return the bytes of the first output."""
    return execute([data])[0].tobytes()


def path_call(path: str, target: str, data: AnyArray, stack: ExitStack) -> Call:
    """Return a call of one path of a service, over a connection of its own."""
    kind = "gRPC" if path.startswith("gRPC") else "same-machine"
    device = stack.enter_context(nnhal.connect(target, transport=TRANSPORTS[kind]))  # type: ignore[arg-type]
    prepared = stack.enter_context(device.prepare(head_model(data.size)).result(60))
    if path.endswith("unary"):
        return partial(first_output, prepared.execute, data)
    burst = stack.enter_context(prepared.burst())
    if not path.endswith("in place"):
        return partial(first_output, burst.execute, data)

    def in_place() -> bytes:
        # the caller writes into `inputs`, as a decoder would; here it writes the first elements only
        inputs = burst.inputs
        inputs[0][:OUTPUT_ELEMENTS] = data[:OUTPUT_ELEMENTS]
        return burst.execute(inputs, copy=False)[0].tobytes()

    return in_place


def tensor_latencies(rounds: int, count: int) -> dict[str, list[float]]:
    """Return the median latency of each way in each round, in µs."""
    data = example()
    target, expected = np.empty_like(data), data[:OUTPUT_ELEMENTS].tobytes()

    def copy() -> bytes:
        np.copyto(target, data)
        return target[:OUTPUT_ELEMENTS].tobytes()

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        service = EmbeddedService()
        stack.callback(service.close)
        bare = stack.enter_context(server_process("tests.benchmark.large", f"{folder}/socket"))
        calls: dict[str, Call] = {
            "memcpy": copy,
            "bare socket, bytes": stack.enter_context(stream_call(bare, data)),
            "bare socket, memfd": stack.enter_context(socket_call(bare, "head", data.tobytes(), OUTPUT_ELEMENTS * 4)),
        }
        for path in PATHS:
            calls[path] = path_call(path, service.target, data, stack)
        latencies: dict[str, list[float]] = {path: [] for path in calls}
        for number in range(rounds):
            for path in list(calls)[:: -1 if number % 2 else 1]:
                latencies[path].append(checked_median_us(calls[path], count, expected))
        return latencies


def tensor_peaks(path: str) -> Peaks:
    """Return the peaks of executions over one path, in this process and in a new service."""
    data = example()
    with ExitStack() as stack:
        service = EmbeddedService()
        stack.callback(service.close)
        call = path_call(path, service.target, data, stack)
        meter = PeakMeter()
        for _ in range(_EXECUTIONS):
            call()
        return meter.peaks()


def tensor_figures(rounds: int) -> Iterator[Figure]:
    """Yield the figures of large tensors."""
    latencies = tensor_latencies(rounds, 7)
    for path, values in latencies.items():
        yield Figure(f"24 MiB, {path}", [TENSOR_BYTES / each / 1e3 for each in values], "GB/s")
    for path in PATHS:
        bound = "bare socket, bytes" if path.startswith("gRPC") else "bare socket, memfd"
        for each in ("memcpy", bound):
            yield Figure(f"24 MiB, {path}: time against {each}", ratios(latencies[path], latencies[each]), "x")
    for path in PATHS:
        yield from peak_figures(f"24 MiB, {path}", in_new_process(tensor_peaks, path), TENSOR_BYTES, TENSOR_PEAK)


def ratios(values: Sequence[float], bounds: Sequence[float]) -> list[float]:
    """Return the ratio of each round."""
    return [value / bound for value, bound in zip(values, bounds, strict=True)]


def peak_figures(name: str, peaks: Peaks, size: int, limit: float) -> Iterator[Figure]:
    """Yield the peaks of client and service in multiples of a size in bytes."""
    for side, peak in (("client", peaks.client), ("service", peaks.service)):
        yield Figure(f"{name}: peak of the {side}", [peak / size], "x", limit)


# ---- Large models ------------------------------------------------------------------------------------------


def write_model(path: Path) -> int:
    """Write a model of fully connected layers with random weights. Return the bytes of the weights."""
    width = int((WEIGHTS_MB * 1e6 / 4 / _LAYERS) ** 0.5) // 64 * 64
    random = np.random.default_rng(7)
    tensor, operators = Tensor((1, width)), []
    for _ in range(_LAYERS):
        weights = Tensor((width, width), data=random.random((width, width), np.float32) / width)
        output = Tensor((1, width))
        operators.append(Op("FULLY_CONNECTED", [tensor, weights, None], [output], options("FullyConnected")))
        tensor = output
    path.write_bytes(pack(unpack(build(*operators)), aligned=True))
    return _LAYERS * width * width * 4


def engine_peak(path: Path) -> Peaks:
    """Return the peak of LiteRT alone in this process: load, and one execution."""
    meter = PeakMeter()
    engine = load_engine(path)
    engine.invoke()
    return meter.peaks()


def model_peaks(path: Path, transport: str) -> Peaks:
    """Return the peaks of loading, preparing and running the model, in this process and in a new service."""
    with ExitStack() as stack:
        service = EmbeddedService()
        stack.callback(service.close)
        device = stack.enter_context(nnhal.connect(service.target, transport=transport))  # type: ignore[arg-type]
        meter = PeakMeter()
        prepared = stack.enter_context(device.prepare(nnhal.tflite.load(path)).result(_PREPARE_LIMIT_S))
        prepared.execute([np.ones(prepared.inputs[0].dimensions, np.float32)])
        return meter.peaks()


@dataclass(frozen=True)
class ModelTimes:
    """Times of the large model in one round.

    Attributes:
        copy_ms: a copy of the weights in memory.
        engine_ms: the load of LiteRT alone.
        prepare_ms: the preparation, by transport. The service has never seen the weights.
        engine_us: an execution of LiteRT alone.
        burst_us: an execution in a same-machine burst.
    """

    copy_ms: float
    engine_ms: float
    prepare_ms: dict[str, float]
    engine_us: float
    burst_us: float


def model_times(path: Path, weights: int) -> ModelTimes:
    """Measure the large model once, in this process and in new services."""
    source = np.full(weights // 4, 1, np.float32)
    copy_ms, _ = elapsed_ms(source.copy)
    del source
    engine_ms, engine = elapsed_ms(lambda: load_engine(path))
    engine_us = median_us(engine.invoke, 5)
    del engine
    prepare_ms, burst_us = {}, 0.0
    for name, transport in TRANSPORTS.items():
        with ExitStack() as stack:
            service = EmbeddedService()
            stack.callback(service.close)
            device = stack.enter_context(nnhal.connect(service.target, transport=transport))  # type: ignore[arg-type]
            model = nnhal.tflite.load(path)
            prepare_ms[name], prepared = elapsed_ms(partial(device.prepare(model).result, _PREPARE_LIMIT_S))
            burst = stack.enter_context(stack.enter_context(prepared).burst())
            inputs = [np.ones(prepared.inputs[0].dimensions, np.float32)]
            burst_us = median_us(lambda: burst.execute(inputs), 15)  # noqa: B023 - called at once
    return ModelTimes(copy_ms, engine_ms, prepare_ms, engine_us, burst_us)


def model_figures(rounds: int) -> Iterator[Figure]:
    """Yield the figures of a large model."""
    name = f"{WEIGHTS_MB} MB of weights"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "large.tflite")
        weights = in_new_process(write_model, path)
        times = [in_new_process(model_times, path, weights) for _ in range(rounds)]
        yield Figure(f"{name}: copied in memory", [each.copy_ms for each in times], "ms")
        yield Figure(f"{name}: loaded by LiteRT alone", [each.engine_ms for each in times], "ms")
        for kind in TRANSPORTS:
            yield Figure(f"{name}: first preparation, {kind}", [each.prepare_ms[kind] for each in times], "ms")
            added = [each.prepare_ms[kind] - each.engine_ms for each in times]
            against = [value / each.copy_ms for value, each in zip(added, times, strict=True)]
            yield Figure(f"{name}: {kind}, more than LiteRT's load, in copies", against, "x")
        burst = [each.burst_us / each.engine_us for each in times]
        yield Figure(f"{name}: same-machine burst against LiteRT with one thread", burst, "x")
        alone = in_new_process(engine_peak, path).client
        yield Figure(f"{name}: peak of LiteRT alone", [alone / weights], "x")
        for kind, transport in TRANSPORTS.items():
            peaks = in_new_process(model_peaks, path, transport)
            yield from peak_figures(f"{name}, {kind}", peaks, weights, MODEL_PEAK)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("address", nargs="?", help=argparse.SUPPRESS)  # runs as the bare server at this address
    given = parser.parse_args(arguments)
    if given.address:
        return serve_bare(given.address)
    print(f"Large tensors and models ({available_cpus()} cores, load {os.getloadavg()[0]:.1f})", flush=True)
    for figure in tensor_figures(3 if given.quick else 9):
        print(figure, flush=True)
    for figure in model_figures(1 if given.quick else 5):
        print(figure, flush=True)


if __name__ == "__main__":
    main()
