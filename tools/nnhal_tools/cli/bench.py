"""`nnhal bench`: measure latency, throughput and processor time of a model on a service."""

import csv
import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnhal_tools.cli.console import make_console, make_progress, print_table, print_text
from nnhal_tools.cli.errors import CommandError, as_command_errors, write_file
from nnhal_tools.cli.options import (
    DeviceName,
    Fallback,
    InputFiles,
    InputShapes,
    Json,
    SignatureKey,
    Target,
    at_least,
    parse_shapes,
    parse_target,
    require_writable,
)
from nnhal_tools.cli.security_options import with_security
from nnhal_tools.tables import counted, make_table

if TYPE_CHECKING:
    from rich.table import Table

    from nnhal.types import Model
    from nnhal_tools.bench.results import LoadResult, Spread
    from nnhal_tools.bench.specification import ClientTask

_LARGE_RATIO = 3
"""Ratio to LiteRT alone that needs an explanation."""


@with_security
def bench(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A .tflite file, or the name of a model that the service has.")
    ],
    *,
    target: Target = None,
    compare: Annotated[
        str | None,
        typer.Option(
            parser=parse_target,
            metavar="ADDR",
            help="Another service. It runs the same load, in turns with the first.",
        ),
    ] = None,
    engine: Annotated[
        bool,
        typer.Option(
            "--engine",
            help="Also run LiteRT in the client processes, without a service: with one thread, and one for each CPU.",
        ),
    ] = False,
    path: Annotated[
        str,
        typer.Option(
            metavar="NAMES",
            help="How clients execute: same-machine, same-machine-burst, grpc, grpc-burst, with commas; or all.",
        ),
    ] = "same-machine",
    concurrency: Annotated[
        str, typer.Option(metavar="N", help="Numbers of client processes: 1,2,8; or 1:16 for 1, 2, 4, 8, 16.")
    ] = "1",
    rate: Annotated[
        str,
        typer.Option(
            metavar="N",
            help="Calls per second of all clients, in the same form: calls arrive at random, and wait if clients are "
            "late. [default: each client makes its next call when the last one has ended]",
            show_default=False,
        ),
    ] = "",
    duration: Annotated[
        float, typer.Option(parser=at_least(float, 0), metavar="S", help="Seconds of each measurement, in all rounds.")
    ] = 6.0,
    warmup: Annotated[
        float, typer.Option(parser=at_least(float, 0), metavar="S", help="Seconds of calls before each measurement.")
    ] = 0.5,
    rounds: Annotated[
        int, typer.Option(parser=at_least(int, 1), metavar="N", help="Rounds, in which all measurements take turns.")
    ] = 3,
    input_: InputFiles = None,
    shape: InputShapes = None,
    signature: SignatureKey = None,
    device: DeviceName = "",
    fallback: Fallback = True,
    csv_file: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write the results as CSV.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with curves.")] = None,
    as_json: Json = False,
) -> None:
    """Measure latency, throughput and processor time of a model on a service.

    Each client is a process with one connection. Everything that is measured takes turns in rounds, so that noise of
    the machine meets all of it: compare ratios, and look at the spread of the rounds (docs/benchmarking.md).
    """
    from nnhal.embedded import EmbeddedService
    from nnhal_tools.bench.bench import run_bench
    from nnhal_tools.bench.load import BenchError
    from nnhal_tools.bench.specification import parse_levels
    from nnhal_tools.cli.model import describe_named, load_model, named_model

    require_writable(csv_file, html)
    if duration <= 0:
        raise CommandError("--duration must be positive")
    name = named_model(model, target)
    if name and (engine or signature):
        raise CommandError(f"{'--engine' if engine else '--signature'} needs the file of the model, not its name")
    with as_command_errors(ValueError):
        levels = parse_levels(concurrency, rate)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="nnhal-bench-")))
        shapes = parse_shapes(shape or [])
        described = describe_named(name, target)[0] if name else load_model(model, shapes, signature=signature)
        inputs = _write_inputs(folder, described, input_ or [])
        target = target or stack.enter_context(closing(EmbeddedService())).target
        addresses = [target, compare] if compare else [target]
        tasks = _tasks(model, inputs, _path_names(path), addresses, engine, shapes, device, fallback)
        tasks = [replace(task, signature=signature, is_named=bool(name)) for task in tasks]
        progress = stack.enter_context(make_progress())
        bar = progress.add_task("starting", total=len(tasks) * (1 + rounds * len(levels)))

        stack.enter_context(as_command_errors(BenchError))
        results = run_bench(
            tasks,
            levels,
            baseline=_baseline(tasks, compare),
            rounds=rounds,
            duration_s=duration,
            warmup_s=warmup,
            progress=lambda text: progress.update(bar, advance=1, description=text),
        )
    _report(results, model, csv_file, html, as_json=as_json)


def _write_inputs(folder: Path, model: "Model", files: Sequence[Path]) -> Path:
    """Write the inputs of the model to a file for the clients."""
    import numpy as np

    from nnhal_tools.cli import inputs

    file = folder / "inputs.npz"
    np.savez(file, *inputs.read_inputs(model, None, files))
    return file


def _path_names(text: str) -> list[str]:
    from nnhal_tools.bench.paths import PATHS
    from nnhal_tools.bench.specification import ENGINE

    names = [name for name in PATHS if name != ENGINE]
    chosen = names if text == "all" else text.split(",")
    for name in chosen:
        if name not in names:
            raise CommandError(f"invalid --path {name!r}: expected all, or some of {', '.join(names)}")
    return chosen


