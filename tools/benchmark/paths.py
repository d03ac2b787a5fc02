"""What an execution costs on each path: unary calls and bursts over gRPC, and over shared memory on the same machine.

`python -m tools.benchmark.paths` runs the small real models on a service of ours and, in the same rounds, on bare
grpcio services that do nothing but run LiteRT on the bytes, and on LiteRT in this process. The promises: a same-machine
burst costs at most the engine's own time and 100 µs; a burst over gRPC at most 1.35 times, a unary execution at most
1.25 times the bare service of the same kind (threads). Medians of a closed loop over one connection, ratios and
differences round by round.
"""

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import grpc
import numpy as np

import nnhal
import nnhal.tflite
from nnhal.embedded import EmbeddedService
from tools.benchmark.server_kinds import (
    CALLERS,
    MODELS,
    PAYLOADS,
    Call,
    LiteRT,
    Payload,
    median_latency_us,
    real_models_here,
    server_process,
)

BARE = ("bare threads", "bare asyncio")


@dataclass(frozen=True)
class Promise:
    """What a path may cost. `factor` times the floor, and `extra` µs."""

    path: str
    floor: str
    factor: float = 1.0
    extra_us: float = 0.0

    def line(self, rounds: dict[str, list[float]]) -> str:
        """Says what it costs, and whether that is within the promise."""
        pairs = list(zip(rounds[self.path], rounds[self.floor], strict=True))
        if self.extra_us:
            found = statistics.median(own - floor for own, floor in pairs)
            limit, text = self.extra_us, f"{self.floor} + {found:.0f} µs (at most {self.extra_us:.0f})"
        else:
            found = statistics.median(own / floor for own, floor in pairs)
            limit, text = self.factor, f"{found:.2f} x {self.floor} (at most {self.factor:.2f})"
        return f"  {self.path:24} {text:50} {'holds' if found <= limit else 'DOES NOT HOLD'}"


PROMISES = (
    Promise("same-machine burst", "engine", extra_us=100),
    Promise("gRPC burst", "bare threads stream", factor=1.35),
    Promise("gRPC unary", "bare threads unary", factor=1.25),
)


def calls_of_ours(device: nnhal.Device, payload: Payload, stack: ExitStack) -> dict[str, Call]:
    """A unary call and a burst of a device."""
    prepared = stack.enter_context(device.prepare(nnhal.tflite.load(MODELS / payload.file)).result())
    burst = stack.enter_context(prepared.burst())
    data = np.frombuffer(payload.example(), payload.dtype).reshape(payload.input_shape)

    def unary() -> bytes:
        return prepared.execute([data])[0].tobytes()

    def in_burst() -> bytes:
        return burst.execute([data])[0].tobytes()

    return {"unary": unary, "burst": in_burst}


def bare_calls(payload: Payload, stack: ExitStack, folder: str) -> dict[str, Call]:
    """Both methods of both bare services."""
    calls = {}
    for kind in BARE:
        address = stack.enter_context(server_process(kind, f"unix:{folder}/{kind[5:]}"))
        channel = stack.enter_context(grpc.insecure_channel(address))
        for method in ("unary", "stream"):
            calls[f"{kind} {method}"] = stack.enter_context(CALLERS[method, True](channel, payload))
    return calls


def measure(payload: Payload, rounds: int, requests: int, expected: Callable[[Call], bytes]) -> dict[str, list[float]]:
    """Median latencies in µs of each path, round by round; the paths take turns within a round."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        engine, data = LiteRT(MODELS / payload.file), payload.example()
        tensor = np.frombuffer(data, payload.dtype).reshape(payload.input_shape)
        calls: dict[str, Call] = {"engine": lambda: engine.run(tensor)}
        service = EmbeddedService()
        stack.callback(service.close)
        near = stack.enter_context(nnhal.connect(service.target))
        far = stack.enter_context(nnhal.connect(service.target, transport="grpc"))
        for name, device in (("same-machine", near), ("gRPC", far)):
            calls |= {f"{name} {path}": call for path, call in calls_of_ours(device, payload, stack).items()}
        calls |= bare_calls(payload, stack, folder)
        found: dict[str, list[float]] = {path: [] for path in calls}
        for _ in range(rounds):
            for path, call in calls.items():
                found[path].append(median_latency_us(call, requests, expected(call)))
        return found


def report(payload: Payload, rounds: dict[str, list[float]]) -> str:
    """The figures of one payload."""
    lines = [f"{payload.name}: {payload.input_bytes} B in, {payload.output_bytes} B out"]
    for path, figures in rounds.items():
        spread = f"{min(figures):.0f} .. {max(figures):.0f}"
        lines.append(f"  {path:24} {statistics.median(figures):8.0f} µs  ({spread})")
    fastest = min(
        (path for path in rounds if path.startswith("bare")), key=lambda path: statistics.median(rounds[path])
    )
    lines.append(f"  the fastest bare kind: {fastest}")
    lines += [promise.line(rounds) for promise in PROMISES]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a third of the requests and rounds")
    options = parser.parse_args(arguments)
    if not real_models_here():
        print("the models or LiteRT are absent: nothing is measured")
        return
    rounds, requests = (4, 80) if options.quick else (11, 250)
    for payload in PAYLOADS[:2]:
        # CpuAcc may round otherwise than LiteRT alone: each path is held to its own first answer
        print(report(payload, measure(payload, rounds, requests, lambda call: call())), flush=True)


if __name__ == "__main__":
    main()
