"""Throughput of two clients of one large model, against two interpreters without a service, and what preferences do.

`python -m tests.benchmark.two_clients` starts two processes. Each has LiteRT with one thread, and bursts of a service
on the same machine with each preference. Both call the same one at the same time, and then one of them does alone, in
turns within a round. Processor time is that of all processes: what exceeds the interpreters' is the own work of the
service and the clients, and of threads that wait for work. The model is made of convolutions and needs no files.
"""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import nnhal
import nnhal.tflite
from nnhal.cpu import available_cpus
from nnhal.embedded import EmbeddedService
from nnhal.types import ExecutionPreference
from tests.benchmark.figures import Figure
from tests.benchmark.timing import own_processes, processor_s
from tests.benchmark.warm_start import load_engine
from tests.nnhal.tflite.build import Op, Tensor, build, options

THROUGHPUT = 0.95
"""Share of the interpreters' throughput that two clients must reach."""
PROCESSOR_FACTOR = 1.05
"""Limit of the processor time of a call, in multiples of an interpreter's."""
ENGINE = "LiteRT alone"
LIMITED = (ExecutionPreference.FAST_SINGLE_ANSWER, ExecutionPreference.SUSTAINED_SPEED)
"""Preferences of which two clients must reach the interpreters' throughput."""

_CLIENTS = 2
_LAYERS, _EDGE, _CHANNELS = 5, 56, 64
INPUT_SHAPE = (1, 2 * _EDGE, 2 * _EDGE, 3)
_WINDOW_S = 1.0
_START_LIMIT_S = 120

_calls: dict[str, Callable[[int], tuple[int, float]]] = {}
"""Calls of this client process, by name."""


def write_model(path: Path) -> None:
    """Write a model of convolutions from an image to one value for each channel: 10 to 30 ms on one core."""
    random = np.random.default_rng(7)
    tensor, operators = Tensor(INPUT_SHAPE), []
    for layer in range(_LAYERS):
        shape = (_CHANNELS, 3, 3, tensor.shape[-1])
        weights, bias = (
            Tensor(shape, data=random.standard_normal(shape) / 24),
            Tensor((_CHANNELS,), data=[0.0] * _CHANNELS),
        )
        stride = 1 if layer else 2
        output = Tensor((1, _EDGE, _EDGE, _CHANNELS))
        convolution = options("Conv2D", strideW=stride, strideH=stride)
        operators.append(Op("CONV_2D", [tensor, weights, bias], [output], convolution))
        tensor = output
    pooling = options("Pool2D", strideW=1, strideH=1, filterWidth=_EDGE, filterHeight=_EDGE, padding=1)
    operators.append(Op("AVERAGE_POOL_2D", [tensor], [Tensor((1, 1, 1, _CHANNELS))], pooling))
    path.write_bytes(build(*operators))


def start_client(path: Path, target: str, barrier: threading.Barrier) -> None:
    """Prepare the calls of this client process, which it keeps until it ends."""
    data = np.random.default_rng(7).random(INPUT_SHAPE, np.float32)
    engine = load_engine(path)
    source, result = engine.get_input_details()[0]["index"], engine.get_output_details()[0]["index"]

    def alone() -> object:
        engine.set_tensor(source, data)
        engine.invoke()
        return engine.get_tensor(result)

    calls: dict[str, Callable[[], object]] = {ENGINE: alone}
    device = nnhal.connect(target)
    for preference in ExecutionPreference:
        prepared = device.prepare(nnhal.tflite.load(path), preference=preference).result(_START_LIMIT_S)
        calls[preference.name] = partial(prepared.burst().execute, [data])
    for name, call in calls.items():
        _calls[name] = partial(repeat, call, barrier)


def repeat(call: Callable[[], object], barrier: threading.Barrier, clients: int) -> tuple[int, float]:
    """Repeat a call, at the same time as the other client if there are two.

    Returns:
        The number of calls, and the seconds that they took.
    """
    if clients > 1:
        barrier.wait(_START_LIMIT_S)
    start, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < _WINDOW_S or not count:
        call()
        count += 1
    return count, elapsed


def run_window(name: str, clients: int) -> tuple[int, float]:
    """Run a call of this client process for some time, see `repeat`."""
    return _calls[name](clients)


Window = tuple[float, float]
"""Calls per second of all clients, and seconds of processor time for each call."""


def measure(path: Path, rounds: int) -> dict[tuple[str, int], list[Window]]:
    """Return the windows of each way and number of clients, round by round."""
    context = get_context("spawn")
    with ExitStack() as stack:
        service = EmbeddedService()
        stack.callback(service.close)
        start = (path, service.target, context.Barrier(_CLIENTS))
        pool = stack.enter_context(ProcessPoolExecutor(_CLIENTS, context, start_client, start))

        def window(name: str, clients: int) -> Window:
            processes = own_processes()
            before_s = processor_s(processes)
            results = list(pool.map(run_window, [name] * clients, [clients] * clients))
            spent_s = processor_s(processes) - before_s
            return sum(count / seconds for count, seconds in results), spent_s / sum(count for count, _ in results)

        names = [ENGINE, *(preference.name for preference in ExecutionPreference)]
        ways = [(name, clients) for name in names for clients in (_CLIENTS, 1)]
        for way in ways:  # starts the processes, and lets the driver choose the number of threads
            window(*way)
        windows: dict[tuple[str, int], list[Window]] = {way: [] for way in ways}
        for number in range(rounds):
            for way in ways[:: -1 if number % 2 else 1]:
                windows[way].append(window(*way))
        return windows


def figures(rounds: int) -> Iterator[Figure]:
    """Yield the figures."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "large.tflite")
        write_model(path)
        windows = measure(path, rounds)
    yield Figure(f"{ENGINE}: two together", [rate for rate, _ in windows[ENGINE, _CLIENTS]], "/s")
    yield Figure(f"{ENGINE}: one", [rate for rate, _ in windows[ENGINE, 1]], "/s")
    for preference in ExecutionPreference:
        has_limit = preference in LIMITED
        for clients, text in ((_CLIENTS, "two clients"), (1, "one client")):
            pairs = list(zip(windows[preference.name, clients], windows[ENGINE, clients], strict=True))
            rates, costs = [own[0] / bare[0] for own, bare in pairs], [own[1] / bare[1] for own, bare in pairs]
            name, limited = f"{preference.name}, {text}", has_limit and clients > 1
            yield Figure(f"{name}: throughput against {ENGINE}", rates, "x", THROUGHPUT if limited else None, True)
            yield Figure(f"{name}: processor time", costs, "x", PROCESSOR_FACTOR if limited else None)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    rounds = 3 if parser.parse_args(arguments).quick else 15
    print(f"Two clients of one large model ({available_cpus()} cores, load {os.getloadavg()[0]:.1f})", flush=True)
    for figure in figures(rounds):
        print(figure, flush=True)


if __name__ == "__main__":
    main()
