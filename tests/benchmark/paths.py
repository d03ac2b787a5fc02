"""Cost of one execution on each path, against bare servers and the engine alone.

`python -m tests.benchmark.paths` runs small real models in this process on LiteRT, on an embedded service, on bare gRPC
servers (see `bare.grpc_server`) and on a bare Unix socket with shared memory (see `bare.unix_socket`), alternating
within a round. Latencies are medians of a closed loop over one connection; processor time is that of client and service
together. Ratios and differences are taken round by round. The limits: a same-machine burst takes at most 1.05 times as
long as the bare socket, 100 µs more than the engine, and never longer than a single execution. Over gRPC, a burst takes
at most 1.05 times as long as a stream of the bare server, a single execution 1.05 times as long as its unary call, and
both 1.10 times its processor time. A same-machine burst of a small model takes at most 40 µs more than the bare socket.
A step of a stream takes at most 120 µs more than the engine on the same machine, and over gRPC 50 µs more than a single
execution that has the states as arrays.
"""

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import grpc

import nnhal
import nnhal.tflite
from nnhal.client.core.arrays import ModelIO
from nnhal.client.core.streams import StreamIO
from nnhal.embedded import EmbeddedService
from tests.benchmark.bare.grpc_server import (
    AD,
    KWS,
    PAYLOADS,
    WAKE_WORD,
    Call,
    LiteRTEngine,
    Payload,
    server_process,
    stream_call,
    unary_call,
)
from tests.benchmark.bare.unix_socket import socket_call
from tests.benchmark.figures import Figure, model_path, show
from tests.benchmark.timing import CallCost, checked_cost, median_us

ADDED_US = 100.0
"""Microseconds that a same-machine burst may take more than the engine."""
GRPC_FACTOR = 1.05
"""Limit of an execution over gRPC, in multiples of the bare gRPC server's call of the same kind."""
GRPC_PROCESSOR_FACTOR = 1.10
"""The same for the processor time of client and service."""
FLOOR_FACTOR = 1.05
"""Limit of a same-machine burst, in multiples of the bare socket."""
SMALL_ADDED_US = 40.0
"""Microseconds that a same-machine burst of a small model may take more than the bare socket."""
STEP_ADDED_US, GRPC_STEP_ADDED_US = 120.0, 50.0
"""Microseconds that a step of a stream may take more than the engine, and over gRPC more than a single execution."""
SMALL = (KWS, AD)
SETTLING_STEPS = 100
"""Steps with one input until the states no longer change."""
SINGLE_FACTOR = 1.0
"""Limit of a same-machine burst, in multiples of a single execution on the same machine."""


@dataclass(frozen=True)
class Ratio:
    """A path that is compared with another one."""

    path: str
    bound: str
    limit: float
    processor_limit: float | None = None


RATIOS = (
    Ratio("same-machine burst", "bare socket", FLOOR_FACTOR),
    Ratio("same-machine burst", "same-machine unary", SINGLE_FACTOR),
    Ratio("gRPC burst", "bare stream", GRPC_FACTOR, GRPC_PROCESSOR_FACTOR),
    Ratio("gRPC unary", "bare unary", GRPC_FACTOR, GRPC_PROCESSOR_FACTOR),
)


def device_calls(device: nnhal.Device, payload: Payload, stack: ExitStack) -> tuple[Call, Call]:
    """Return a unary call and a burst call of a device."""
    prepared = stack.enter_context(device.prepare(nnhal.tflite.load(model_path(payload.model))).result())
    burst = stack.enter_context(prepared.burst())
    tensor = payload.array(payload.example())

    def unary() -> bytes:
        return prepared.execute([tensor])[0].tobytes()

    def in_burst() -> bytes:
        return burst.execute([tensor])[0].tobytes()

    return unary, in_burst


