"""Which kind of gRPC server: asyncio (grpc.aio) or threads (grpc.server)? Measured on the methods that must be fast.

`python -m tools.benchmark.server_kinds` starts a server process of each kind and drives them in turn from one client,
so that ratios come from one run: PreparedModel.ExecuteSynchronously (unary) and Burst.Stream (stream) with their
checks, and beside them bare services that pass raw bytes to the engine and do nothing else. What it told is in
docs/decisions.md. The checks here stand for those of the service: nothing of `service` or `driver` is used.
"""

import argparse
import asyncio
import hashlib
import json
import math
import os
import platform
import queue
import selectors
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import google.protobuf
import grpc
import grpc.aio
import numpy as np
from numpy.typing import NDArray

from nnhal.enums import ErrorKind, ErrorStatus
from nnhal.errors import HalError
from nnhal.v1 import burst_pb2, burst_pb2_grpc, error_pb2, prepared_model_pb2, prepared_model_pb2_grpc, types_pb2

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[[], bytes]
"""One request from start to end; gives the output's bytes."""
Methods: TypeAlias = "dict[str, grpc.RpcMethodHandler[Any, Any]]"
"""Method handlers by name."""
Handlers: TypeAlias = "dict[str, Methods]"
"""Methods by the name of their service."""

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT.parent / "shared" / "models"
CORES = os.cpu_count() or 1
CLIENT_THREADS = 8
HANDLER_THREADS = 32
START_LIMIT_S = 60
STOP_LIMIT_S = 10
CALL_LIMIT_S = 60


# ---- Payloads and engines ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Payload:
    """What one request carries. `requests`: how many of them make one round."""

    name: str
    file: str
    dtype: str
    input_shape: tuple[int, ...]
    output_bytes: int
    requests: int

    @property
    def input_bytes(self) -> int:
        """Size of the input in bytes."""
        return math.prod(self.input_shape) * np.dtype(self.dtype).itemsize

    def example(self) -> bytes:
        """An input, the same in every process."""
        return np.random.default_rng(7).integers(0, 100, self.input_shape).astype(self.dtype).tobytes()


PAYLOADS = (
    Payload("kws", "kws_ref_model.tflite", "int8", (1, 49, 10, 1), 12, 300),
    Payload("vww float", "vww_96_float.tflite", "float32", (1, 96, 96, 3), 8, 250),
    Payload("mobilenet v2", "mobilenet_v2_1.0_224_quant.tflite", "uint8", (1, 224, 224, 3), 1001, 15),
)


class Engine(Protocol):
    """Runs a model for one caller at a time."""

    def run(self, tensor: Array) -> bytes:
        """The output's bytes for an input of the payload's shape and dtype."""
        ...


class LiteRT:
    """A real model on one thread."""

    def __init__(self, path: Path) -> None:
        from ai_edge_litert.interpreter import Interpreter

        self.interpreter = Interpreter(model_path=str(path), num_threads=1)
        self.interpreter.allocate_tensors()
        self.input = self.interpreter.get_input_details()[0]["index"]
        self.output = self.interpreter.get_output_details()[0]["index"]

    def run(self, tensor: Array) -> bytes:
        """See Engine."""
        self.interpreter.set_tensor(self.input, tensor)
        self.interpreter.invoke()
        output: Array = self.interpreter.get_tensor(self.output)
        return output.tobytes()


class StandIn:
    """Reads every byte once, where the models or LiteRT are absent: the output is the sum, repeated."""

    def __init__(self, payload: Payload) -> None:
        self.repeats = payload.output_bytes // 4 + 1
        self.size = payload.output_bytes

    def run(self, tensor: Array) -> bytes:
        """See Engine."""
        total = int(tensor.view(np.uint8).sum(dtype=np.uint32))
        return (total.to_bytes(4, "little") * self.repeats)[: self.size]


