"""`nnhal run`: run a .tflite model on a service."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnhal_tools.cli.console import make_console, print_table, print_text, show_status
from nnhal_tools.cli.errors import CommandError, error_text, reporting_errors
from nnhal_tools.cli.options import (
    CONNECT_S,
    Json,
    Target,
    at_least,
    require_writable,
    require_writable_folder,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from nnhal.client import Outputs, PartitionedModel, PreparedModel
    from nnhal.client.core.profile import ExecutionProfile
    from nnhal.client.fallback.placement import FallbackPlacement
    from nnhal.types import AnyArray, Model, Operand
    from nnhal_tools.explain.times import RunTimes


@dataclass(frozen=True)
class RunResult:
    """Outputs and times of a model on a service.

    Attributes:
        outputs: the outputs of the last execution.
        operands: the operands of the outputs.
        prepare_s: seconds of the preparation.
        execute_s: seconds of each execution.
        profiles: profiled executions, if they were requested.
        device_ns: time of the fastest ordinary execution on the device, if there are profiled ones.
        fallback: the placement, if this machine runs a part of the model.
    """

    outputs: "Outputs"
    operands: "Sequence[Operand]"
    prepare_s: float
    execute_s: Sequence[float]
    profiles: "Sequence[ExecutionProfile]" = ()
    device_ns: int = 0
    fallback: "FallbackPlacement | None" = None


@reporting_errors()
def run(
    model: Annotated[Path, typer.Argument(metavar="MODEL.tflite", help="The model.")],
    *,
    image: Annotated[Path | None, typer.Option(metavar="FILE", help="An image, for a model with one input.")] = None,
    input_: Annotated[
        list[Path] | None,
        typer.Option("--input", metavar="FILE.npy", help="An input. Repeat the option for each input, in order."),
    ] = None,
    labels: Annotated[Path | None, typer.Option(metavar="FILE", help="Names of the classes, one per line.")] = None,
    target: Target = None,
    device: Annotated[
        str, typer.Option(metavar="NAME", help="The device. [default: the service's first]", show_default=False)
    ] = "",
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Save each output in this folder, as NAME.npy.")
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
    fallback: Annotated[
        bool,
        typer.Option(
            "--fallback/--no-fallback", help="Whether this machine runs operations that the device does not support."
        ),
    ] = True,
    as_json: Json = False,
) -> None:
    """Run a model on a service.

    An image is resized to the input's [1,H,W,C]. The values are its pixels (uint8), pixels - 128 (int8) or
    pixels / 255 (float32). Without --image and --input the inputs are random, the same in every run.

    Shows the five best classes if the first output is [1,N], and a summary of the outputs otherwise.
    """
    import json

    from nnhal_tools.cli import inputs, results
    from nnhal_tools.cli.model import load_model

    require_writable(trace)
    require_writable_folder(output)
    with show_status(f"reading {model}") as status:
        loaded = load_model(model)
        arrays = inputs.read_inputs(loaded, image, input_ or [])
        classes = results.count_classes(loaded)
        names = results.read_labels(labels, classes) if labels else []
        result = _run(
            status,
            loaded,
            arrays,
            target=target,
            device_name=device,
            repeat=repeat,
            deadline=deadline,
            profile=trace is not None,
            fallback=fallback,
        )
    saved = results.save_outputs(output, result.outputs, _output_names(result)) if output else []
    if trace:
        span_count = _write_trace(trace, loaded, result)
    if as_json:
        typer.echo(json.dumps(_to_json(result, bool(classes), names, saved), indent=2))
        return
    console = make_console()
    if not image and not input_:
        print_text(console, f"inputs: random, seed {inputs.SEED} (give --image or --input)")
    _show(console, result, bool(classes), names)
    for path in saved:
        print_text(console, f"saved {path}")
    if trace:
        print_text(console, _times(result).text())
        print_text(console, f"trace with {span_count} spans: {trace}; open it at ui.perfetto.dev")


def _run(
    status: "Status",
    model: "Model",
    arrays: "Sequence[AnyArray]",
    *,
    target: str | None,
    device_name: str,
    repeat: int,
    deadline: float | None,
    profile: bool,
    fallback: bool,
) -> RunResult:
    import nnhal

    status.update(f"connecting to {target}" if target else "starting a service")
    with nnhal.connect(target, device=device_name, timeout=CONNECT_S) as device:
        status.update(f"preparing {len(model.main.operations)} operations")
        start = time.perf_counter()
        prepared = device.prepare(model, fallback=fallback, deadline=deadline).result()
        prepare_s = time.perf_counter() - start
        execute_s = []
        for i in range(repeat):
            status.update(f"running {i + 1} of {repeat}")
            start = time.perf_counter()
            outputs = prepared.execute(arrays, deadline=deadline)
            execute_s.append(time.perf_counter() - start)
        result = RunResult(outputs, prepared.outputs, prepare_s, execute_s, fallback=_fallback_of(prepared))
        return _profiled(status, result, prepared, arrays, deadline) if profile else result


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


def _fallback_of(prepared: "PreparedModel | PartitionedModel") -> "FallbackPlacement | None":
    """Return the placement of a model of which this machine runs a part."""
    from nnhal.client.fallback.placement import FallbackPlacement

    return prepared.placement if isinstance(prepared.placement, FallbackPlacement) else None


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


def _output_names(result: RunResult) -> list[str]:
    from nnhal_tools.cli.results import output_names

    return output_names(result.outputs.names, len(result.outputs))


def _to_json(result: RunResult, is_classifier: bool, labels: Sequence[str], saved: Sequence[Path]) -> dict[str, Any]:
    from nnhal_tools.cli import results

    outputs, operands = result.outputs, result.operands
    return {
        "classes": results.best_classes(outputs[0], operands[0], labels) if is_classifier else [],
        "outputs": results.summaries(outputs, operands, _output_names(result)),
        "saved": [str(path) for path in saved],
        "fallback": _fallback_as_json(result.fallback),
        "prepare_ms": result.prepare_s * 1e3,
        "execute_ms": [seconds * 1e3 for seconds in result.execute_s],
        **({"profile": _times(result).as_json()} if result.profiles else {}),
    }


def _write_trace(path: Path, model: "Model", result: RunResult) -> int:
    """Write the trace, and return the number of its spans.

    Raises:
        CommandError: the file is not writable.
    """
    import json

    from nnhal.profiling import trace

    document = trace(result.profiles, model)
    try:
        path.write_text(json.dumps(document), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error_text(error)}") from error
    return sum(event["ph"] == "X" for event in document["traceEvents"])


def _show(console: "Console", result: RunResult, is_classifier: bool, labels: Sequence[str]) -> None:
    from nnhal_tools.cli import results

    shown_count = 0
    if is_classifier:
        print_table(console, results.best_classes_table(result.outputs[0], result.operands[0], labels))
        shown_count = 1
    if rest := result.outputs[shown_count:]:
        names = _output_names(result)[shown_count:]
        print_table(console, results.summary_table(rest, result.operands[shown_count:], names))
    if result.fallback is not None:
        print_text(console, result.fallback.summary)
    execute = f"execute {median(result.execute_s) * 1e3:.1f} ms"
    if len(result.execute_s) > 1:
        execute += f" (median of {len(result.execute_s)})"
    console.print(f"prepare {result.prepare_s * 1e3:.1f} ms, {execute}")