def measure_paths(payload: Payload, rounds: int, count: int) -> dict[str, list[CallCost]]:
    """Return the cost of each path in each round."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        service = EmbeddedService()
        stack.callback(service.close)
        same_machine = stack.enter_context(nnhal.connect(service.target))
        over_grpc = stack.enter_context(nnhal.connect(service.target, transport="grpc"))
        address = stack.enter_context(server_process("tests.benchmark.bare.grpc_server", f"unix:{folder}/bare"))
        channel = stack.enter_context(grpc.insecure_channel(address))
        path = stack.enter_context(server_process("tests.benchmark.bare.unix_socket", f"{folder}/socket"))
        engine, tensor = LiteRTEngine(payload), payload.array(payload.example())
        calls: dict[str, Call] = {"engine": lambda: engine.run(tensor)}
        floor = socket_call(path, payload.name, payload.example(), payload.output_bytes)
        calls["bare socket"] = stack.enter_context(floor)
        for name, device in (("same-machine", same_machine), ("gRPC", over_grpc)):
            calls[f"{name} unary"], calls[f"{name} burst"] = device_calls(device, payload, stack)
        calls["bare unary"] = unary_call(channel, payload)
        calls["bare stream"] = stack.enter_context(stream_call(channel, payload))
        return alternate(calls, rounds, count)


def alternate(calls: Mapping[str, Call], rounds: int, count: int) -> dict[str, list[CallCost]]:
    """Return the cost of each call in each round."""
    costs: dict[str, list[CallCost]] = {path: [] for path in calls}
    for number in range(rounds):
        # every other round runs in the opposite order, so that no path always follows the same one
        for path in list(calls)[:: -1 if number % 2 else 1]:
            # CpuAcc may round differently from LiteRT alone, so each path is checked against its own first output
            costs[path].append(checked_cost(calls[path], count, calls[path]()))
    return costs


def measure_streams(payload: Payload, rounds: int, count: int) -> dict[str, list[CallCost]]:
    """Return the cost of a step on each path in each round."""
    with ExitStack() as stack:
        service = EmbeddedService()
        stack.callback(service.close)
        same_machine = stack.enter_context(nnhal.connect(service.target))
        over_grpc = stack.enter_context(nnhal.connect(service.target, transport="grpc"))
        engine, tensor = LiteRTEngine(payload), payload.array(payload.example())
        calls: dict[str, Call] = {"engine": lambda: engine.run(tensor)}
        for name, device in (("same-machine", same_machine), ("gRPC", over_grpc)):
            calls[f"{name} unary"], calls[f"{name} stream"] = step_calls(device, payload, stack)
        for call in calls.values():
            median_us(call, SETTLING_STEPS)
        return alternate(calls, rounds, count)


def step_calls(device: nnhal.Device, payload: Payload, stack: ExitStack) -> tuple[Call, Call]:
    """Return a unary call of a model with its initial states as arrays, and a step of a stream."""
    model = nnhal.tflite.load(model_path(payload.model))
    prepared = stack.enter_context(device.prepare(model).result())
    stream = stack.enter_context(prepared.stream())
    tensor = payload.array(payload.example())
    io = StreamIO(ModelIO(prepared.inputs, prepared.outputs, (), ()), model.states)
    inputs: Any = io.with_states([tensor], io.initial)

    def unary() -> bytes:
        return prepared.execute(inputs)[0].tobytes()

    def step() -> bytes:
        return stream.step([tensor])[0].tobytes()

    return unary, step


def stream_figures(payload: Payload, rounds: int, count: int) -> Iterator[Figure]:
    """Yield the figures of the streams of a model with states, which come after its input."""
    latencies = {path: [each.us for each in values] for path, values in measure_streams(payload, rounds, count).items()}
    for path, values in latencies.items():
        yield Figure(f"{payload.name}: {path}", values, "us")
    for path, bound, limit in (
        ("same-machine stream", "engine", STEP_ADDED_US),
        ("gRPC stream", "gRPC unary", GRPC_STEP_ADDED_US),
    ):
        yield Figure(f"{payload.name}: {path}, more than {bound}", added(latencies, path, bound), "us", limit)
        yield Figure(f"{payload.name}: {path} against {bound}", ratios(latencies, Ratio(path, bound, 0.0)), "x")


def figures(payload: Payload, rounds: int, count: int) -> Iterator[Figure]:
    """Yield the figures of one payload."""
    costs = measure_paths(payload, rounds, count)
    latencies = {path: [each.us for each in values] for path, values in costs.items()}
    processor = {path: [each.processor_us for each in values] for path, values in costs.items()}
    for path, values in latencies.items():
        yield Figure(f"{payload.name}: {path}", values, "us")
    for path, values in processor.items():
        yield Figure(f"{payload.name}: {path}, processor time", values, "us")
    for bound, limit in (("engine", ADDED_US), ("bare socket", SMALL_ADDED_US if payload in SMALL else None)):
        name = f"{payload.name}: same-machine burst, more than the {bound}"
        yield Figure(name, added(latencies, "same-machine burst", bound), "us", limit)
    for ratio in RATIOS:
        name = f"{payload.name}: {ratio.path} against {ratio.bound}"
        yield Figure(name, ratios(latencies, ratio), "x", ratio.limit)
        if ratio.processor_limit is not None:
            yield Figure(f"{name}, processor time", ratios(processor, ratio), "x", ratio.processor_limit)


def added(values: Mapping[str, Sequence[float]], path: str, bound: str) -> list[float]:
    """Return how much longer a path takes than another one in each round."""
    return [own - other for own, other in zip(values[path], values[bound], strict=True)]


def ratios(values: Mapping[str, Sequence[float]], ratio: Ratio) -> list[float]:
    """Return the ratio of each round."""
    return [own / bound for own, bound in zip(values[ratio.path], values[ratio.bound], strict=True)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a third of the requests and rounds")
    rounds, count = (4, 80) if parser.parse_args(arguments).quick else (11, 250)
    show("Execution by path", lambda: (each for payload in PAYLOADS for each in figures(payload, rounds, count)))
    show("Steps of streams", lambda: stream_figures(WAKE_WORD, rounds, count))


if __name__ == "__main__":
    main()