def real_models_here(models: Path = MODELS) -> bool:
    """Whether the models and LiteRT are there."""
    try:
        import ai_edge_litert.interpreter  # noqa: F401
    except ImportError:
        return False
    return all((models / payload.file).exists() for payload in PAYLOADS)


def new_engine(payload: Payload, real: bool) -> Engine:
    """An engine for one caller at a time."""
    return LiteRT(MODELS / payload.file) if real else StandIn(payload)


class Model:
    """A payload with as many engines as there are cores; callers beyond that wait."""

    def __init__(self, payload: Payload, real: bool) -> None:
        self.payload = payload
        self.input_bytes = payload.input_bytes
        self.engines: queue.SimpleQueue[Engine] = queue.SimpleQueue()
        for _ in range(CORES):
            self.engines.put(new_engine(payload, real))

    def view(self, data: bytes, offset: int = 0) -> Array:
        """The input at `offset` of `data`, not copied."""
        flat = np.frombuffer(data, self.payload.dtype, math.prod(self.payload.input_shape), offset)
        return flat.reshape(self.payload.input_shape)

    def run(self, tensor: Array) -> bytes:
        """The output's bytes."""
        engine = self.engines.get()
        try:
            return engine.run(tensor)
        finally:
            self.engines.put(engine)


# ---- What both kinds do with a request --------------------------------------------------------------------


def handle(name: str) -> bytes:
    """16 bytes that client and server both know, in place of random ones."""
    return hashlib.sha256(name.encode()).digest()[:16]


SESSION = handle("session")


@dataclass(frozen=True)
class Pool:
    """A pool of a request: its bytes, or room for outputs. `size` None: as large as needed."""

    data: bytes | None
    size: int | None


class Objects:
    """The sessions and what they own, and the checks of a request."""

    def __init__(self, models: Sequence[Model]) -> None:
        owned = {handle(f"{kind} {model.payload.name}"): model for model in models for kind in ("model", "burst")}
        self.sessions = {SESSION: owned}

    def find(self, session: bytes, name: bytes) -> Model:
        """The model behind a handle of a session."""
        owned = self.sessions.get(session)
        if owned is None:
            raise HalError(ErrorStatus.DEVICE_UNAVAILABLE, "no such session", kind=ErrorKind.SESSION_LOST)
        model = owned.get(name)
        if model is None:
            raise HalError(ErrorStatus.INVALID_ARGUMENT, "no such handle", kind=ErrorKind.UNKNOWN_HANDLE)
        return model


def bind(request: types_pb2.Request, model: Model) -> Array:
    """The request's input as a view over its inline bytes, after every check."""
    if len(request.inputs) != 1 or len(request.outputs) != 1:
        raise HalError(ErrorStatus.INVALID_ARGUMENT, "the model has one input and one output")
    pools = [read_pool(number, pool) for number, pool in enumerate(request.pools)]
    source, offset = region("input 0", request.inputs[0], pools, model.input_bytes)
    target, _ = region("output 0", request.outputs[0], pools, model.payload.output_bytes)
    if source.data is None:
        raise HalError(ErrorStatus.INVALID_ARGUMENT, "input 0 lies in a pool for outputs")
    if target.data is not None:
        raise HalError(ErrorStatus.INVALID_ARGUMENT, "output 0 lies in inline bytes, which are read-only")
    return model.view(source.data, offset)


def read_pool(number: int, pool: types_pb2.RequestMemoryPool) -> Pool:
    """A pool of the kinds that the benchmark uses."""
    kind = pool.WhichOneof("kind")
    if kind == "returned":
        return Pool(None, pool.returned.size if pool.returned.HasField("size") else None)
    if kind == "pool" and pool.pool.WhichOneof("memory") == "inline":
        data = pool.pool.inline
        return Pool(data, len(data))
    raise HalError(ErrorStatus.INVALID_ARGUMENT, f"pool {number}: only inline and returned pools are known here")


