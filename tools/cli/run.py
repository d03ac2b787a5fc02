"""`nnhal run`: runs a .tflite model on a service."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from tools.cli.console import make_console
from tools.cli.errors import CommandError, reporting_errors
from tools.cli.options import CONNECT_S, Target

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from nnhal.client import Outputs
    from nnhal.types import AnyArray, Model, Operand, Span


@dataclass(frozen=True)
class Ran:
    """What came of a model on a service. Times in seconds; spans of each execution, where they were asked for."""

    outputs: "Outputs"
    operands: "Sequence[Operand]"
    prepare_s: float
    execute_s: Sequence[float]
    spans: "Sequence[Sequence[Span]]"


@reporting_errors()
def run(
    model: Annotated[Path, typer.Argument(metavar="MODEL.tflite", help="The model.")],
    *,
    image: Annotated[Path | None, typer.Option(metavar="FILE", help="An image, as the one input.")] = None,
    input_: Annotated[
        list[Path] | None,
        typer.Option("--input", metavar="FILE.npy", help="An input. Repeat it: one for each, in order."),
    ] = None,
    labels: Annotated[Path | None, typer.Option(metavar="FILE", help="Names of the classes, one a line.")] = None,
    target: Target = None,
    device: Annotated[
        str, typer.Option(metavar="NAME", help="The device. [default: the service's first]", show_default=False)
    ] = "",
    output: Annotated[Path | None, typer.Option(metavar="DIR", help="Save each output there, as NAME.npy.")] = None,
    repeat: Annotated[int, typer.Option(min=1, metavar="N", help="Run it N times, for the time it takes.")] = 1,
    deadline: Annotated[
        float | None,
        typer.Option(min=0, metavar="S", help="Seconds for the preparation, and again for each execution."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Measure the parts of each execution; write a trace for Perfetto."),
    ] = None,
) -> None:
    """Run a model on a service.

    An image is resized to the input's [1,H,W,C]. The input gets its pixels (uint8), pixels - 128 (int8) or
    pixels / 255 (float32). Without --image and --input the inputs are random, the same every time.

    Shows the five best classes where the first output is [1,N], else a summary of the outputs.
    """
    from tools.cli import inputs, results
    from tools.cli.model import load

    console = make_console()
    with console.status(f"reading {model}", spinner="line") as status:
        loaded = load(model)
        arrays = inputs.given(loaded, image, input_ or [])
        classes = results.count_classes(loaded)
        names = results.read_labels(labels, classes) if labels else []
        ran = _run(
            status,
            loaded,
            arrays,
            target=target,
            device_name=device,
            repeat=repeat,
            deadline=deadline,
            profile=trace is not None,
        )
    if not image and not input_:
        console.print(f"inputs: random, seed {inputs.SEED} (give --image or --input)", soft_wrap=True)
    _show(console, ran, bool(classes), names)
    if output:
        for path in results.save(output, ran.outputs, results.output_names(ran.outputs.names, len(ran.outputs))):
            console.print(f"saved {path}", soft_wrap=True)
    if trace:
        _write_trace(trace, ran)
        console.print(
            f"trace of {sum(map(len, ran.spans))} spans in {trace}; open it at ui.perfetto.dev", soft_wrap=True
        )


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
) -> Ran:
    import nnhal

    status.update(f"connecting to {target}")
    with nnhal.connect(target, device=device_name, timeout=CONNECT_S) as device:
        status.update(f"preparing {len(model.main.operations)} operations")
        began = time.perf_counter()
        prepared = device.prepare(model, deadline=deadline).result()
        prepare_s = time.perf_counter() - began
        execute_s = []
        spans: list[Sequence[Span]] = []
        for i in range(repeat):
            status.update(f"running {i + 1} of {repeat}")
            began = time.perf_counter()
            if profile:
                profiled = prepared.profile(arrays, deadline=deadline)
                outputs = profiled.outputs
                spans.append(profiled.spans)
            else:
                outputs = prepared.execute(arrays, deadline=deadline)
            execute_s.append(time.perf_counter() - began)
        return Ran(outputs, prepared.outputs, prepare_s, execute_s, spans)


def _write_trace(path: Path, ran: Ran) -> None:
    import json

    from nnhal.profiling import trace
    from tools.cli.inputs import reason

    try:
        path.write_text(json.dumps(trace(ran.spans)), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"cannot write {path}: {reason(error)}") from error


def _show(console: "Console", ran: Ran, is_classifier: bool, labels: Sequence[str]) -> None:
    from tools.cli import results

    shown = 0
    if is_classifier:
        console.print(results.best_classes(ran.outputs[0], ran.operands[0], labels))
        shown = 1
    if rest := ran.outputs[shown:]:
        names = results.output_names(ran.outputs.names, len(ran.outputs))
        console.print(results.summary(rest, ran.operands[shown:], names[shown:]))
    execute = f"execute {median(ran.execute_s) * 1e3:.1f} ms"
    if len(ran.execute_s) > 1:
        execute += f" (median of {len(ran.execute_s)})"
    console.print(f"prepare {ran.prepare_s * 1e3:.1f} ms, {execute}")
