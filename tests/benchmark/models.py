"""Every model of ../shared/models: the driver in this process and a same-machine burst, against LiteRT alone.

`python -m tests.benchmark.models` runs LiteRT's default interpreter with one thread, the same with all threads, the
driver in this process, and a burst on an embedded service. Each round measures them one after the other, and divides
their medians by that of one thread in the same round. The limits apply to models that take LiteRT 1 ms or more.
"""

import argparse
import contextlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ai_edge_litert.interpreter import Interpreter

import nnhal
import nnhal.tflite
from nnhal.cpu import available_cpus
from nnhal.embedded import EmbeddedService
from nnhal.types import DTYPES, AnyArray, DataLocation, Memory, Model, Operand, Request, RequestArgument, ReturnedPool
from nnhal_driver.backends import registry
from nnhal_driver.device import Device
from tests.benchmark.figures import Figure, show
from tests.benchmark.timing import median_us
from tests.driver.one_operation import prepare
from tests.shared import SHARED

IN_PROCESS = 1.03
"""Limit of the driver in this process, in multiples of LiteRT with one thread."""
BURST = 1.10
"""Limit of a same-machine burst, in multiples of LiteRT with one thread."""
MIN_US = 1000.0
"""Microseconds of LiteRT from which the limits apply."""

ENGINE, ALL_THREADS, DRIVER, SAME_MACHINE = "LiteRT", "LiteRT, all threads", "driver in process", "same-machine burst"
_WARM_UP = 24
"""Calls before the first round. The driver chooses the number of threads in its first calls."""
_ROUND_US = 60_000.0
"""Approximate time of one path in a round."""

Call = Callable[[], object]


@dataclass(frozen=True)
class Subject:
    """A model with the value of each input. Inputs that are states come last, and are zero."""

    path: Path
    model: Model
    inputs: Sequence[AnyArray]


def subject(path: Path) -> Subject:
    """Return a model with random inputs, the same in each run.

    Raises:
        TfliteError: the model cannot be imported.
    """
    model = nnhal.tflite.load(path)
    operands = [model.main.operands[i] for i in model.main.input_indexes]
    engine = Interpreter(model_path=str(path))
    random = np.random.default_rng(7)
    inputs = [_random_values(random, operand) for operand in operands]
    for i in range(len(engine.get_input_details()), len(inputs)):
        inputs[i] = np.zeros_like(inputs[i])
    return Subject(path, model, inputs)


def _random_values(random: np.random.Generator, operand: Operand) -> AnyArray:
    dtype = DTYPES[operand.type]
    if dtype.kind == "f":
        return random.random(operand.dimensions).astype(dtype)
    high = 2 if dtype.kind == "b" else 100
    return random.integers(0, high, operand.dimensions).astype(dtype)


def engine_call(subject: Subject, threads: int) -> Call:
    """Return a call of LiteRT, which copies inputs in and outputs out."""
    engine = Interpreter(model_path=str(subject.path), num_threads=threads)
    engine.allocate_tensors()
    details = engine.get_input_details()
    inputs = [
        (each["index"], array.reshape(each["shape"]).astype(each["dtype"]))
        for each, array in zip(details, subject.inputs, strict=False)
    ]
    outputs = [each["index"] for each in engine.get_output_details()]

    def call() -> object:
        for index, array in inputs:
            engine.set_tensor(index, array)
        engine.invoke()
        return [engine.get_tensor(index) for index in outputs]

    return call


def driver_call(subject: Subject) -> Call:
    """Return an execution by the driver in this process, from a request to its result.

    Raises:
        RuntimeError: the model cannot be prepared.
    """
    outcome = prepare(subject.model, Device("bench", registry.create(["CpuAcc", "CpuRef"])))
    prepared = outcome.prepared_model
    if prepared is None:
        raise RuntimeError(outcome.reason)
    pools = [Memory.of(array.tobytes()) for array in subject.inputs]
    arguments = [RequestArgument(False, DataLocation(i, 0, array.nbytes)) for i, array in enumerate(subject.inputs)]
    results = (RequestArgument(False, DataLocation(len(pools))),) * len(prepared.outputs)
    request = Request(tuple(arguments), results, (*pools, ReturnedPool()))
    return lambda: prepared.execute_synchronously(request)


def burst_call(subject: Subject, device: nnhal.Device, stack: ExitStack) -> Call:
    """Return a call of a burst on the same machine."""
    prepared = stack.enter_context(device.prepare(subject.model).result())
    burst = stack.enter_context(prepared.burst())
    return lambda: burst.execute(subject.inputs)


def measure(subject: Subject, device: nnhal.Device, rounds: int) -> dict[str, list[float]]:
    """Return the median latency of each path in each round, in µs."""
    with ExitStack() as stack:
        calls = {
            ENGINE: engine_call(subject, 1),
            ALL_THREADS: engine_call(subject, available_cpus()),
            DRIVER: driver_call(subject),
            SAME_MACHINE: burst_call(subject, device, stack),
        }
        for call in calls.values():
            median_us(call, _WARM_UP)
        count = max(3, int(_ROUND_US / median_us(calls[ENGINE], 5)))
        latencies: dict[str, list[float]] = {path: [] for path in calls}
        for number in range(rounds):
            # the second half runs in the opposite order, so that no path always follows the same one
            for path in list(calls)[:: -1 if number % 2 else 1]:
                latencies[path].append(median_us(calls[path], min(count, 400)))
        return latencies


def figures(name: str, latencies: dict[str, list[float]]) -> Iterator[Figure]:
    """Yield the figures of one model."""
    engine = latencies[ENGINE]
    yield Figure(f"{name}: {ENGINE}, one thread", engine, "us")
    limited = statistics.median(engine) >= MIN_US
    for path, limit in ((ALL_THREADS, None), (DRIVER, IN_PROCESS), (SAME_MACHINE, BURST)):
        ratios = [own / bound for own, bound in zip(latencies[path], engine, strict=True)]
        yield Figure(f"{name}: {path}", ratios, "x", limit if limited else None)


def measure_all(names: Sequence[str], rounds: int) -> Iterator[Figure]:
    """Yield the figures of models; prints those that cannot be measured."""
    paths = sorted((SHARED / "models").glob("*.tflite"))
    with contextlib.closing(EmbeddedService()) as service, nnhal.connect(service.target) as device:
        for path in paths:
            if names and path.stem not in names:
                continue
            try:
                yield from figures(path.stem, measure(subject(path), device, rounds))
            except (nnhal.tflite.TfliteError, nnhal.HalError, RuntimeError) as error:
                reason = " ".join(str(error).split())
                print(f"{path.stem}: not measured: {reason[:160]}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; by default all")
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args(arguments)
    show("Real models", lambda: measure_all(options.names, options.rounds))


if __name__ == "__main__":
    main()
