"""`nnhal run`: run a .tflite model on a service."""

import time
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnhal_tools.cli.console import (
    make_console,
    make_progress,
    print_json,
    print_table,
    print_text,
    show_status,
)
from nnhal_tools.cli.errors import FAILED, CommandError, writing
from nnhal_tools.cli.options import (
    CONNECT_S,
    DeviceName,
    Fallback,
    ImageFile,
    InputFiles,
    InputShapes,
    Json,
    SignatureKey,
    Target,
    at_least,
    parse_shapes,
    require_writable,
    require_writable_folder,
)
from nnhal_tools.cli.security_options import with_security
from nnhal_tools.tables import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

    from rich.console import Console
    from rich.status import Status

    from nnhal.client import Outputs, PartitionedModel, PreparedModel
    from nnhal.client.core.profile import ExecutionProfile
    from nnhal.client.fallback.placement import FallbackPlacement
    from nnhal.tflite.model_metadata import ModelMetadata
    from nnhal.types import AnyArray, Model, Operand
    from nnhal_tools.batch.records import FileResult
    from nnhal_tools.explain.times import RunTimes
    from nnhal_tools.output_kinds.finding import Finding

_NOT_DRAWN = "no picture is drawn: the outputs are of no known kind, or the files are not images"


@dataclass(frozen=True)
class RunResult:
    """Outputs and times of a model on a service.

    Attributes:
        outputs: the outputs of the last execution, without states.
        profiles: profiled executions, if they were requested.
        device_ns: time of the fastest ordinary execution on the device, if there are profiled ones.
        fallback: the placement, if this machine runs a part of the model.
        cache: the outcome of the cache, or "" if it was not used.
    """

    outputs: "Sequence[AnyArray]"
    operands: "Sequence[Operand]"
    names: Sequence[str]
    prepare_s: float
    execute_s: Sequence[float]
    profiles: "Sequence[ExecutionProfile]" = ()
    device_ns: int = 0
    fallback: "FallbackPlacement | None" = None
    cache: str = ""


@dataclass(frozen=True)
class RunSettings:
    """Options of executions, see `run`. `name` is that of a model that the service has; "" for a file."""

    name: str
    target: str | None
    device: str
    repeat: int
    deadline: float | None
    fallback: bool
    cache: bool
    batch: int
    normalize: str | None


@dataclass(frozen=True)
class Destinations:
    """Places for the results: outputs, pictures, files with a line for each file, and a trace."""

    output: Path | None
    draw: Path | None
    csv_file: Path | None
    jsonl_file: Path | None
    trace: Path | None