def region(name: str, argument: types_pb2.RequestArgument, pools: Sequence[Pool], expected: int) -> tuple[Pool, int]:
    """Pool and offset of an argument of `expected` bytes, which lies inside its pool."""
    if argument.has_no_value:
        raise HalError(ErrorStatus.INVALID_ARGUMENT, f"{name} has no value")
    location = argument.location
    index, offset, length, padding = location.pool_index, location.offset, location.length, location.padding
    if not 0 <= index < len(pools):
        raise HalError(ErrorStatus.INVALID_ARGUMENT, f"{name}: pool {index} of {len(pools)}")
    if offset < 0 or length < 0 or padding < 0:
        raise HalError(ErrorStatus.INVALID_ARGUMENT, f"{name}: a negative offset, length or padding")
    pool = pools[index]
    if pool.size is None:
        if offset or length or padding:
            raise HalError(ErrorStatus.INVALID_ARGUMENT, f"{name}: a region in a pool that is as large as needed")
        return pool, 0
    if offset + length + padding > pool.size:
        raise HalError(ErrorStatus.INVALID_ARGUMENT, f"{name}: ends past its pool of {pool.size} bytes")
    if length != expected:
        raise HalError(ErrorStatus.INVALID_ARGUMENT, f"{name}: {length} bytes, the model has {expected}")
    return pool, offset


def result(output: bytes) -> types_pb2.ExecutionResult:
    """The result message of an execution without timing."""
    return types_pb2.ExecutionResult(
        output_sufficient_size=True,
        timing=types_pb2.Timing(time_on_device_ns=-1, time_in_driver_ns=-1),
        returned=[types_pb2.ReturnedOutput(inline=output)],
    )


def burst_error(error: HalError) -> burst_pb2.BurstStreamResponse:
    """The answer to a message of a burst that failed; the stream goes on."""
    detail = error_pb2.ErrorDetail(status=error.status.value, reason=error.reason)  # type: ignore[arg-type]
    return burst_pb2.BurstStreamResponse(error=detail)


def nnhal_handlers(execute: Callable[..., Any], stream: Callable[..., Any]) -> Handlers:
    """Both methods under their names in the contract."""
    unary = grpc.unary_unary_rpc_method_handler(
        execute,
        prepared_model_pb2.ExecuteSynchronouslyRequest.FromString,
        types_pb2.ExecutionResult.SerializeToString,
    )
    burst = grpc.stream_stream_rpc_method_handler(
        stream, burst_pb2.BurstStreamRequest.FromString, burst_pb2.BurstStreamResponse.SerializeToString
    )
    return {"nnhal.v1.PreparedModel": {"ExecuteSynchronously": unary}, "nnhal.v1.Burst": {"Stream": burst}}


# ---- The four kinds ---------------------------------------------------------------------------------------


def threads_handlers(models: Sequence[Model]) -> Handlers:
    """The handler's thread runs the engine itself, behind a gate that lets as many through as there are cores."""
    objects, gate = Objects(models), threading.Semaphore(CORES)

    def execute(
        request: prepared_model_pb2.ExecuteSynchronouslyRequest, context: grpc.ServicerContext
    ) -> types_pb2.ExecutionResult:
        try:
            model = objects.find(request.session, request.prepared_model)
            tensor = bind(request.request, model)
        except HalError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        with gate:
            output = model.run(tensor)
        return result(output)

    def stream(
        requests: Iterator[burst_pb2.BurstStreamRequest], context: grpc.ServicerContext
    ) -> Iterator[burst_pb2.BurstStreamResponse]:
        model = None
        for request in requests:
            call = request.execute
            try:
                model = model or objects.find(call.session, call.burst)
                tensor = bind(call.request, model)
            except HalError as error:
                yield burst_error(error)
                continue
            with gate:
                output = model.run(tensor)
            yield burst_pb2.BurstStreamResponse(result=result(output))

    return nnhal_handlers(execute, stream)


