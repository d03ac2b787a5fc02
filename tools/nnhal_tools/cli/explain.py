"""`nnhal explain`: the operations of a .tflite model, the backend that each would run on, and the reasons."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nnhal_tools.cli.console import make_console, print_json, print_table, print_text, show_status, words_fit
from nnhal_tools.cli.errors import FAILED, print_error, writing
from nnhal_tools.cli.options import (
    CONNECT_S,
    DeviceName,
    Fallback,
    InputShapes,
    Json,
    SignatureKey,
    Target,
    parse_shapes,
    require_writable,
)
from nnhal_tools.cli.security_options import with_security

if TYPE_CHECKING:
    from nnhal.client import Device
    from nnhal.types import Model
    from nnhal_tools.explain.explanation import Explanation
    from nnhal_tools.explain.model_explanation import ModelExplanation

_RUNS = 5
"""The fastest run is shown, because the first one warms up."""
_ORDINARY_RUNS = 8
"""Ordinary executions come first. Meanwhile backends choose their numbers of threads."""


@with_security
def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL.tflite", help="The model.")],
    target: Target = None,
    device: DeviceName = "",
    as_json: Json = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the graph, colored by backend, as an HTML page.")
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Also run the model, and show times.")] = False,
    shape: InputShapes = None,
    signature: SignatureKey = None,
    extension: Annotated[
        bool, typer.Option("--extension/--no-extension", help="Whether to use the LiteRT extension.")
    ] = True,
    fallback: Fallback = True,
) -> None:
    """Show which operation each operator of a model becomes, and on which backend it would run.

    Totals come first, then the operators that are not one NNAPI operation, with what became of each and why. For each
    operation that does not run on the device's first backend, the table shows the reason and the nearest signature
    that the backend supports. The exit code is 1 if an operator or operation cannot run.

    Only --run prepares the model. It shows the fastest of some profiled executions with random inputs, in which the
    operations run one by one, and the time of an ordinary execution.
    """
    from nnhal_tools.cli.model import inspect_model, load_model
    from nnhal_tools.explain.imported import describe_import
    from nnhal_tools.explain.model_explanation import ModelExplanation

    require_writable(html)
    shapes = parse_shapes(shape or [])
    with show_status(f"explaining {model}"):
        report = inspect_model(model, shapes, extension=extension, signature=signature)
        loaded = None
        if not report.refusals():
            loaded = load_model(model, shapes, extension=extension, signature=signature)
        placed, missing = None, "the model cannot be imported"
        if loaded is not None:
            placed, missing = _place(loaded, target, device, fallback=fallback, run=run)
    imported = describe_import(report, loaded)
    explanation = ModelExplanation(imported, placed, missing)
    if html:
        from nnhal_tools.explain.page import render_page

        with writing(html):
            html.write_text(render_page(model.name, loaded, explanation), "utf-8")
    if as_json:
        print_json(explanation.as_json())
    else:
        _show(model.name, explanation)
    if loaded is not None and missing:
        print_error(missing)
    if missing or not explanation.is_complete:
        raise typer.Exit(FAILED)


def _place(
    model: "Model", target: str | None, device: str, *, fallback: bool, run: bool
) -> "tuple[Explanation | None, str]":
    """Return the placement of a model, with times if it is to be run, and why one of them is missing, or ""."""
    import nnhal
    from nnhal.errors import LinuxRequiredError
    from nnhal_tools.explain.explanation import build_explanation

    placed = None
    try:
        with nnhal.connect(target, device=device, timeout=CONNECT_S) as connected:
            placed = build_explanation(model, connected.explain(model, fallback=fallback))
            if run and placed.is_complete:
                placed = _explain_run(model, connected, fallback)
    except LinuxRequiredError as error:
        return placed, error.reason
    except nnhal.HalError as error:
        return placed, str(error)
    return placed, ""


def _explain_run(model: "Model", device: "Device", fallback: bool) -> "Explanation":
    """Return the explanation of the prepared model, with times."""
    from dataclasses import replace

    from nnhal_tools.cli.inputs import random_inputs
    from nnhal_tools.explain.explanation import add_times, build_explanation
    from nnhal_tools.explain.times import repeat, run_times

    with device.prepare(model, fallback=fallback).result() as prepared:
        inputs = random_inputs(prepared.inputs)
        ordinary = repeat(lambda: prepared.execute(inputs, measure_timing=True).timing, _ORDINARY_RUNS)
        profiles = repeat(lambda: prepared.profile(inputs), _RUNS)
        explanation = build_explanation(model, prepared.placement)
    fastest = min(profiles, key=lambda profile: profile.outputs.timing.time_on_device_ns)
    add_times(explanation, fastest.spans)
    return replace(explanation, times=run_times(fastest, min(timing.time_on_device_ns for timing in ordinary)))


def _show(name: str, explanation: "ModelExplanation") -> None:
    from nnhal_tools.explain import terminal

    console = make_console()
    for line in terminal.title_lines(name, explanation):
        print_text(console, line)
    if explanation.imported.others:
        print_table(console, terminal.operators_table(explanation.imported.others))
    if (placed := explanation.placed) is None:
        return
    table = terminal.operations_table(placed, narrow=False)
    print_table(console, table if words_fit(console, table) else terminal.operations_table(placed, narrow=True))
    print_table(console, terminal.partitions_table(placed))
    if placed.times is not None:
        print_text(console, placed.times.text())