@with_security
def run(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A .tflite file, or the name of a model that the service has.")
    ],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE|FOLDER]...",
            help="Images, sounds (.wav) or arrays (.npy, .npz), or folders of them. The model runs for each file.",
        ),
    ] = None,
    *,
    image: ImageFile = None,
    input_: InputFiles = None,
    shape: InputShapes = None,
    signature: SignatureKey = None,
    normalize: Annotated[
        str | None,
        typer.Option(
            metavar="MEAN/STD",
            help="What is subtracted from pixels (0 to 255) of a float input, and what then divides them: 127.5/127.5, "
            "or with commas a number for each channel. [default: as the model's file says, or 0/255]",
            show_default=False,
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Names of the classes, one per line. [default: those in the model's file]"),
    ] = None,
    target: Target = None,
    device: DeviceName = "",
    output: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Save the outputs: as .npz, as .npy if there is one, or in a folder."),
    ] = None,
    draw: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Save images with the classes, masks or boxes drawn on them: a file, or a folder."
        ),
    ] = None,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write a line for each file as CSV.")
    ] = None,
    jsonl_file: Annotated[
        Path | None, typer.Option("--jsonl", metavar="FILE", help="Write a line of JSON for each file.")
    ] = None,
    batch: Annotated[
        int, typer.Option(parser=at_least(int, 1), metavar="N", help="Number of files that one execution takes.")
    ] = 1,
    repeat: Annotated[
        int, typer.Option(parser=at_least(int, 1), metavar="N", help="Run the model N times, and show the median time.")
    ] = 1,
    deadline: Annotated[
        float | None,
        typer.Option(
            parser=at_least(float, 0), metavar="S", help="Seconds that the preparation, and each execution, may take."
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Run the model N more times with a profile, and write a trace for Perfetto."),
    ] = None,
    cache: Annotated[
        bool, typer.Option("--cache", help="Use the cache of the service for the prepared model.")
    ] = False,
    fallback: Fallback = True,
    as_json: Json = False,
) -> None:
    """Run a model on a service, for one file or for many.

    An image is resized to the input's size. The values are its pixels (uint8), pixels - 128 (int8), or for float32 what
    --normalize or the model's metadata says, and pixels / 255 without both. A sound becomes mono, at 16 kHz unless the
    metadata says otherwise; if it is longer than the input, the results are means over its parts. Without files the
    inputs are random, the same in every run. A model with states starts with its initial states, and each run is a
    step.

    Shows classes, shares of a segmentation, boxes or an image if names, metadata or shapes tell that the outputs are
    these, and a summary of the outputs otherwise. A terminal with colors also shows the image. Many files get a line
    each, and those that cannot be read do not end the run.
    """
    from nnhal_tools.cli import inputs, results
    from nnhal_tools.cli.model import load_model, named_model

    options = RunSettings(
        named_model(model, target), target, device, repeat, deadline, fallback, cache, batch, normalize
    )
    to = Destinations(output, draw, csv_file, jsonl_file, trace)
    require_writable(trace, csv_file, jsonl_file)
    paths = inputs.find_files([*(files or []), *filter(None, [image])])
    if paths and input_:
        raise CommandError("give files or --input, not both")
    is_many = len(paths) > 1 or batch > 1 or csv_file is not None or jsonl_file is not None
    if is_many:
        _check_many(paths, options, to)
    else:
        results.require_drawable(draw, _picture(paths))
    shapes = parse_shapes(shape or [])
    with show_status(f"reading {model}"):
        task = _read_task(model, options, shapes, signature, labels)
        batched = task.model
        if batch > 1:
            batched = load_model(model, shapes | task.batch_shapes(batch), signature=signature)
    if is_many:
        _run_many(task, batched, paths, options, to, as_json=as_json)
    else:
        _run_one(task, paths, input_ or [], options, to, as_json=as_json)


def _picture(paths: Sequence[Path]) -> Path | None:
    """Return the first file if it is an image."""
    from nnhal_tools.cli.inputs import kind_of

    return paths[0] if paths and kind_of(paths[0]) == "image" else None


def _read_task(
    path: Path,
    options: RunSettings,
    shapes: "dict[str, tuple[int | None, ...]]",
    signature: str | None,
    labels: Path | None,
) -> "_Task":
    """Return a model of a file or of the service, with what is known about it."""
    from nnhal.tflite.model_metadata import ModelMetadata
    from nnhal_tools.cli import inputs, results
    from nnhal_tools.cli.model import describe_named, load_model, read_metadata

    if options.name:
        loaded, class_names = describe_named(options.name, options.target)
        metadata = ModelMetadata()
    else:
        loaded = load_model(path, shapes, signature=signature)
        metadata, class_names = read_metadata(path), []
    if options.normalize is not None:
        loaded = inputs.with_normalization(loaded, options.normalize)
    if labels:
        class_names = results.read_labels(labels, results.count_classes(loaded))
    return _Task(loaded, metadata, class_names)