def asyncio_handlers(models: Sequence[Model]) -> Handlers:
    """The event loop decodes and checks; as many worker threads as cores run the engine."""
    objects, workers = Objects(models), ThreadPoolExecutor(CORES)

    async def execute(
        request: prepared_model_pb2.ExecuteSynchronouslyRequest, context: Any
    ) -> types_pb2.ExecutionResult:
        try:
            model = objects.find(request.session, request.prepared_model)
            tensor = bind(request.request, model)
        except HalError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return result(await asyncio.get_running_loop().run_in_executor(workers, model.run, tensor))

    async def stream(
        requests: AsyncIterator[burst_pb2.BurstStreamRequest], context: Any
    ) -> AsyncIterator[burst_pb2.BurstStreamResponse]:
        model, loop = None, asyncio.get_running_loop()
        async for request in requests:
            call = request.execute
            try:
                model = model or objects.find(call.session, call.burst)
                tensor = bind(call.request, model)
            except HalError as error:
                yield burst_error(error)
                continue
            output = await loop.run_in_executor(workers, model.run, tensor)
            yield burst_pb2.BurstStreamResponse(result=result(output))

    return nnhal_handlers(execute, stream)


def bare_threads_handlers(models: Sequence[Model]) -> Handlers:
    """Raw bytes to the engine and back; a method for each payload."""

    def handlers(model: Model) -> Methods:
        def unary(data: bytes, context: object) -> bytes:
            return model.run(model.view(data))

        def stream(requests: Iterator[bytes], context: object) -> Iterator[bytes]:
            for data in requests:
                yield model.run(model.view(data))

        return {
            "unary": grpc.unary_unary_rpc_method_handler(unary),
            "stream": grpc.stream_stream_rpc_method_handler(stream),
        }

    return {bare_service(model.payload): handlers(model) for model in models}


