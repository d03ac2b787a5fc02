"""`python -m tests.benchmark.peers`: nnhal beside Triton and MLServer, and beside the engine without a server.

All of them run the same model with LiteRT, one thread for each execution, and as many executions at once as there are
cores. nnhal runs with one worker, and with one for each core, as the other servers have a process for each. Clients are
processes: those of nnhal, and the same program with Triton's client library for each server. Everything takes turns in
rounds. Servers that cannot be had here are left out, with the reason. The first run installs them, which takes minutes
and a gigabyte.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from nnhal.cpu import available_cpus
from nnhal_tools.bench.bench import run_bench
from nnhal_tools.bench.results import LoadResult
from nnhal_tools.bench.specification import ENGINE, ClientTask, Subject, parse_levels
from tests.benchmark.peers.environment import Environment, Unavailable
from tests.benchmark.peers.picture import draw
from tests.benchmark.peers.servers import (
    MLSERVER,
    TRITON,
    PrepareServer,
    prepare_mlserver,
    prepare_nnhal,
    prepare_triton,
    run_server,
)

ROOT = Path(__file__).resolve().parents[3]
SERVERS: dict[str, tuple[Environment | None, PrepareServer]] = {
    "nnhal": (None, prepare_nnhal),
    "nnhal, more workers": (None, partial(prepare_nnhal, workers=available_cpus())),
    "Triton": (TRITON, prepare_triton),
    "MLServer": (MLSERVER, prepare_mlserver),
}
"""Environments of the servers, None for this one, and what writes their files."""
OWN_PATHS = {"same-machine": "same machine", "grpc": "gRPC", "grpc-burst": "gRPC burst"}
PATHS = {"inference": "tritonclient, gRPC", "inference-shared-memory": "tritonclient, shared memory"}


def make_inputs(model: Path, file: Path) -> int:
    """Write random inputs of a model to a file, and return the size of its first output in bytes."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(model), num_threads=1)
    interpreter.allocate_tensors()
    generator = np.random.default_rng(7)
    details = interpreter.get_input_details()
    np.savez(file, *(generator.integers(0, 100, each["shape"]).astype(each["dtype"]) for each in details))
    output = interpreter.get_output_details()[0]
    return int(interpreter.get_tensor(output["index"]).nbytes)


def protocol_tasks(base: ClientTask, name: str, address: str, client: Path, output_bytes: int) -> list[ClientTask]:
    """Return what clients of the Open Inference Protocol run, with the same program for all servers."""
    variables = [f"PYTHONPATH={ROOT}:{ROOT / 'client'}:{ROOT / 'tools'}", f"PEER_OUTPUT_BYTES={output_bytes}"]
    program = ("env", *variables, str(client / "bin/python"), "-m", "tests.benchmark.peers.inference_client")
    paths = [path for path in PATHS if path == "inference" or name != "MLServer"]  # it has no shared memory
    subjects = [Subject(path, address, f"{name}, {PATHS[path]}") for path in paths]
    return [replace(base, subject=subject, program=program) for subject in subjects]


def start_servers(stack: ExitStack, folder: Path, model: Path, environments: Path) -> dict[str, str]:
    """Start the servers that can be had, and return their addresses."""
    addresses = {}
    for name, (environment, prepare) in SERVERS.items():
        try:
            root = Path(sys.prefix) if environment is None else environment.create(environments)
            addresses[name] = stack.enter_context(run_server(root, prepare, folder / name, model))
        except Unavailable as error:
            print(f"skipped: {name}: {error}")
    return addresses


def measure(model: Path, concurrency: str, duration_s: float, rounds: int, environments: Path) -> list[LoadResult]:
    """Return the results of nnhal, of all servers that can be had, and of the engine alone."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="nnhal-peers-")))
        output_bytes = make_inputs(model, folder / "inputs.npz")
        addresses = start_servers(stack, folder, model, environments)
        base = ClientTask(
            str(model), str(folder / "inputs.npz"), Subject(ENGINE, "", "LiteRT, no server"), "", {}, True
        )
        tasks = [base]
        for name, address in addresses.items():
            if SERVERS[name][0] is None:
                tasks += [
                    replace(base, subject=Subject(p, address, f"{name}, {text}")) for p, text in OWN_PATHS.items()
                ]
            with suppress(Unavailable):  # Triton is left out, too, with the reason
                client = TRITON.create(environments)
                tasks += protocol_tasks(base, name, address, client, output_bytes)
        return run_bench(
            tasks,
            parse_levels(concurrency, ""),
            baseline=lambda task: None if task is tasks[0] else tasks[0],
            rounds=rounds,
            duration_s=duration_s,
            warmup_s=1.0,
            progress=lambda text: print(text, flush=True),
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a .tflite file with inputs of fixed shapes")
    parser.add_argument("--concurrency", default="1,4", help="numbers of client processes")
    parser.add_argument("--duration", type=float, default=9.0, help="seconds of each measurement, in all rounds")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--environments", type=Path, default=ROOT / "build/peers", help="folder for the environments")
    parser.add_argument("--picture", type=Path, help="write an SVG or PNG picture")
    parser.add_argument("--json", type=Path, help="write the results")
    options = parser.parse_args(arguments)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    results = measure(
        options.model.resolve(), options.concurrency, options.duration, options.rounds, options.environments.resolve()
    )
    for result in results:
        latency, rate = result.latency_us, result.calls_per_s
        print(
            f"{result.subject.label:47} {result.level.text:10} {rate.median:8,.0f} calls/s"
            f" ({rate.least:,.0f} to {rate.largest:,.0f})  p50 {latency['p50']:8,.0f} us  p99 {latency['p99']:8,.0f} us"
            f"  CPU {result.client_us + (result.service_us or 0):6,.0f} us/call"
        )
    if options.json:
        options.json.write_text(json.dumps([result.to_json() for result in results], indent=1))
    if options.picture:
        draw(results, f"{options.model.stem}", options.picture)


if __name__ == "__main__":
    main()
