"""What an execution costs by the size of its input, from 1 KB to 24 MB, on each path; as a table and as a picture.

`python -m tools.benchmark.payloads` sends inputs of float32 to a model that gives back the first four elements, so that
the way there is all that is measured: unary calls and bursts over gRPC, bursts on the same machine, and beside them a
bare grpcio service which copies the bytes into memory of its own and does nothing else. All take turns; medians of a
closed loop over one connection. The picture goes to build/payloads.png.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np

import nnhal
from nnhal.embedded import EmbeddedService
from nnhal.types import AnyArray, Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tools.benchmark.server_kinds import ROOT, Call, Handlers, median_latency_us, serve_threads, started

KIB, MIB = 2**10, 2**20
SIZES = (KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 24 * MIB)
"""Bytes of an input."""
TAKEN = 4
"""Elements that come back."""
ROUND_BYTES = 48 * MIB
"""About what one path moves in a round."""
SERVICE = "bare.payloads"
PICTURE = ROOT / "build" / "payloads.png"

Rounds = dict[str, list[float]]
"""Median latencies in µs by path, round by round."""


def head(elements: int) -> Model:
    """A model whose output is the first elements of its input."""
    builder = nnhal.ModelBuilder()
    whole = builder.input(T.TENSOR_FLOAT32, (elements,))
    begin, size = (builder.constant(np.array([value], np.int32)) for value in (0, TAKEN))
    builder.output(builder.add(Op.SLICE, whole, begin, size, output=Operand(T.TENSOR_FLOAT32, (TAKEN,))))
    return builder.build()


def ours(device: nnhal.Device, data: AnyArray, stack: ExitStack) -> tuple[Call, Call]:
    """A unary call and a burst of a device."""
    prepared = stack.enter_context(device.prepare(head(data.size)).result())
    burst = stack.enter_context(prepared.burst())

    def unary() -> bytes:
        return prepared.execute([data])[0].tobytes()

    def in_burst() -> bytes:
        return burst.execute([data])[0].tobytes()

    return unary, in_burst


def bare(channel: grpc.Channel, data: AnyArray) -> Call:
    """A call of the bare service."""
    run: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/head")
    return lambda: run(data.tobytes())


def bare_handlers() -> Handlers:
    """The bare service: keeps a copy of the input and gives back its head."""

    def run(request: bytes, context: grpc.ServicerContext) -> bytes:
        return np.frombuffer(request, np.float32).copy()[:TAKEN].tobytes()

    return {SERVICE: {"head": grpc.unary_unary_rpc_method_handler(run)}}


def measure(sizes: Sequence[int], rounds: int) -> dict[int, Rounds]:
    """All paths with inputs of all sizes. Every first answer of a loop is checked."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        service = EmbeddedService()
        stack.callback(service.close)
        near = stack.enter_context(nnhal.connect(service.target))
        far = stack.enter_context(nnhal.connect(service.target, transport="grpc"))
        command = [sys.executable, "-m", "tools.benchmark.payloads", "--serve", f"unix:{folder}/bare"]
        channel = stack.enter_context(grpc.insecure_channel(stack.enter_context(started(command))))
        return {size: of_size(size, rounds, near, far, channel) for size in sizes}


def of_size(size: int, rounds: int, near: nnhal.Device, far: nnhal.Device, channel: grpc.Channel) -> Rounds:
    """All paths with inputs of one size."""
    data = np.random.default_rng(size).standard_normal(size // 4).astype(np.float32)
    expected, requests = data[:TAKEN].tobytes(), min(100, max(3, ROUND_BYTES // size))
    with ExitStack() as stack:
        unary, burst = ours(far, data, stack)
        calls: dict[str, Call] = {
            "bare gRPC unary": bare(channel, data),
            "gRPC unary": unary,
            "gRPC burst": burst,
            "same-machine burst": ours(near, data, stack)[1],
        }
        found: Rounds = {path: [] for path in calls}
        for _ in range(rounds):
            for path, call in calls.items():
                found[path].append(median_latency_us(call, requests, expected))
    return found


def medians(figures: dict[int, Rounds]) -> dict[str, list[float]]:
    """For each path the median over rounds, size by size."""
    paths = next(iter(figures.values()))
    return {path: [statistics.median(rounds[path]) for rounds in figures.values()] for path in paths}


def table(figures: dict[int, Rounds]) -> str:
    """The figures as text."""
    curves = medians(figures)
    lines = [f"{'input':>8}" + "".join(f"{path + ' µs':>24}" for path in curves)]
    for place, size in enumerate(figures):
        lines.append(f"{named(size):>8}" + "".join(f"{curve[place]:24.0f}" for curve in curves.values()))
    return "\n".join(lines)


def named(size: int) -> str:
    """A size for people."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def draw(figures: dict[int, Rounds], path: Path) -> None:
    """Saves the curves as a picture; a band from the fastest round to the slowest is around each."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.add_subplot(xscale="log", yscale="log", xlabel="input", ylabel="latency, µs (median)")
    sizes = list(figures)
    for name, curve in medians(figures).items():
        (line,) = axes.plot(sizes, curve, marker="o", markersize=4, label=name)
        band = [min(rounds[name]) for rounds in figures.values()], [max(rounds[name]) for rounds in figures.values()]
        axes.fill_between(sizes, *band, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set_xticks(sizes, [named(size) for size in sizes], rotation=45)
    axes.minorticks_off()
    axes.grid(True, alpha=0.3)
    axes.legend()
    axes.set_title("One execution by the size of its input")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and sizes")
    parser.add_argument("--picture", type=Path, default=PICTURE, metavar="FILE", help="where the picture goes")
    parser.add_argument("--serve", metavar="ADDRESS", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        return serve_threads(bare_handlers(), options.serve, lambda reached: print(reached, flush=True), sys.stdin.read)
    figures = measure(SIZES[::2] if options.quick else SIZES, 3 if options.quick else 7)
    print(table(figures))
    draw(figures, options.picture)
    print(f"the picture is {options.picture}")


if __name__ == "__main__":
    main()