def _run_one(
    task: "_Task",
    paths: Sequence[Path],
    arrays: Sequence[Path],
    options: RunSettings,
    to: "Destinations",
    *,
    as_json: bool,
) -> None:
    """Run the model for one file, for arrays, or for random inputs, and print all about the outputs."""
    from nnhal_tools.cli import inputs, results

    model = task.model
    results.require_output_path(to.output, len(results.output_indexes(model)))
    parts = task.read(paths[0]) if paths else [inputs.read_inputs(model, None, arrays)]
    with show_status("starting") as status:
        result = _run(status, model, parts, options, profile=to.trace is not None)
    saved = results.save_outputs(to.output, result.outputs, result.names) if to.output else []
    finding = task.interpret(result.outputs, result.operands, result.names)
    picture = _picture(paths)
    drawn = results.draw(to.draw, picture, finding) if to.draw and picture else None
    if to.trace:
        span_count = _write_trace(to.trace, model, result)
    if as_json:
        print_json(_to_json(result, finding, saved, drawn, len(model.states)))
        return
    console = make_console()
    for line in _describe_inputs(model, picture, len(parts), options, is_random=not (paths or arrays)):
        print_text(console, line)
    _show(console, result, finding, drawn or picture)
    for path in [*saved, *filter(None, [drawn])]:
        print_text(console, f"saved {path}")
    if to.trace:
        print_text(console, _times(result).text())
        print_text(console, f"trace with {span_count} spans: {to.trace}; open it at ui.perfetto.dev")


@dataclass(frozen=True)
class _Task:
    """A model, and what is known about its inputs and outputs. `labels` are the user's, or ()."""

    model: "Model"
    metadata: "ModelMetadata"
    labels: Sequence[str]

    def read(self, path: Path) -> "list[list[AnyArray]]":
        """Return the inputs in a file, for one execution or several."""
        from nnhal_tools.cli import inputs

        described = self.metadata.inputs[:1]
        return inputs.read_file(self.model, path, described[0].sample_rate if described else 0)

    def batch_shapes(self, batch: int) -> dict[str, tuple[int | None, ...]]:
        """Return the shapes of the inputs with another size of the batch."""
        from nnhal_tools.cli.inputs import input_operands

        operands = input_operands(self.model)
        if any(operand.dimensions[:1] not in [(1,), (0,)] for operand in operands):
            raise CommandError("--batch needs a model whose inputs have a first dimension of 1")
        return {operand.name: (batch, *(size or None for size in operand.dimensions[1:])) for operand in operands}

    def interpret(
        self, outputs: "Sequence[AnyArray]", operands: "Sequence[Operand]", names: Sequence[str]
    ) -> "Finding | None":
        """Return the meaning of outputs, or None."""
        from nnhal_tools.cli import inputs, results

        shapes = [operand.dimensions for operand in inputs.input_operands(self.model)]
        return results.interpret(outputs, operands, names, self.metadata, shapes, self.labels)


def _describe_inputs(
    model: "Model", picture: Path | None, part_count: int, options: RunSettings, *, is_random: bool
) -> list[str]:
    """Return lines about the inputs that the user may not expect."""
    from nnhal_tools.cli import inputs

    lines = []
    if picture:
        source = "--normalize" if options.normalize else "the metadata"
        lines.append(f"image: {inputs.describe_image(inputs.input_operands(model)[0], source)}")
    elif is_random:
        lines.append(f"inputs: random, seed {inputs.SEED} (give files or --input)")
    if part_count > 1:
        lines.append(f"sound: {part_count} parts of the input's length; results are means over them")
    if model.states:
        count = len(model.states)
        lines.append(f"states: {count}, with their initial values; each run is a step of a stream")
    return lines


@contextmanager
def _prepare(
    update: "Callable[[str], object]", model: "Model", options: RunSettings
) -> "Iterator[tuple[PreparedModel | PartitionedModel, Callable[..., Outputs], float]]":
    """Yield a prepared model, the function that runs it, and the seconds that the preparation took."""
    import nnhal

    update(f"connecting to {options.target}" if options.target else "starting a service")
    with nnhal.connect(options.target, device=options.device, timeout=CONNECT_S) as device, ExitStack() as stack:
        update(f"preparing {options.name or f'{len(model.main.operations)} operations'}")
        start = time.perf_counter()
        prepared: PreparedModel | PartitionedModel
        if options.name:
            prepared = device.model(options.name, deadline=options.deadline)
        else:
            preparation = device.prepare(
                model, fallback=options.fallback, deadline=options.deadline, cache=options.cache
            )
            prepared = preparation.result()
        prepare_s = time.perf_counter() - start
        execute = stack.enter_context(prepared.stream()).step if model.states else prepared.execute
        yield prepared, partial(execute, deadline=options.deadline), prepare_s


