"""Cost of a warm start through the client: a preparation from the cache, and from `connect` to the first output.

`python -m tests.benchmark.warm_start` alternates between a preparation from the cache of an embedded service, from
`prepare` to its result, and LiteRT's interpreter, created from the original file with its tensors allocated. Limits: at
most 5 ms more than the engine's own load, at most 1,000 bytes sent, and at most 1.2 s from `connect`, which starts
an embedded service, to the first output.
"""

import argparse
import hashlib
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from ai_edge_litert.interpreter import Interpreter

import nnhal
import nnhal.tflite
from nnhal.embedded import EmbeddedService
from nnhal.types import DTYPES, CacheState, Model
from tests.benchmark.figures import Figure, model_path, show
from tests.benchmark.timing import elapsed_ms

ADDED_MS = 5.0
"""Milliseconds that a model from the cache may take in addition to the engine's own load."""
WIRE_BYTES = 1000
"""Bytes that a client may send for it: token, session, headers and acknowledgements."""
START_S = 1.2
"""Seconds from `connect` to the first output."""
MODELS = {"MobileNet v2": "mobilenet_v2_1.0_224_quant", "DeepLab v3": "deeplabv3_mnv2_dm05_pascal_quant"}
ROUNDS, QUICK_ROUNDS = 41, 15


class CountingRelay:
    """TCP relay in front of a service.

    Attributes:
        sent: bytes that clients have sent through it.
        target: the address that clients connect to.
    """

    def __init__(self, path: str) -> None:
        self.sent = 0
        self._path = path
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                client, _ = self._listener.accept()
                service = socket.socket(socket.AF_UNIX)
                service.connect(self._path)
                for source, sink, is_client in ((client, service, True), (service, client, False)):
                    threading.Thread(target=self._forward, args=(source, sink, is_client), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, is_client: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self.sent += len(data) * is_client
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Stop accepting connections."""
        self._listener.close()


@contextmanager
def service_with_cache() -> Iterator[EmbeddedService]:
    """Yield an embedded service with a new cache. Embedded services that start within this block share the cache."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, NNHAL_CACHE_DIR=folder):
        service = EmbeddedService()
        try:
            yield service
        finally:
            service.close()


def load_engine(path: Path) -> Interpreter:
    """Load a model into the engine alone."""
    interpreter = Interpreter(model_path=str(path), num_threads=1)
    interpreter.allocate_tensors()
    return interpreter


def prepare_from_cache(device: nnhal.Device, model: Model, **options: Any) -> nnhal.PreparedModel:
    """Prepare a model that is in the cache.

    Raises:
        RuntimeError: it was not in the cache.
    """
    prepared: nnhal.PreparedModel = device.prepare(model, **options).result(60)
    if prepared.cache.state != CacheState.HIT:
        raise RuntimeError(f"the model did not come from the cache: {prepared.cache}")
    return prepared


def measure_loads(device: nnhal.Device, path: Path, rounds: int) -> tuple[list[float], list[float], list[float]]:
    """Return milliseconds of the engine alone, and those added from the cache by a token, and by a derived token."""
    model = nnhal.tflite.load(path)
    token = hashlib.sha256(path.name.encode()).digest()
    device.prepare(model, token=token).result(60)
    device.prepare(model, cache=True).result(60)
    alone, by_token, by_derived_token = [], [], []
    for _ in range(rounds):
        engine_ms, interpreter = elapsed_ms(lambda: load_engine(path))
        token_ms, first = elapsed_ms(lambda: prepare_from_cache(device, model, token=token))
        derived_ms, second = elapsed_ms(lambda: prepare_from_cache(device, model, cache=True))
        first.close()
        second.close()
        device.backends()  # sends the handles to release, which would otherwise travel with the next preparation
        del interpreter
        alone.append(engine_ms)
        by_token.append(token_ms - engine_ms)
        by_derived_token.append(derived_ms - engine_ms)
    return alone, by_token, by_derived_token


def count_sent_bytes(service: EmbeddedService, model: Model) -> int:
    """Return how many bytes a client sends for a model that is in the cache, including those of gRPC."""
    relay = CountingRelay(service.target.removeprefix("unix:"))
    try:
        with nnhal.connect(relay.target, transport="grpc") as device:
            before = relay.sent
            prepare_from_cache(device, model, cache=True)
            return relay.sent - before
    finally:
        relay.close()


def first_output_s(path: Path) -> float:
    """Return the seconds from `connect`, with a new embedded service, to the first output of a cached model."""
    model = nnhal.tflite.load(path)
    start = time.perf_counter()
    with nnhal.connect() as device:
        prepared = prepare_from_cache(device, model, cache=True)
        (operand,) = prepared.inputs
        prepared.execute([np.zeros(operand.dimensions, DTYPES[operand.type])])
        return time.perf_counter() - start


def figures(rounds: int) -> Iterator[Figure]:
    """Yield the figures of every model."""
    with service_with_cache() as service:
        with nnhal.connect(service.target) as device:
            for name, file in MODELS.items():
                alone, by_token, by_derived_token = measure_loads(device, model_path(file), rounds)
                yield Figure(f"{name}: the engine alone", alone, "ms")
                yield Figure(f"{name}: from the cache by token, more than the engine", by_token, "ms", ADDED_MS)
                yield Figure(f"{name}: by a derived token, more than the engine", by_derived_token, "ms", ADDED_MS)
        for name, file in MODELS.items():
            sent = count_sent_bytes(service, nnhal.tflite.load(model_path(file)))
            yield Figure(f"{name}: sent by the client", [sent], "B", WIRE_BYTES)
            seconds = [first_output_s(model_path(file)) for _ in range(max(5, rounds // 4))]
            yield Figure(f"{name}: from connect to the first output", seconds, "s", START_S)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a third of the rounds")
    rounds = QUICK_ROUNDS if parser.parse_args(arguments).quick else ROUNDS
    show("Warm start", lambda: figures(rounds))


if __name__ == "__main__":
    main()
