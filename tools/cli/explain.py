"""`nnhal explain`: what each operator of a .tflite model becomes, where it would run, and why not elsewhere."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tools.cli.console import make_console
from tools.cli.errors import CommandError, reporting_errors
from tools.cli.options import CONNECT_S, Target

if TYPE_CHECKING:
    from nnhal.client import Device
    from nnhal.types import Model
    from tools.explain.explanation import Explanation

_RUNS = 5
"""Of which the fastest is shown: the first one warms up."""


@reporting_errors()
def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL.tflite", help="The model.")],
    target: Target = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="Which device of the service.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the graph, coloured by backend.")] = None,
    run: Annotated[bool, typer.Option("--run", help="Prepare and run it too: show what takes how long.")] = False,
) -> None:
    """Show, operation by operation, what a model becomes and where it would run.

    For each operation that is not on the device's first backend: why, and the nearest signature that would be. Nothing
    is prepared, but with --run, which takes the fastest of some runs with random inputs. The exit code is 1 when an
    operation is not supported.
    """
    import json

    import nnhal
    from tools.cli.model import load
    from tools.explain.explanation import explanation

    loaded = load(model)
    with nnhal.connect(target, device=device, timeout=CONNECT_S) as connected:
        explained = explanation(loaded, connected.explain(loaded))
        if run and explained.is_complete:
            explained = _measured(loaded, connected)
    if html:
        from tools.cli.inputs import reason
        from tools.explain.page import write_html

        try:
            write_html(html, model.name, loaded, explained)
        except OSError as error:
            raise CommandError(f"cannot write {html}: {reason(error)}") from error
    if as_json:
        typer.echo(json.dumps(explained.as_json(), indent=2))
    else:
        _show(explained)
    if not explained.is_complete:
        raise typer.Exit(1)


def _measured(model: "Model", device: "Device") -> "Explanation":
    """The explanation of the model as it was prepared, with times."""
    from tools.cli.inputs import random_inputs
    from tools.explain.explanation import add_times, explanation

    with device.prepare(model).result() as prepared:
        inputs = random_inputs(prepared.inputs)
        profiles = [prepared.profile(inputs) for _ in range(_RUNS)]
        explained = explanation(model, prepared.placement)
    add_times(explained, min(profiles, key=lambda one: one.outputs.timing.time_on_device_ns).spans)
    return explained


def _show(explained: "Explanation") -> None:
    from rich.table import Table

    from tools.explain.explanation import time_text

    console = make_console()
    timed = any("time_us" in row for row in explained.partitions)
    table = Table("", "operator of the file", "operation", "first input", "output", "backend", *(["time"] * timed))
    for row in explained.operations:
        says = [row["backend"] or "not supported"]
        for refusal in row["refusals"]:
            says.append(f"{refusal['backend']}: {refusal['reason']}")
            says += [f"it would take: {refusal['nearest']}"] if refusal["nearest"] else []
        inputs, outputs = row["inputs"] or [""], row["outputs"] or [""]
        cells = (str(row["operation"]), row["origin"], row["type"], inputs[0], outputs[0])
        table.add_row(*cells, "\n".join(says), *([time_text(row)] * timed))
    console.print(table)
    partitions = Table("partition", "subgraph", "backend", "operations", *(["time"] * timed))
    for row in explained.partitions:
        types = ", ".join(f"{count} {type_}" for type_, count in row["types"].items())
        subgraph = "main" if row["subgraph"] == 0 else f"referenced {row['subgraph'] - 1}"
        partitions.add_row(str(row["partition"]), subgraph, row["backend"], types, *([time_text(row)] * timed))
    console.print(partitions)