def _visible_outputs(
    model: "Model", prepared: "PreparedModel | PartitionedModel"
) -> "tuple[Sequence[Operand], list[str]]":
    """Return the operands and names of the outputs that are not states."""
    from nnhal_tools.cli.results import output_names

    states = {state.output_index for state in model.states}
    operands = [operand for i, operand in enumerate(prepared.outputs) if i not in states]
    names = [name for i, name in enumerate(prepared.output_names) if i not in states]
    return operands, output_names(names, len(operands))


def _run(
    status: "Status", model: "Model", parts: "Sequence[Sequence[AnyArray]]", options: RunSettings, *, profile: bool
) -> RunResult:
    from nnhal.client.fallback.placement import FallbackPlacement
    from nnhal_tools.batch.execution import mean_outputs
    from nnhal_tools.cli.inputs import with_initial_states

    with _prepare(status.update, model, options) as (prepared, execute, prepare_s):
        execute_s = []
        for i in range(options.repeat):
            status.update(f"running {i + 1} of {options.repeat}")
            start = time.perf_counter()
            outputs = mean_outputs([execute(arrays) for arrays in parts])
            execute_s.append(time.perf_counter() - start)
        placement = prepared.placement if isinstance(prepared.placement, FallbackPlacement) else None
        cache = str(prepared.cache) if options.cache else ""
        result = RunResult(
            outputs, *_visible_outputs(model, prepared), prepare_s, execute_s, fallback=placement, cache=cache
        )
        if not profile:
            return result
        return _profiled(status, result, prepared, with_initial_states(model, parts[0]), options.deadline)


# ---- Many files ------------------------------------------------------------------------------------------


def _check_many(paths: Sequence[Path], options: RunSettings, to: "Destinations") -> None:
    """Check, before the work, that options fit many files.

    Raises:
        CommandError: they do not.
    """
    if not paths:
        raise CommandError("--batch, --csv and --jsonl need files: nnhal run MODEL.tflite FILE...")
    if options.batch > 1 and options.name:
        raise CommandError("--batch needs a .tflite file: a model by name has the batch of its service")
    if to.trace:
        raise CommandError("--trace needs one file, and no --batch, --csv or --jsonl")
    for option, folder in (("--output", to.output), ("--draw", to.draw)):
        if folder and folder.suffix and not folder.is_dir():
            raise CommandError(f"{option} {folder} is not a folder, which the results of several files need")
        require_writable_folder(folder)


def _run_many(
    task: _Task,
    batched: "Model",
    paths: Sequence[Path],
    options: RunSettings,
    destinations: Destinations,
    *,
    as_json: bool,
) -> None:
    """Run the model for each file, and write a line for each. A failure of a file is a line, too."""
    from nnhal_tools.batch import records
    from nnhal_tools.batch.execution import run_files

    found: list[records.FileResult] = []
    names = dict(zip(paths, _distinct_stems(paths), strict=True))
    with ExitStack() as stack:
        if destinations.csv_file:
            stack.callback(records.write_csv, destinations.csv_file, found)  # also after an interrupt
        lines = stack.enter_context(_open_lines(destinations.jsonl_file))
        progress = stack.enter_context(make_progress())
        bar = progress.add_task("reading", total=len(paths))
        update = partial(progress.update, bar)
        prepared, execute, prepare_s = stack.enter_context(
            _prepare(lambda text: update(description=text), batched, options)
        )
        operands, output_names = _visible_outputs(batched, prepared)
        if options.batch > 1 and any(operand.dimensions[:1] != (options.batch,) for operand in operands):
            raise CommandError(f"--batch {options.batch} needs outputs whose first dimension is that of the inputs")
        start = time.perf_counter()
        for path, outputs in run_files(paths, task.read, execute, options.batch, CommandError):
            update(advance=1, description=path.name)
            record = records.FileResult(str(path), error=str(outputs) if isinstance(outputs, Exception) else "")
            if not isinstance(outputs, Exception):
                record = _record(task, path, names[path], outputs, (operands, output_names), destinations)
            found.append(record)
            if lines:
                records.write_line(lines, record)
        seconds = time.perf_counter() - start
    _report_many(found, destinations, (prepare_s, seconds), as_json=as_json)


