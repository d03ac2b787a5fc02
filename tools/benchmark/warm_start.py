"""What a warm start costs through the client: ready from the cache, and from nothing to the first answer.

`python -m tools.benchmark.warm_start` takes turns: a preparation from the cache on an embedded service, from `prepare`
to its result, and LiteRT's interpreter made of the original file with its tensors allocated. The promises: at most 5 ms
more than the engine's own load, with nothing but the token and the handle on the wire; and at most 1.2 s from
`connect`, which starts an embedded service, to the first answer. Medians, and differences round by round.
"""

import argparse
import hashlib
import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

import nnhal
import nnhal.tflite
from nnhal.embedded import EmbeddedService
from nnhal.types import DTYPES, CacheState, Model
from tools.benchmark.server_kinds import MODELS, real_models_here

ADDED_MS = 5.0
"""Milliseconds that a model may take from the cache, beyond the engine's own load."""
WIRE_BYTES = 1000
"""What a client may send for it: token, session, headers and acknowledgements."""
START_S = 1.2
"""Seconds from `connect` to the first answer."""
NAMES = {"MobileNet v2": "mobilenet_v2_1.0_224_quant", "DeepLab v3": "deeplabv3_mnv2_dm05_pascal_quant"}
ROUNDS, QUICK_ROUNDS = 41, 15


class Wire:
    """A relay in front of a service, on a port of this machine. `sent`: bytes that clients have sent through it."""

    def __init__(self, path: str) -> None:
        self.sent = 0
        self._path = path
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # it has been closed
            while True:
                client, _ = self._listener.accept()
                service = socket.socket(socket.AF_UNIX)
                service.connect(self._path)
                for source, sink, counted in ((client, service, True), (service, client, False)):
                    threading.Thread(target=self._pass_on, args=(source, sink, counted), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.sent += len(data) * counted
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Takes no more connections."""
        self._listener.close()


@contextmanager
def service_with_cache() -> Iterator[EmbeddedService]:
    """An embedded service whose cache is in a folder of its own; those that start meanwhile share it."""
    before = os.environ.get("NNHAL_CACHE_DIR")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NNHAL_CACHE_DIR"] = folder
        service = EmbeddedService()
        try:
            yield service
        finally:
            service.close()
            if before is None:
                del os.environ["NNHAL_CACHE_DIR"]
            else:
                os.environ["NNHAL_CACHE_DIR"] = before


def taken_ms(work: Callable[[], Any]) -> tuple[float, Any]:
    """How long a piece of work takes, and what it made: letting go of that is not part of it."""
    start = time.perf_counter_ns()
    made = work()
    return (time.perf_counter_ns() - start) / 1e6, made


def load_engine(path: Path) -> object:
    """The engine alone."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    return interpreter


def prepared_from_cache(device: nnhal.Device, model: Model, **how: Any) -> nnhal.PreparedModel:
    """A hit, or an error."""
    prepared = device.prepare(model, **how).result(60)
    if prepared.cache.state != CacheState.HIT:
        raise RuntimeError(f"not from the cache: {prepared.cache}")
    return prepared


def measure_loads(device: nnhal.Device, path: Path, rounds: int) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds of the engine alone, and those added from the cache: by token, and with the token derived."""
    model = nnhal.tflite.load(path)
    token = hashlib.sha256(path.name.encode()).digest()
    device.prepare(model, token=token).result(60)
    device.prepare(model, cache=True).result(60)
    alone, by_token, derived = [], [], []
    for _ in range(rounds):
        engine, interpreter = taken_ms(lambda: load_engine(path))
        given, first = taken_ms(lambda: prepared_from_cache(device, model, token=token))
        made, second = taken_ms(lambda: prepared_from_cache(device, model, cache=True))
        for one in (first, second):
            one.close()
        device.backends()  # lets go of both: a handle travels with the next call, which would be the next preparation
        del interpreter
        alone.append(engine)
        by_token.append(given - engine)
        derived.append(made - engine)
    return alone, by_token, derived


def bytes_sent(service: EmbeddedService, model: Model) -> int:
    """What a client sends for a model that is in the cache, all of gRPC's included."""
    wire = Wire(service.target.removeprefix("unix:"))
    try:
        with nnhal.connect(wire.target, transport="grpc") as device:
            before = wire.sent
            prepared_from_cache(device, model, cache=True)
            return wire.sent - before
    finally:
        wire.close()


def first_answer_s(path: Path) -> float:
    """Seconds from `connect`, with a service of its own, to the first answer; the model is in the cache."""
    model = nnhal.tflite.load(path)
    start = time.perf_counter()
    with nnhal.connect() as device:
        prepared = prepared_from_cache(device, model, cache=True)
        (operand,) = prepared.inputs
        prepared.execute([np.zeros(operand.dimensions, DTYPES[operand.type])])
        return time.perf_counter() - start


def line(what: str, values: Sequence[float], unit: str, limit: float) -> str:
    """The median of the rounds, and whether it keeps its limit."""
    median = statistics.median(values)
    spread = f"{median:8.2f} {unit:2} ({min(values):.2f} .. {max(values):.2f})"
    return f"  {what:52} {spread:34} at most {limit:g} {unit}: {'holds' if median <= limit else 'DOES NOT HOLD'}"


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a third of the rounds")
    options = parser.parse_args(arguments)
    paths = {name: MODELS / f"{file}.tflite" for name, file in NAMES.items()}
    if not (real_models_here() and all(path.exists() for path in paths.values())):
        print("the models or LiteRT are absent: nothing is measured")
        return
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    print(f"warm start ({os.cpu_count()} cores, load {os.getloadavg()[0]:.1f})", flush=True)
    with service_with_cache() as service:
        with nnhal.connect(service.target) as device:
            for name, path in paths.items():
                alone, by_token, derived = measure_loads(device, path, rounds)
                print(f"{name}: the engine alone {statistics.median(alone):.2f} ms")
                print(line("from the cache by its token, beyond the engine", by_token, "ms", ADDED_MS))
                print(line("the same, with the token derived from the model", derived, "ms", ADDED_MS), flush=True)
        for name, path in paths.items():
            print(line(f"{name}: sent by the client", [bytes_sent(service, nnhal.tflite.load(path))], "B", WIRE_BYTES))
            answers = [first_answer_s(path) for _ in range(max(5, rounds // 4))]
            print(line(f"{name}: from connect to the first answer", answers, "s", START_S), flush=True)


if __name__ == "__main__":
    main()