def bare_asyncio_handlers(models: Sequence[Model]) -> Handlers:
    """The same on the event loop, engine included."""

    def handlers(model: Model) -> Methods:
        async def unary(data: bytes, context: object) -> bytes:
            return model.run(model.view(data))

        async def stream(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
            async for data in requests:
                yield model.run(model.view(data))

        return {
            "unary": grpc.unary_unary_rpc_method_handler(unary),
            "stream": grpc.stream_stream_rpc_method_handler(stream),
        }

    return {bare_service(model.payload): handlers(model) for model in models}


def bare_service(payload: Payload) -> str:
    """Name of the bare service that runs a payload."""
    return f"bare.{payload.name.replace(' ', '_')}"


Serve: TypeAlias = Callable[[Handlers, str, Callable[[str], object], Callable[[], object]], None]


def serve_threads(
    handlers: Handlers, address: str, ready: Callable[[str], object], until: Callable[[], object]
) -> None:
    """Serves at `address` and tells `ready` where, until `until` returns."""
    with ThreadPoolExecutor(HANDLER_THREADS) as pool:
        server = grpc.server(pool, options=[("grpc.max_receive_message_length", -1)])
        add_handlers(server, handlers)
        port = server.add_insecure_port(address)
        server.start()
        try:
            ready(reached_at(address, port))
            until()
        finally:
            server.stop(None).wait()


def serve_asyncio(
    handlers: Handlers, address: str, ready: Callable[[str], object], until: Callable[[], object]
) -> None:
    """Like `serve_threads`, on an event loop."""

    async def serve() -> None:
        server = grpc.aio.server()
        add_handlers(server, handlers)
        port = server.add_insecure_port(address)
        await server.start()
        try:
            ready(reached_at(address, port))
            await asyncio.to_thread(until)
        finally:
            await server.stop(None)

    asyncio.run(serve())


def add_handlers(server: grpc.Server | grpc.aio.Server, handlers: Handlers) -> None:
    """Does what generated code does for a servicer."""
    for service, methods in handlers.items():
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        server.add_registered_method_handlers(service, methods)


def reached_at(address: str, port: int) -> str:
    """The address with the port that the system chose."""
    return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"


@dataclass(frozen=True)
class Kind:
    """A kind of server. Bare ones are the floor that the others are compared with."""

    serve: Serve
    handlers: Callable[[Sequence[Model]], Handlers]
    bare: bool


KINDS = {
    "asyncio": Kind(serve_asyncio, asyncio_handlers, bare=False),
    "threads": Kind(serve_threads, threads_handlers, bare=False),
    "bare asyncio": Kind(serve_asyncio, bare_asyncio_handlers, bare=True),
    "bare threads": Kind(serve_threads, bare_threads_handlers, bare=True),
}


# ---- The client -------------------------------------------------------------------------------------------


def request_of(payload: Payload) -> types_pb2.Request:
    """A template: its first pool is to take the input's bytes; the output is as large as needed."""
    location = types_pb2.DataLocation(pool_index=0, length=payload.input_bytes)
    return types_pb2.Request(
        inputs=[types_pb2.RequestArgument(location=location)],
        outputs=[types_pb2.RequestArgument(location=types_pb2.DataLocation(pool_index=1))],
        pools=[
            types_pb2.RequestMemoryPool(pool=types_pb2.Memory(inline=b"")),
            types_pb2.RequestMemoryPool(returned=types_pb2.ReturnedPool()),
        ],
    )


def unary(channel: grpc.Channel, payload: Payload) -> AbstractContextManager[Call]:
    """ExecuteSynchronously."""
    execute = prepared_model_pb2_grpc.PreparedModelStub(channel).ExecuteSynchronously
    template = prepared_model_pb2.ExecuteSynchronouslyRequest(
        session=SESSION, prepared_model=handle(f"model {payload.name}"), request=request_of(payload)
    )
    data = payload.example()

    def call() -> bytes:
        # A message keeps the memory of every value that a field ever had: only a new one takes the bytes.
        message = prepared_model_pb2.ExecuteSynchronouslyRequest()
        message.CopyFrom(template)
        message.request.pools[0].pool.inline = data
        return execute(message, timeout=CALL_LIMIT_S).returned[0].inline

    return nullcontext(call)


@contextmanager
def stream(channel: grpc.Channel, payload: Payload) -> Iterator[Call]:
    """One Burst.Stream, a message for each request; only the first names the session and the burst."""
    outbox: queue.SimpleQueue[burst_pb2.BurstStreamRequest | None] = queue.SimpleQueue()
    answers = burst_pb2_grpc.BurstStub(channel).Stream(iter(outbox.get, None))
    template = burst_pb2.BurstStreamRequest()
    template.execute.request.CopyFrom(request_of(payload))
    data = payload.example()

    def call(session: bytes = b"", burst: bytes = b"") -> bytes:
        message = burst_pb2.BurstStreamRequest()
        message.CopyFrom(template)
        execute = message.execute
        execute.session, execute.burst = session, burst
        execute.request.pools[0].pool.inline = data
        outbox.put(message)
        answer = next(answers)
        if answer.HasField("error"):
            raise RuntimeError(answer.error.reason)
        return answer.result.returned[0].inline

    try:
        call(SESSION, handle(f"burst {payload.name}"))
        yield call
    finally:
        outbox.put(None)
        answers.cancel()


def bare_unary(channel: grpc.Channel, payload: Payload) -> AbstractContextManager[Call]:
    """A unary call of the bare service."""
    run: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{bare_service(payload)}/unary")
    data = payload.example()
    return nullcontext(lambda: run(data, timeout=CALL_LIMIT_S))


@contextmanager
def bare_stream(channel: grpc.Channel, payload: Payload) -> Iterator[Call]:
    """A stream of the bare service."""
    outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    run: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(f"/{bare_service(payload)}/stream")
    answers, data = run(iter(outbox.get, None)), payload.example()

    def call() -> bytes:
        outbox.put(data)
        return next(answers)

    try:
        yield call
    finally:
        outbox.put(None)
        answers.cancel()


Caller: TypeAlias = Callable[[grpc.Channel, Payload], AbstractContextManager[Call]]
CALLERS: dict[tuple[str, bool], Caller] = {
    ("unary", False): unary,
    ("stream", False): stream,
    ("unary", True): bare_unary,
    ("stream", True): bare_stream,
}
"""By method and bareness."""
METHODS = ("unary", "stream")


# ---- Measuring --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effort:
    """How long to measure: `share` of a payload's requests a round, and seconds for each window of throughput."""

    rounds: int
    share: float
    window_s: float


FULL = Effort(rounds=9, share=1.0, window_s=0.35)
QUICK = Effort(rounds=3, share=0.3, window_s=0.12)


def median_latency_us(call: Call, requests: int, expected: bytes) -> float:
    """Median of a closed loop of requests after a warm-up, in microseconds."""
    for _ in range(max(3, requests // 5)):
        if (output := call()) != expected:
            raise RuntimeError(f"wrong output: {output[:16]!r}, not {expected[:16]!r}")
    taken = []
    for _ in range(requests):
        start = time.perf_counter_ns()
        call()
        taken.append(time.perf_counter_ns() - start)
    return statistics.median(taken) / 1000


def calls_per_second(calls: Sequence[Call], window_s: float) -> float:
    """What closed loops in a thread for each call get done together."""
    start_line = threading.Barrier(len(calls))

    def loop(call: Call) -> float:
        call()
        start_line.wait(CALL_LIMIT_S)
        start, done = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - start) < window_s or not done:
            call()
            done += 1
        return done / elapsed

    with ThreadPoolExecutor(len(calls)) as pool:
        return sum(pool.map(loop, calls))


@dataclass(frozen=True)
class Summary:
    """A kind's figure over all rounds, and its ratio to the floor's."""

    median: float
    ratio: float


def summarise(
    rounds: dict[str, list[float]], floors: Sequence[str], *, more_is_better: bool = False
) -> dict[str, Summary]:
    """Medians over rounds. The floor is the best of `floors`; ratios are taken round by round, their median is told."""
    medians = {kind: statistics.median(figures) for kind, figures in rounds.items()}
    floor = (max if more_is_better else min)(floors, key=medians.__getitem__)
    return {
        kind: Summary(medians[kind], statistics.median(a / b for a, b in zip(figures, rounds[floor], strict=True)))
        for kind, figures in rounds.items()
    }


@dataclass(frozen=True)
class Row:
    """A line of the report. Ratios are to the best bare service: above 1 is slower, for calls below 1 is."""

    payload: str
    method: str
    kind: str
    median_us: float
    ratio: float
    calls_per_s: float
    calls_ratio: float


def measure(channels: dict[str, grpc.Channel], payload: Payload, method: str, effort: Effort, real: bool) -> list[Row]:
    """All kinds in turn, round by round, with one payload and method."""
    data = np.frombuffer(payload.example(), payload.dtype).reshape(payload.input_shape)
    expected = new_engine(payload, real).run(data)
    latencies: dict[str, list[float]] = {kind: [] for kind in channels}
    rates: dict[str, list[float]] = {kind: [] for kind in channels}
    with ExitStack() as stack:
        calls = {
            kind: [
                stack.enter_context(CALLERS[method, KINDS[kind].bare](channel, payload)) for _ in range(CLIENT_THREADS)
            ]
            for kind, channel in channels.items()
        }
        for _ in range(effort.rounds):
            for kind, of_kind in calls.items():
                requests = max(5, int(payload.requests * effort.share))
                latencies[kind].append(median_latency_us(of_kind[0], requests, expected))
            for kind, of_kind in calls.items():
                rates[kind].append(calls_per_second(of_kind, effort.window_s))
    floors = [kind for kind in channels if KINDS[kind].bare]
    latency, rate = summarise(latencies, floors), summarise(rates, floors, more_is_better=True)
    return [
        Row(payload.name, method, kind, latency[kind].median, latency[kind].ratio, rate[kind].median, rate[kind].ratio)
        for kind in channels
    ]


def server_process(kind: str, address: str) -> AbstractContextManager[str]:
    """A server of this kind."""
    return started([sys.executable, "-m", "tools.benchmark.server_kinds", "--serve", kind, "--listen", address])


@contextmanager
def started(command: Sequence[str]) -> Iterator[str]:
    """A server in a process of its own; gives its address. It ends with this block, and with this process.

    Args:
        command: prints the address, and ends when its standard input does.
    """
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for this process, which then ends the server
    )
    assert process.stdin and process.stdout
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(START_LIMIT_S) or not (reached := process.stdout.readline().strip()):
                raise RuntimeError(f"the server did not start: {' '.join(command)}")
        yield reached
    finally:
        # A server ends when its standard input does.
        process.stdin.close()
        try:
            process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def measure_all(effort: Effort, tcp: bool, real: bool) -> list[Row]:
    """Every payload and method on every kind."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        addresses = {
            kind: stack.enter_context(
                server_process(kind, "127.0.0.1:0" if tcp else f"unix:{folder}/{kind.replace(' ', '_')}")
            )
            for kind in KINDS
        }
        channels = {kind: stack.enter_context(grpc.insecure_channel(address)) for kind, address in addresses.items()}
        return [
            row
            for payload in PAYLOADS
            for method in METHODS
            for row in measure(channels, payload, method, effort, real)
        ]


# ---- The report and the command line ----------------------------------------------------------------------


def conditions(tcp: bool, real: bool) -> dict[str, str | int]:
    """What the figures depend on."""
    return {
        "engine": "LiteRT, real models, one thread" if real else "stand-in (sum of the bytes), not the real models",
        "transport": "loopback TCP" if tcp else "Unix socket",
        "cores": CORES,
        "python": platform.python_version(),
        "grpcio": grpc.__version__,
        "protobuf": google.protobuf.__version__,
    }


def table(rows: Sequence[Row]) -> str:
    """The report as text."""
    lines = [
        f"{'payload':14}{'method':8}{'kind':14}{'µs':>9}{'ratio':>8}{f'calls/s ({CLIENT_THREADS})':>14}{'ratio':>8}"
    ]
    for number, row in enumerate(rows):
        if number % len(KINDS) == 0:
            lines.append("")
        lines.append(
            f"{row.payload:14}{row.method:8}{row.kind:14}{row.median_us:9.0f}{row.ratio:8.2f}"
            f"{row.calls_per_s:14.0f}{row.calls_ratio:8.2f}"
        )
    return "\n".join(lines)


def serve(kind: str, address: str) -> None:
    """The server process: prints its address, serves until standard input ends."""
    real = real_models_here()
    handlers = KINDS[kind].handlers([Model(payload, real) for payload in PAYLOADS])
    KINDS[kind].serve(handlers, address, lambda reached: print(reached, flush=True), sys.stdin.read)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="about 20 seconds instead of 2 to 3 minutes")
    parser.add_argument("--tcp", action="store_true", help="loopback TCP instead of a Unix socket")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--serve", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--listen", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        return serve(options.serve, options.listen)
    real = real_models_here()
    about = conditions(options.tcp, real)
    print(", ".join(f"{name}: {value}" for name, value in about.items()), flush=True)
    rows = measure_all(QUICK if options.quick else FULL, options.tcp, real)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps({**about, "rows": [asdict(row) for row in rows]}, indent=2) + "\n")


if __name__ == "__main__":
    main()
