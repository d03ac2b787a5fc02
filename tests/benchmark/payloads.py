"""Cost of one execution by the size of its input, from 1 KiB to 24 MiB, as a table and as a picture.

`python -m tests.benchmark.payloads` sends float32 inputs to a model that returns their first four elements, so that
it measures little but the transport. The paths alternate: unary calls and bursts over gRPC, bursts on the same machine,
and a bare gRPC server which only copies the bytes. Latencies are medians of a closed loop over one connection. The
picture goes to build/payloads.png.
"""

import argparse
import statistics
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
from tests.benchmark.bare.grpc_server import ROOT, Call, Handlers, serve, server_process
from tests.benchmark.timing import checked_median_us

KIB, MIB = 2**10, 2**20
SIZES = (KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 24 * MIB)
"""Bytes of an input."""
OUTPUT_ELEMENTS = 4
ROUND_BYTES = 48 * MIB
"""Approximate bytes that one path transfers in a round."""
SERVICE = "bare.payloads"
PICTURE = ROOT / "build" / "payloads.png"

Latencies = dict[str, list[float]]
"""Median latencies in µs by path, round by round."""


def head_model(elements: int) -> Model:
    """Return a model that returns the first elements of its input."""
    builder = nnhal.ModelBuilder()
    whole = builder.input(T.TENSOR_FLOAT32, (elements,))
    begin, size = (builder.constant(np.array([value], np.int32)) for value in (0, OUTPUT_ELEMENTS))
    builder.output(builder.add(Op.SLICE, whole, begin, size, output=Operand(T.TENSOR_FLOAT32, (OUTPUT_ELEMENTS,))))
    return builder.build()


def device_calls(device: nnhal.Device, data: AnyArray, stack: ExitStack) -> tuple[Call, Call]:
    """Return a unary call and a burst call of a device."""
    prepared = stack.enter_context(device.prepare(head_model(data.size)).result())
    burst = stack.enter_context(prepared.burst())

    def unary() -> bytes:
        return prepared.execute([data])[0].tobytes()

    def in_burst() -> bytes:
        return burst.execute([data])[0].tobytes()

    return unary, in_burst


def bare_call(channel: grpc.Channel, data: AnyArray) -> Call:
    """Return a call of the bare server."""
    run: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/head")
    return lambda: run(data.tobytes())


def bare_handlers() -> Handlers:
    """Return the method of the bare server: it copies its input and returns the first elements."""

    def head(request: bytes, context: object) -> bytes:
        return np.frombuffer(request, np.float32).copy()[:OUTPUT_ELEMENTS].tobytes()

    return {SERVICE: {"head": grpc.unary_unary_rpc_method_handler(head)}}


def measure(sizes: Sequence[int], rounds: int) -> dict[int, Latencies]:
    """Return the latencies of all paths for each size."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        service = EmbeddedService()
        stack.callback(service.close)
        same_machine = stack.enter_context(nnhal.connect(service.target))
        over_grpc = stack.enter_context(nnhal.connect(service.target, transport="grpc"))
        address = stack.enter_context(server_process("tests.benchmark.payloads", f"unix:{folder}/bare"))
        channel = stack.enter_context(grpc.insecure_channel(address))
        return {size: measure_size(size, rounds, same_machine, over_grpc, channel) for size in sizes}


def measure_size(
    size: int, rounds: int, same_machine: nnhal.Device, over_grpc: nnhal.Device, channel: grpc.Channel
) -> Latencies:
    """Return the latencies of all paths for inputs of one size."""
    data = np.random.default_rng(size).standard_normal(size // 4).astype(np.float32)
    expected, count = data[:OUTPUT_ELEMENTS].tobytes(), min(100, max(3, ROUND_BYTES // size))
    with ExitStack() as stack:
        unary, burst = device_calls(over_grpc, data, stack)
        calls: dict[str, Call] = {
            "bare gRPC unary": bare_call(channel, data),
            "gRPC unary": unary,
            "gRPC burst": burst,
            "same-machine burst": device_calls(same_machine, data, stack)[1],
        }
        latencies: Latencies = {path: [] for path in calls}
        for _ in range(rounds):
            for path, call in calls.items():
                latencies[path].append(checked_median_us(call, count, expected))
        return latencies


def medians(latencies: dict[int, Latencies]) -> dict[str, list[float]]:
    """Return for each path the median over rounds, size by size."""
    paths = next(iter(latencies.values()))
    return {path: [statistics.median(rounds[path]) for rounds in latencies.values()] for path in paths}


def table(latencies: dict[int, Latencies]) -> str:
    """Return the latencies as text."""
    curves = medians(latencies)
    lines = [f"{'input':>8}" + "".join(f"{path + ' µs':>24}" for path in curves)]
    for row, size in enumerate(latencies):
        lines.append(f"{size_text(size):>8}" + "".join(f"{curve[row]:24.0f}" for curve in curves.values()))
    return "\n".join(lines)


def size_text(size: int) -> str:
    """Return a size in KiB or MiB."""
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"


def draw(latencies: dict[int, Latencies], path: Path) -> None:
    """Save the curves as a picture, each with a band from its fastest round to its slowest."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.add_subplot(xscale="log", yscale="log", xlabel="input", ylabel="latency, µs (median)")
    sizes = list(latencies)
    for name, curve in medians(latencies).items():
        (line,) = axes.plot(sizes, curve, marker="o", markersize=4, label=name)
        rounds = [each[name] for each in latencies.values()]
        axes.fill_between(sizes, [*map(min, rounds)], [*map(max, rounds)], color=line.get_color(), alpha=0.15, lw=0)
    axes.set_xticks(sizes, [size_text(size) for size in sizes], rotation=45)
    axes.minorticks_off()
    axes.grid(True, alpha=0.3)
    axes.legend()
    axes.set_title("One execution by the size of its input")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and sizes")
    parser.add_argument("--picture", type=Path, default=PICTURE, metavar="FILE", help="file to save the picture to")
    parser.add_argument("address", nargs="?", help=argparse.SUPPRESS)  # runs as the bare server at this address
    options = parser.parse_args(arguments)
    if options.address:
        return serve(bare_handlers(), options.address)
    latencies = measure(SIZES[::2] if options.quick else SIZES, 3 if options.quick else 7)
    print(table(latencies))
    draw(latencies, options.picture)
    print(f"picture saved to {options.picture}")


if __name__ == "__main__":
    main()
