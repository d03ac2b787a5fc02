"""`nnhal explain`: the operations of a .tflite model, the backend that each would run on, and the reasons."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnhal_tools.cli.console import make_console, print_table, print_text, show_status, words_fit
from nnhal_tools.cli.errors import CommandError, error_text, reporting_errors
from nnhal_tools.cli.options import CONNECT_S, Json, Target, require_writable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.table import Table

    from nnhal.client import Device
    from nnhal.types import Model
    from nnhal_tools.explain.explanation import Explanation

_RUNS = 5
"""The fastest run is shown, because the first one warms up."""
_ORDINARY_RUNS = 8
"""Ordinary executions come first. Meanwhile backends choose their numbers of threads."""


@reporting_errors()
def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL.tflite", help="The model.")],
    target: Target = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="The device of the service.")] = "",
    as_json: Json = False,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the graph, colored by backend, as an HTML page.")
    ] = None,
    run: Annotated[bool, typer.Option("--run", help="Also run the model, and show times.")] = False,
) -> None:
    """Show which operation each operator of a model becomes, and on which backend it would run.

    For each operation that does not run on the device's first backend, this shows the reason and the nearest signature
    that the backend supports. The exit code is 1 if an operation is not supported.

    Only --run prepares the model. It shows the fastest of some profiled executions with random inputs, in which the
    operations run one by one, and the time of an ordinary execution.
    """
    import json

    import nnhal
    from nnhal_tools.cli.model import load_model
    from nnhal_tools.explain.explanation import build_explanation

    require_writable(html)
    loaded = load_model(model)
    with (
        show_status(f"explaining {model}") as status,
        nnhal.connect(target, device=device, timeout=CONNECT_S) as connected,
    ):
        explanation = build_explanation(loaded, connected.explain(loaded))
        if run and explanation.is_complete:
            status.update(f"running {model}")
            explanation = _explain_run(loaded, connected)
    if html:
        from nnhal_tools.explain.page import write_html

        try:
            write_html(html, model.name, loaded, explanation)
        except OSError as error:
            raise CommandError(f"cannot write {html}: {error_text(error)}") from error
    if as_json:
        typer.echo(json.dumps(explanation.as_json(), indent=2))
    else:
        _show(explanation)
    if not explanation.is_complete:
        raise typer.Exit(1)


def _explain_run(model: "Model", device: "Device") -> "Explanation":
    """Return the explanation of the prepared model, with times."""
    from dataclasses import replace

    from nnhal_tools.cli.inputs import random_inputs
    from nnhal_tools.explain.explanation import add_times, build_explanation
    from nnhal_tools.explain.times import repeat, run_times

    with device.prepare(model).result() as prepared:
        inputs = random_inputs(prepared.inputs)
        ordinary = repeat(lambda: prepared.execute(inputs, measure_timing=True).timing, _ORDINARY_RUNS)
        profiles = repeat(lambda: prepared.profile(inputs), _RUNS)
        explanation = build_explanation(model, prepared.placement)
    fastest = min(profiles, key=lambda profile: profile.outputs.timing.time_on_device_ns)
    add_times(explanation, fastest.spans)
    return replace(explanation, times=run_times(fastest, min(timing.time_on_device_ns for timing in ordinary)))


def _show(explanation: "Explanation") -> None:
    from rich.table import Table

    from nnhal_tools.explain.explanation import between_text, time_text

    console = make_console()
    timed = any("time_us" in row for row in explanation.partitions)
    table = _operations_table(explanation, timed, narrow=False)
    print_table(console, table if words_fit(console, table) else _operations_table(explanation, timed, narrow=True))
    partitions = Table("partition", "subgraph", "backend", "operations", *(["time", "between operations"] * timed))
    for row in explanation.partitions:
        types = ", ".join(f"{count} {type_}" for type_, count in row["types"].items())
        subgraph = "main" if row["subgraph"] == 0 else f"referenced {row['subgraph'] - 1}"
        times = [time_text(row), between_text(row)] if timed else []
        partitions.add_row(str(row["partition"]), subgraph, row["backend"], types, *times)
    print_table(console, partitions)
    if explanation.times is not None:
        print_text(console, explanation.times.text())


def _operations_table(explanation: "Explanation", timed: bool, *, narrow: bool) -> "Table":
    """Return the table of operations.

    Args:
        explanation: the operations.
        timed: whether there is a column for times.
        narrow: for narrow terminals: operators of the file are below operations, and outputs below inputs.
    """
    from rich.table import Table

    from nnhal_tools.explain.explanation import time_text

    headings = ["", "operation\noperator of the file", "first input\noutput"]
    if not narrow:
        headings = ["", "operator of the file", "operation", "first input", "output"]
    table = Table(*headings, "backend", *(["time"] * timed), show_lines=narrow)
    for row in explanation.operations:
        # without blanks, because lines may end at blanks
        first, last = ((operands or [""])[0].replace(", ", ",") for operands in (row["inputs"], row["outputs"]))
        names = [f"{row['type']}\n{row['origin']}", f"{first}\n{last}"]
        if not narrow:
            names = [row["origin"], row["type"], first, last]
        table.add_row(str(row["operation"]), *names, _backend_text(row), *([time_text(row)] * timed))
    return table


def _backend_text(row: "Mapping[str, Any]") -> str:
    """Return the backend of an operation, and the reasons why it does not run on another one."""
    lines = [row["backend"] or "not supported"]
    for refusal in row["refusals"]:
        lines.append(f"{refusal['backend']}: {refusal['reason']}")
        lines += [f"nearest supported: {refusal['nearest']}"] if refusal["nearest"] else []
    return "\n".join(lines)
