"""Cost of one execution on each path, against bare gRPC servers and the engine alone.

`python -m tests.benchmark.paths` runs small real models in this process on LiteRT, on an embedded service and on bare
gRPC servers (see `bare_server`), alternating within a round. The limits: a same-machine burst takes at most 100 µs more
than the engine. A gRPC burst takes at most 1.35 times, and a unary execution at most 1.25 times, as long as the bare
server. Latencies are medians of a closed loop over one connection. Ratios and differences are taken round by round.
"""

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import grpc

import nnhal
import nnhal.tflite
from nnhal.embedded import EmbeddedService
from tests.benchmark.bare_server import (
    KWS,
    VWW,
    Call,
    LiteRTEngine,
    Payload,
    server_process,
    stream_call,
    unary_call,
)
from tests.benchmark.figures import Figure, model_path, show
from tests.benchmark.timing import checked_median_us

ADDED_US = 100.0
"""Microseconds that a same-machine burst may take more than the engine."""
BURST_FACTOR = 1.35
"""Limit of a gRPC burst, in multiples of the bare server's stream."""
UNARY_FACTOR = 1.25
"""Limit of a unary execution, in multiples of the bare server's unary call."""


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


def measure_paths(payload: Payload, rounds: int, count: int) -> dict[str, list[float]]:
    """Return the median latency of each path in each round, in µs."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        service = EmbeddedService()
        stack.callback(service.close)
        same_machine = stack.enter_context(nnhal.connect(service.target))
        over_grpc = stack.enter_context(nnhal.connect(service.target, transport="grpc"))
        address = stack.enter_context(server_process("tests.benchmark.bare_server", f"unix:{folder}/bare"))
        channel = stack.enter_context(grpc.insecure_channel(address))
        engine, tensor = LiteRTEngine(payload), payload.array(payload.example())
        calls: dict[str, Call] = {"engine": lambda: engine.run(tensor)}
        for name, device in (("same-machine", same_machine), ("gRPC", over_grpc)):
            calls[f"{name} unary"], calls[f"{name} burst"] = device_calls(device, payload, stack)
        calls["bare unary"] = unary_call(channel, payload)
        calls["bare stream"] = stack.enter_context(stream_call(channel, payload))
        latencies: dict[str, list[float]] = {path: [] for path in calls}
        for _ in range(rounds):
            for path, call in calls.items():
                # CpuAcc may round differently from LiteRT alone, so each path is checked against its own first output
                latencies[path].append(checked_median_us(call, count, call()))
        return latencies


def figures(payload: Payload, rounds: int, count: int) -> Iterator[Figure]:
    """Yield the figures of one payload."""
    latencies = measure_paths(payload, rounds, count)
    for path, values in latencies.items():
        yield Figure(f"{payload.name}: {path}", values, "us")

    def pairs(path: str, bound: str) -> Iterator[tuple[float, float]]:
        return zip(latencies[path], latencies[bound], strict=True)

    added = [own - bound for own, bound in pairs("same-machine burst", "engine")]
    yield Figure(f"{payload.name}: same-machine burst, more than the engine", added, "us", ADDED_US)
    for path, bound, factor in (("burst", "stream", BURST_FACTOR), ("unary", "unary", UNARY_FACTOR)):
        ratios = [own / bare for own, bare in pairs(f"gRPC {path}", f"bare {bound}")]
        yield Figure(f"{payload.name}: gRPC {path} against bare {bound}", ratios, "x", factor)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a third of the requests and rounds")
    rounds, count = (4, 80) if parser.parse_args(arguments).quick else (11, 250)
    show("Execution by path", lambda: (each for payload in (KWS, VWW) for each in figures(payload, rounds, count)))


if __name__ == "__main__":
    main()