def _record(
    task: _Task,
    path: Path,
    name: str,
    outputs: "Sequence[AnyArray]",
    described: "tuple[Sequence[Operand], Sequence[str]]",
    destinations: Destinations,
) -> "FileResult":
    """Return the result of a file, whose outputs and picture are saved under a name."""
    from nnhal_tools.batch.records import FileResult
    from nnhal_tools.cli import inputs, results

    facts: dict[str, Any] = {}
    finding = task.interpret(outputs, *described)
    if destinations.output:
        destinations.output.mkdir(parents=True, exist_ok=True)
        facts["saved"] = [
            str(p) for p in results.save_outputs(destinations.output / f"{name}.npz", outputs, described[1])
        ]
    if destinations.draw and finding and inputs.kind_of(path) == "image":
        facts["drawn"] = str(results.draw(destinations.draw / f"{name}.png", path, finding))
    rows = results.summaries(outputs, *described)
    facts |= {"kind": finding.kind, **finding.as_json()} if finding else {"kind": None, "outputs": rows}
    summary = {f"{row['output']} {key}": row[key] for row in rows for key in ("min", "max", "mean") if key in row}
    return FileResult(str(path), finding.row() if finding else summary, facts)


def _distinct_stems(paths: Sequence[Path]) -> list[str]:
    from nnhal_tools.cli.results import distinct

    return distinct([path.stem for path in paths])


@contextmanager
def _open_lines(path: Path | None) -> "Iterator[TextIO | None]":
    if path is None:
        yield None
        return
    with writing(path), path.open("w", encoding="utf-8") as stream:
        yield stream


def _report_many(
    found: "Sequence[FileResult]", destinations: Destinations, seconds: tuple[float, float], *, as_json: bool
) -> None:
    """Print the results of many files. The exit code is 1 if one of them failed."""
    from nnhal_tools.batch import records

    failed = [record for record in found if record.error]
    if as_json:
        print_json([record.to_json() for record in found])
    else:
        console, (prepare_s, run_s) = make_console(), seconds
        if not destinations.csv_file and not destinations.jsonl_file:
            print_table(console, records.table(found))
        drawn = sum("drawn" in record.facts for record in found)
        if destinations.draw:
            print_text(console, f"saved {counted(drawn, 'picture')} in {destinations.draw}" if drawn else _NOT_DRAWN)
        for path in filter(None, (destinations.output, destinations.csv_file, destinations.jsonl_file)):
            print_text(console, f"saved {path}")
        done = f"{counted(len(found), 'file')}{f', {len(failed)} failed' if failed else ''}"
        print_text(
            console, f"prepare {prepare_s * 1e3:.1f} ms, {done} in {run_s:.2f} s ({len(found) / run_s:.1f} per second)"
        )
    if failed:
        raise CommandError(
            f"{counted(len(failed), 'file')} failed; the first: {failed[0].file}: {failed[0].error}", FAILED
        )


# ---- One file --------------------------------------------------------------------------------------------


