"""`nnhal explain`: what each operator of a .tflite model becomes, and what the device says to it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tools.cli.console import make_console
from tools.cli.errors import reporting_errors
from tools.cli.options import CONNECT_S, Target

if TYPE_CHECKING:
    from nnhal.types import Model, Operand, OperationPlacement, Placement


@reporting_errors()
def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL.tflite", help="The model.")],
    target: Target = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="Which device of the service.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show, operation by operation, what a model becomes and where it would run.

    Nothing is prepared. The exit code is 1 when an operation is not supported.
    """
    import json

    import nnhal
    from tools.cli.model import load

    loaded = load(model)
    with nnhal.connect(target, device=device, timeout=CONNECT_S) as connected:
        rows = _rows(loaded, connected.explain(loaded))
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        _show(rows)
    if not all(row["backend"] for row in rows):
        raise typer.Exit(1)


def _rows(model: "Model", placement: "Placement") -> list[dict[str, Any]]:
    """One row for each operation of main."""
    from nnhal.types import operation_name

    placed = [operation for operation in placement.operations if operation.subgraph == 0]
    operands = model.main.operands
    return [
        {
            "origin": origin,
            "operation": operation_name(operation.type),
            "inputs": [_described(operands[i]) for i in operation.inputs if operands[i].dimensions],
            "outputs": [_described(operands[i]) for i in operation.outputs],
            "backend": where.backend,
            "reasons": _reasons(where),
        }
        for origin, operation, where in zip(model.operation_names, model.main.operations, placed, strict=True)
    ]


def _described(operand: "Operand") -> str:
    from nnhal.types import type_name

    return f"{type_name(operand.type)} {list(operand.dimensions)}"


def _reasons(where: "OperationPlacement") -> list[str]:
    """Why the backends before the one that takes it do not."""
    return [f"{refusal.backend}: {refusal.reason}" for refusal in where.refusals]


def _show(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    table = Table("operator of the file", "operation", "first input", "output", "backend")
    for row in rows:
        says = [row["backend"] or "not supported", *row["reasons"]]
        table.add_row(row["origin"], row["operation"], row["inputs"][0], row["outputs"][0], "\n".join(says))
    make_console().print(table)
