"""Answers per second of many clients with and without batches, in one run.

`python -m tests.benchmark.batching` starts a service that has each model by two names: one whose executions may join,
and one whose executions run alone. The same number of client processes call both in turns. The engine's own gain is
that of a batch in one client: what the service can gain is less where its own work for each call is large. The latency
that 99 % of the calls keep is compared with the delay and twice the execution of a full batch.
"""

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import nnhal
import nnhal.tflite
from nnhal_tools.bench.bench import run_bench
from nnhal_tools.bench.results import LoadResult
from nnhal_tools.bench.specification import ClientTask, Level, Subject
from nnhal_tools.cli.inputs import random_inputs
from tests.benchmark.figures import Figure, model_path, show
from tests.benchmark.timing import median_us
from tests.end_to_end.support.service_process import start_service, stop_service

MODELS = ("vww_96_int8", "vww_96_float")
PATHS = ("grpc", "same-machine")
GAIN = 1.5
"""Answers per second with batches, in multiples of those without, where the engine gains as much."""
_CALLS = 30


def engine_us(model: str, target: str, items: int) -> float:
    """Return the time of one item in microseconds, if one client executes some at once."""
    source = model_path(model)
    single = nnhal.tflite.load(source)
    (index,), (name,) = single.main.input_indexes, single.input_names
    shape = single.main.operands[index].dimensions
    with nnhal.connect(target) as device:
        loaded = nnhal.tflite.load(source, shapes={name: (items, *shape[1:])})
        with device.prepare(loaded).result() as prepared, prepared.burst() as burst:
            inputs = random_inputs(prepared.inputs)
            return min(median_us(lambda: burst.execute(inputs), 1) for _ in range(_CALLS)) / items


def measure(model: str, options: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    """Yield the figures of one model."""
    for name, batch in (("alone", 1), ("joined", options.max_batch)):
        (folder / name).mkdir(parents=True)
        shutil.copy(model_path(model), folder / name / "model.tflite")
        text = f"max_batch = {batch}\nmax_delay = {options.max_delay}\nwarm = true\n"
        (folder / name / "config.toml").write_text(text)
    service = start_service(folder, "--models", str(folder), module="nnhal_tools.cli")
    try:
        one, many = (engine_us(model, service.target, items) for items in (1, options.max_batch))
        yield Figure(f"{model}: an item in a batch of {options.max_batch} of the engine", [many], "us")
        yield Figure(f"{model}: gain of the engine", [one / many], "x")
        inputs = folder / "inputs.npz"
        with nnhal.connect(service.target) as device:
            np.savez(inputs, *random_inputs(device.model("alone").inputs))
        for path in options.paths:
            results = _compare(service.target, path, inputs, options)
            yield from _figures(model, path, results, options.max_delay + 2 * many * options.max_batch / 1e3)
    finally:
        stop_service(service)


def _compare(target: str, path: str, inputs: Path, options: argparse.Namespace) -> list[LoadResult]:
    tasks = [
        ClientTask(name, str(inputs), Subject(path, target, name), "", {}, fallback=False, is_named=True)
        for name in ("alone", "joined")
    ]
    return run_bench(
        tasks,
        [Level(options.clients)],
        baseline=lambda task: tasks[0] if task is tasks[1] else None,
        rounds=options.rounds,
        duration_s=options.seconds,
        warmup_s=0.5,
        progress=lambda text: None,
    )


def _figures(model: str, path: str, results: list[LoadResult], limit_ms: float) -> Iterator[Figure]:
    alone, joined = results
    for result in results:
        subject = f"{model}, {path}, {result.level.clients} clients, {result.subject.label}"
        assert not result.errors, result.errors
        yield Figure(f"{subject}: answers per second", [result.calls_per_s.median], "/s")
        if result.service_us is not None:
            yield Figure(f"{subject}: processor time of the service", [result.service_us], "us")
        limit = limit_ms if result is joined else None
        yield Figure(f"{subject}: 99 % of the calls", [result.latency_us["p99"] / 1e3], "ms", limit)
    gain = joined.calls_per_s.median / alone.calls_per_s.median
    yield Figure(f"{model}, {path}: gain of the service", [gain], "x", GAIN, at_least=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--paths", nargs="+", default=PATHS)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--max-batch", type=int, default=8)
    parser.add_argument("--max-delay", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args()
    for model in options.models:
        with tempfile.TemporaryDirectory(prefix="nnhal-batching-") as folder:
            show(model, lambda model=model, folder=folder: measure(model, options, Path(folder)))  # type: ignore[misc]


if __name__ == "__main__":
    main()
