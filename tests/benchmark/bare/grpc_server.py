"""Bare gRPC server around LiteRT: the lower bound that the service is compared with.

It passes the raw bytes of a request to the engine and returns those of the output. It has no messages, no checks and no
sessions. `server_process` starts it in a process of its own.
"""

import math
import queue
import selectors
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import numpy as np
from ai_edge_litert.interpreter import Interpreter

from nnhal.cpu import available_cpus
from nnhal.types import AnyArray
from tests.benchmark.figures import model_path

Call: TypeAlias = Callable[[], bytes]
"""One request from start to end. Returns the bytes of the output."""
Handlers: TypeAlias = "dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]]"
"""Method handlers by service name, then by method name."""

ROOT = Path(__file__).resolve().parents[3]
HANDLER_THREADS = 32
START_LIMIT_S = 60
STOP_LIMIT_S = 10
CALL_LIMIT_S = 60


@dataclass(frozen=True)
class Payload:
    """A model, and what one request for it carries."""

    name: str
    model: str
    dtype: str
    input_shape: tuple[int, ...]
    output_bytes: int

    @property
    def input_bytes(self) -> int:
        """Size of the input in bytes."""
        return math.prod(self.input_shape) * np.dtype(self.dtype).itemsize

    def example(self) -> bytes:
        """Return an input, the same in every process."""
        return np.random.default_rng(7).integers(0, 100, self.input_shape).astype(self.dtype).tobytes()

    def array(self, data: bytes | memoryview) -> AnyArray:
        """Return the bytes of an input as an array, not copied."""
        return np.frombuffer(data, self.dtype).reshape(self.input_shape)


KWS = Payload("kws", "kws_ref_model", "int8", (1, 49, 10, 1), 12)
VWW = Payload("vww float", "vww_96_float", "float32", (1, 96, 96, 3), 8)
AD = Payload("ad", "ad01_int8", "int8", (1, 640), 640)
PAYLOADS = (KWS, VWW, AD)
WAKE_WORD = Payload("wake word", "micro_wakeword_alexa", "int8", (1, 3, 40), 1)
"""A model with states, which only streams run."""


# ---- Engine ------------------------------------------------------------------------------------------------


class LiteRTEngine:
    """LiteRT with one thread and one interpreter, for one caller at a time."""

    def __init__(self, payload: Payload) -> None:
        self.interpreter = Interpreter(model_path=str(model_path(payload.model)), num_threads=1)
        self.interpreter.allocate_tensors()
        self.input = self.interpreter.get_input_details()[0]["index"]
        self.output = self.interpreter.get_output_details()[0]["index"]

    def run(self, tensor: AnyArray) -> bytes:
        """Return the bytes of the output for an input of the payload's shape and dtype."""
        self.interpreter.set_tensor(self.input, tensor)
        self.interpreter.invoke()
        output: AnyArray = self.interpreter.get_tensor(self.output)
        return output.tobytes()


class EnginePool:
    """One engine per core for one payload. Further callers block until an engine is free."""

    def __init__(self, payload: Payload) -> None:
        self.payload = payload
        self.engines: queue.SimpleQueue[LiteRTEngine] = queue.SimpleQueue()
        for _ in range(available_cpus()):
            self.engines.put(LiteRTEngine(payload))

    def run(self, data: bytes) -> bytes:
        """Return the bytes of the output for those of an input."""
        engine = self.engines.get()
        try:
            return engine.run(self.payload.array(data))
        finally:
            self.engines.put(engine)


# ---- Server ------------------------------------------------------------------------------------------------


def engine_handlers(payload: Payload) -> Handlers:
    """Return a unary and a streaming method that run a payload."""
    pool = EnginePool(payload)

    def unary(data: bytes, context: object) -> bytes:
        return pool.run(data)

    def stream(requests: Iterator[bytes], context: object) -> Iterator[bytes]:
        for data in requests:
            yield pool.run(data)

    return {
        service_name(payload): {
            "unary": grpc.unary_unary_rpc_method_handler(unary),
            "stream": grpc.stream_stream_rpc_method_handler(stream),
        }
    }


def service_name(payload: Payload) -> str:
    """Return the name of the gRPC service that runs a payload."""
    return f"bare.{payload.name.replace(' ', '_')}"


def serve(handlers: Handlers, address: str) -> None:
    """Serve at an address, print where, and return when standard input ends."""
    with ThreadPoolExecutor(HANDLER_THREADS) as pool:
        server = grpc.server(pool, options=[("grpc.max_receive_message_length", -1)])
        for service, methods in handlers.items():
            server.add_registered_method_handlers(service, methods)
        port = server.add_insecure_port(address)
        server.start()
        try:
            reached = address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"
            print(reached, flush=True)
            sys.stdin.read()
        finally:
            server.stop(None).wait()


@contextmanager
def server_process(module: str, address: str) -> Iterator[str]:
    """Run a module as a server in a process of its own.

    Args:
        module: the module to run. Its only argument is the address. It prints the address that clients reach it at, and
            ends when its standard input does.
        address: the address to listen at.

    Yields:
        the address that clients reach it at.

    Raises:
        RuntimeError: the server did not start.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module, address],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C goes to this process only, which then ends the server
    )
    assert process.stdin and process.stdout
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(START_LIMIT_S) or not (reached := process.stdout.readline().strip()):
                raise RuntimeError(f"the server {module} did not start at {address}")
        yield reached
    finally:
        process.stdin.close()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


# ---- Client ------------------------------------------------------------------------------------------------


def unary_call(channel: grpc.Channel, payload: Payload) -> Call:
    """Return a unary call of the bare server."""
    run: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{service_name(payload)}/unary")
    data = payload.example()
    return lambda: run(data, timeout=CALL_LIMIT_S)


@contextmanager
def stream_call(channel: grpc.Channel, payload: Payload) -> Iterator[Call]:
    """Yield a call over one open stream of the bare server."""
    requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    run: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(f"/{service_name(payload)}/stream")
    responses, data = run(iter(requests.get, None)), payload.example()

    def call() -> bytes:
        requests.put(data)
        return next(responses)

    try:
        yield call
    finally:
        requests.put(None)
        responses.cancel()


def main(arguments: Sequence[str]) -> None:
    """Serve every payload at the address given."""
    (address,) = arguments
    handlers: Handlers = {}
    for payload in PAYLOADS:
        handlers |= engine_handlers(payload)
    serve(handlers, address)


if __name__ == "__main__":
    main(sys.argv[1:])