def _tasks(
    model: Path,
    inputs: Path,
    paths: Sequence[str],
    addresses: Sequence[str],
    engine: bool,
    shapes: "dict[str, tuple[int | None, ...]]",
    device: str,
    fallback: bool,
) -> "list[ClientTask]":
    """Return what the clients of each subject run."""
    from nnhal.cpu import available_cpus
    from nnhal_tools.bench.specification import ENGINE, ClientTask, Subject

    subjects = []
    if engine:  # a service may use all processors for one call
        counts = sorted({1, available_cpus()})
        subjects = [Subject(ENGINE, "", f"LiteRT, {counted(count, 'thread')}", count) for count in counts]
    for path in paths:
        for address in addresses:
            subjects.append(Subject(path, address, f"{path} at {address}" if len(addresses) > 1 else path))
    sizes = {name: list(shape) for name, shape in shapes.items()}
    return [ClientTask(str(model), str(inputs), subject, device, sizes, fallback) for subject in subjects]


def _baseline(tasks: "Sequence[ClientTask]", compare: str | None) -> "Callable[[ClientTask], ClientTask | None]":
    """Return a function that names what a subject is compared with: the other service, or else the first subject."""

    def baseline(task: "ClientTask") -> "ClientTask | None":
        if compare and task.subject.target:
            others = [each for each in tasks if each.subject.path == task.subject.path and each is not task]
            return others[0] if task.subject.target != compare else None
        return tasks[0] if task is not tasks[0] and not compare else None

    return baseline


def _report(
    results: "Sequence[LoadResult]", model: Path, csv_file: Path | None, html: Path | None, *, as_json: bool
) -> None:
    rows = [result.to_json() for result in results]
    write_file(csv_file, _write_csv, results)
    if html:
        from nnhal_tools.bench.page import write_html

        write_file(html, write_html, model.name, results)
    if as_json:
        typer.echo(json.dumps({"model": str(model), "time": time.strftime("%FT%TZ", time.gmtime()), "results": rows}))
        return
    console = make_console()
    print_table(console, _table(results))
    print_table(console, _times_table(results))
    if note := _explain_ratio(results):
        print_text(console, note)
    for result in results:
        for reason, count in result.errors.items():
            print_text(console, f"{result.subject.label}, {result.level.text}: {count} calls failed: {reason}")
    for file in filter(None, (csv_file, html)):
        print_text(console, f"saved {file}")


def _table(results: "Sequence[LoadResult]") -> "Table":
    """Return the throughput and the latencies."""
    numbers = ["calls/s", "p50 us", "p90", "p99", "ratio of p50"]
    table = make_table("path", "load", *numbers, right=numbers)
    for result in results:
        latency = result.latency_us
        table.add_row(
            result.subject.label,
            result.level.text,
            _spread(result.calls_per_s, "{:,.0f}"),
            *(f"{latency[key]:,.0f}" if latency else "-" for key in ("p50", "p90", "p99")),
            "" if result.ratio is None else _spread(result.ratio, "{:.2f}") + " x",
        )
    return table


def _times_table(results: "Sequence[LoadResult]") -> "Table":
    """Return the parts of the mean latency, and the processor time of a call, in microseconds."""
    numbers = ["max us", "device", "driver", "transfer", "CPU client", "CPU service"]
    table = make_table("path", "load", *numbers, right=numbers)
    for result in results:
        values = [result.latency_us.get("max"), *(result.split_us.get(key) for key in ("device", "driver", "transfer"))]
        cells = ("" if value is None else f"{value:,.0f}" for value in (*values, result.client_us, result.service_us))
        table.add_row(result.subject.label, result.level.text, *cells)
    return table


def _explain_ratio(results: "Sequence[LoadResult]") -> str:
    """Return a line on the cost of the service if it makes up most of a call, as with a tiny model; else ""."""
    from nnhal_tools.bench.specification import ENGINE

    engine = [result.latency_us for result in results if result.subject.path == ENGINE and result.latency_us]
    served = [result for result in results if result.subject.path != ENGINE and result.latency_us and result.ratio]
    if not engine or not served or max(result.ratio.median for result in served if result.ratio) < _LARGE_RATIO:
        return ""
    alone, least = engine[0]["p50"], min(result.latency_us["p50"] for result in served)
    return (
        f"LiteRT alone needs {alone:,.0f} us for this model. A service adds at least {least - alone:,.0f} us to each "
        "call, nearly the same for every model: the ratio is large because the model is small (docs/benchmarking.md)"
    )


def _spread(spread: "Spread", form: str) -> str:
    """Return a median, with the least and the largest value if they are others."""
    values = [form.format(value) for value in (spread.median, spread.least, spread.largest)]
    return values[0] if len(set(values)) == 1 else f"{values[0]} ({values[1]} to {values[2]})"


def _write_csv(file: Path, results: "Sequence[LoadResult]") -> None:
    rows = [_flat(result) for result in results]
    with file.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(dict.fromkeys(key for row in rows for key in row)))
        writer.writeheader()
        writer.writerows(rows)


def _flat(result: "LoadResult") -> dict[str, Any]:
    return {
        "path": result.subject.path,
        "target": result.subject.target,
        "clients": result.level.clients,
        "rate": result.level.rate,
        "calls": result.calls,
        "errors": sum(result.errors.values()),
        "calls_per_s": result.calls_per_s.median,
        **{f"{name}_us": value for name, value in result.latency_us.items()},
        **{f"{name}_us": value for name, value in result.split_us.items()},
        "client_processor_us": result.client_us,
        "service_processor_us": result.service_us,
        "ratio": None if result.ratio is None else result.ratio.median,
    }
