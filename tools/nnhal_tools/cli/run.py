"""`nnhal run`: run a .tflite model on a service."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnhal_tools.cli.console import make_console, print_json, print_table, print_text, show_status
from nnhal_tools.cli.errors import writing
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
)
from nnhal_tools.cli.security_options import with_security

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from nnhal.client import Outputs, PartitionedModel, PreparedModel
    from nnhal.client.core.profile import ExecutionProfile
    from nnhal.client.fallback.placement import FallbackPlacement
    from nnhal.tflite.model_metadata import TensorMetadata
    from nnhal.types import AnyArray, Model, Operand
    from nnhal_tools.explain.times import RunTimes
    from nnhal_tools.output_kinds.finding import Finding


@dataclass(frozen=True)
class RunResult:
    """Outputs and times of a model on a service.

    Attributes:
        outputs: the outputs of the last execution, without states.
        profiles: profiled executions, if they were requested.
        device_ns: time of the fastest ordinary execution on the device, if there are profiled ones.
        fallback: the placement, if this machine runs a part of the model.
    """

    outputs: "Outputs"
    operands: "Sequence[Operand]"
    names: Sequence[str]
    prepare_s: float
    execute_s: Sequence[float]
    profiles: "Sequence[ExecutionProfile]" = ()
    device_ns: int = 0
    fallback: "FallbackPlacement | None" = None


@with_security
def run(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A .tflite file, or the name of a model that the service has.")
    ],
    *,
    image: ImageFile = None,
    input_: InputFiles = None,
    shape: InputShapes = None,
    signature: SignatureKey = None,
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
        typer.Option(metavar="FILE.png", help="Save the image with the classes, masks or boxes drawn on it."),
    ] = None,
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
    fallback: Fallback = True,
    as_json: Json = False,
) -> None:
    """Run a model on a service.

    An image is resized to the input's [1,H,W,C]. The values are its pixels (uint8), pixels - 128 (int8), or for
    float32 what the model's metadata says, and pixels / 255 without it. Without --image and --input the inputs are
    random, the same in every run. A model with states starts with its initial states, and each run is a step.

    Shows classes, shares of a segmentation, or boxes if names, metadata or shapes tell that the outputs are these, and
    a summary of the outputs otherwise. A terminal with colors also shows the image.
    """
    from nnhal.tflite.model_metadata import ModelMetadata
    from nnhal_tools.cli import inputs, results
    from nnhal_tools.cli.model import describe_named, load_model, named_model, read_metadata

    require_writable(trace)
    results.require_drawable(draw, image)
    with show_status(f"reading {model}") as status:
        name = named_model(model, target)
        if name:
            loaded, class_names = describe_named(name, target)
            metadata = ModelMetadata()
        else:
            loaded = load_model(model, parse_shapes(shape or []), signature=signature)
            metadata, class_names = read_metadata(model), []
        results.require_output_path(output, len(results.output_indexes(loaded)))
        arrays = inputs.read_inputs(loaded, image, input_ or [], metadata.inputs)
        if labels:
            class_names = results.read_labels(labels, results.count_classes(loaded))
        result = _run(
            status,
            loaded,
            arrays,
            name=name,
            target=target,
            device_name=device,
            repeat=repeat,
            deadline=deadline,
            profile=trace is not None,
            fallback=fallback,
        )
    saved = results.save_outputs(output, result.outputs, result.names) if output else []
    shapes = [array.shape for array in arrays]
    finding = results.interpret(result.outputs, result.operands, result.names, metadata, shapes, class_names)
    if draw and image:
        results.draw(draw, image, finding)
    if trace:
        span_count = _write_trace(trace, loaded, result)
    if as_json:
        print_json(_to_json(result, finding, saved, draw, len(loaded.states)))
        return
    console = make_console()
    for line in _describe_inputs(loaded, metadata.inputs, image, is_random=not input_):
        print_text(console, line)
    _show(console, result, finding, draw or image)
    for path in [*saved, *filter(None, [draw])]:
        print_text(console, f"saved {path}")
    if trace:
        print_text(console, _times(result).text())
        print_text(console, f"trace with {span_count} spans: {trace}; open it at ui.perfetto.dev")


def _describe_inputs(
    model: "Model", metadata: "Sequence[TensorMetadata]", image: Path | None, *, is_random: bool
) -> list[str]:
    """Return lines about the inputs that the user may not expect."""
    from nnhal_tools.cli import inputs

    lines = []
    if image:
        described = metadata[0] if len(metadata) == 1 else None
        lines.append(f"image: {inputs.describe_image(inputs.input_operands(model)[0], described)}")
    elif is_random:
        lines.append(f"inputs: random, seed {inputs.SEED} (give --image or --input)")
    if model.states:
        count = len(model.states)
        lines.append(f"states: {count}, with their initial values; each run is a step of a stream")
    return lines


def _run(
    status: "Status",
    model: "Model",
    arrays: "Sequence[AnyArray]",
    *,
    name: str,
    target: str | None,
    device_name: str,
    repeat: int,
    deadline: float | None,
    profile: bool,
    fallback: bool,
) -> RunResult:
    import nnhal
    from nnhal.client.fallback.placement import FallbackPlacement
    from nnhal_tools.cli.inputs import with_initial_states
    from nnhal_tools.cli.results import output_names

    status.update(f"connecting to {target}" if target else "starting a service")
    with nnhal.connect(target, device=device_name, timeout=CONNECT_S) as device:
        status.update(f"preparing {name or f'{len(model.main.operations)} operations'}")
        start = time.perf_counter()
        prepared: PreparedModel | PartitionedModel
        if name:
            prepared = device.model(name, deadline=deadline)
        else:
            prepared = device.prepare(model, fallback=fallback, deadline=deadline).result()
        prepare_s = time.perf_counter() - start
        execute_s = []
        with ExitStack() as stack:
            execute = stack.enter_context(prepared.stream()).step if model.states else prepared.execute
            for i in range(repeat):
                status.update(f"running {i + 1} of {repeat}")
                start = time.perf_counter()
                outputs = execute(arrays, deadline=deadline)
                execute_s.append(time.perf_counter() - start)
        states = {state.output_index for state in model.states}
        operands = [operand for i, operand in enumerate(prepared.outputs) if i not in states]
        names = output_names(outputs.names, len(outputs))
        placement = prepared.placement if isinstance(prepared.placement, FallbackPlacement) else None
        result = RunResult(outputs, operands, names, prepare_s, execute_s, fallback=placement)
        return _profiled(status, result, prepared, with_initial_states(model, arrays), deadline) if profile else result


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
    console.print(f"prepare {result.prepare_s * 1e3:.1f} ms, {execute}")