def _profiled(
    status: "Status",
    result: RunResult,
    prepared: "PreparedModel | PartitionedModel",
    arrays: "Sequence[AnyArray]",
    deadline: float | None,
) -> RunResult:
    """Return the result with profiled executions, and a measured ordinary one to compare them with."""
    count = len(result.execute_s)
    status.update("measuring an ordinary execution")
    ordinary = [prepared.execute(arrays, deadline=deadline, measure_timing=True) for _ in range(count)]
    status.update("setting profiling up")
    prepared.profile(arrays, deadline=deadline)
    profiles = []
    for i in range(count):
        status.update(f"profiling {i + 1} of {count}")
        profiles.append(prepared.profile(arrays, deadline=deadline))
    device_ns = min(outputs.timing.time_on_device_ns for outputs in ordinary)
    return replace(result, profiles=profiles, device_ns=device_ns)


def _fallback_as_json(fallback: "FallbackPlacement | None") -> dict[str, Any] | None:
    if fallback is None:
        return None
    local = [i for part in fallback.parts if part.is_fallback for i in part.operations]
    return {
        "operations": sorted(set(local)),
        "parts": len(fallback.parts),
        "crossing_bytes": fallback.crossing_bytes,
        "summary": fallback.summary,
    }


def _times(result: RunResult) -> "RunTimes":
    """Return the times of the fastest profiled execution."""
    from nnhal_tools.explain.times import run_times

    fastest = min(result.profiles, key=lambda profile: profile.outputs.timing.time_on_device_ns)
    return run_times(fastest, result.device_ns)


def _to_json(
    result: RunResult, finding: "Finding | None", saved: Sequence[Path], drawn: Path | None, state_count: int
) -> dict[str, Any]:
    from nnhal_tools.cli import results

    return {
        "kind": finding.kind if finding else None,
        "reason": finding.reason if finding else "",
        "classes": [],
        **(finding.as_json() if finding else {}),
        "outputs": results.summaries(result.outputs, result.operands, result.names),
        "states": state_count,
        "saved": [str(path) for path in saved],
        "drawn": str(drawn) if drawn else None,
        "fallback": _fallback_as_json(result.fallback),
        "prepare_ms": result.prepare_s * 1e3,
        "execute_ms": [seconds * 1e3 for seconds in result.execute_s],
        **({"profile": _times(result).as_json()} if result.profiles else {}),
    }


def _write_trace(path: Path, model: "Model", result: RunResult) -> int:
    """Write the trace, and return the number of its spans."""
    import json

    from nnhal.profiling import trace

    document = trace(result.profiles, model)
    with writing(path):
        path.write_text(json.dumps(document), encoding="utf-8")
    return sum(event["ph"] == "X" for event in document["traceEvents"])


def _show(console: "Console", result: RunResult, finding: "Finding | None", image: Path | None) -> None:
    """Print the results. A terminal with colors also shows the image."""
    from nnhal_tools.cli import results
    from nnhal_tools.cli.picture import beside_picture, draw_picture, shows_pictures

    picture = image if shows_pictures(console) else None
    print_text(console, f"outputs: {finding.kind}: {finding.reason}" if finding else "outputs: of no known kind")
    table = finding.table() if finding else None
    if table and picture:
        console.print(beside_picture(console, picture, table))
    elif table:
        print_table(console, table)
    elif picture:
        console.print(draw_picture(picture, console.width))
    if finding and finding.note:
        print_text(console, finding.note)
    explained = finding.positions if finding else ()
    if rest := [i for i in range(len(result.outputs)) if i not in explained]:
        outputs, operands = [result.outputs[i] for i in rest], [result.operands[i] for i in rest]
        print_table(console, results.summary_table(outputs, operands, [result.names[i] for i in rest]))
    if result.fallback is not None:
        print_text(console, result.fallback.summary)
    execute = f"execute {median(result.execute_s) * 1e3:.1f} ms"
    if len(result.execute_s) > 1:
        execute += f" (median of {len(result.execute_s)})"
    if result.cache:
        print_text(console, f"cache: {result.cache}")
    console.print(f"prepare {result.prepare_s * 1e3:.1f} ms, {execute}")
