"""`nnhal explain`: what each operator of a .tflite model becomes, where it would run, and why not elsewhere."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tools.cli.console import make_console
from tools.cli.errors import CommandError, reporting_errors
from tools.cli.options import CONNECT_S, Target

if TYPE_CHECKING:
    from tools.explain.explanation import Explanation


@reporting_errors()
def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL.tflite", help="The model.")],
    target: Target = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="Which device of the service.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the graph, coloured by backend.")] = None,
) -> None:
    """Show, operation by operation, what a model becomes and where it would run.

    For each operation that is not on the device's first backend: why, and the nearest signature that would be. Nothing
    is prepared. The exit code is 1 when an operation is not supported.
    """
    import json

    import nnhal
    from tools.cli.model import load
    from tools.explain.explanation import explanation

    loaded = load(model)
    with nnhal.connect(target, device=device, timeout=CONNECT_S) as connected:
        explained = explanation(loaded, connected.explain(loaded))
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


def _show(explained: "Explanation") -> None:
    from rich.table import Table

    console = make_console()
    table = Table("", "operator of the file", "operation", "first input", "output", "backend")
    for row in explained.operations:
        says = [row["backend"] or "not supported"]
        for refusal in row["refusals"]:
            says.append(f"{refusal['backend']}: {refusal['reason']}")
            says += [f"it would take: {refusal['nearest']}"] if refusal["nearest"] else []
        inputs, outputs = row["inputs"] or [""], row["outputs"] or [""]
        cells = (str(row["operation"]), row["origin"], row["type"], inputs[0], outputs[0])
        table.add_row(*cells, "\n".join(says))
    console.print(table)
    partitions = Table("partition", "subgraph", "backend", "operations")
    for row in explained.partitions:
        types = ", ".join(f"{count} {type_}" for type_, count in row["types"].items())
        subgraph = "main" if row["subgraph"] == 0 else f"referenced {row['subgraph'] - 1}"
        partitions.add_row(str(row["partition"]), subgraph, row["backend"], types)
    console.print(partitions)
