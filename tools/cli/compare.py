"""`nnhal compare`: where two backends start to differ on a model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tools.cli.console import make_console
from tools.cli.errors import reporting_errors
from tools.cli.options import CONNECT_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nnhal.client import Outputs
    from nnhal.types import AnyArray, Model, Placement


@reporting_errors()
def compare(
    model: Annotated[Path, typer.Argument(metavar="MODEL.tflite", help="The model.")],
    *,
    backend: Annotated[str, typer.Option(metavar="ID", help="The backend that is looked at.")] = "CpuAcc",
    reference: Annotated[str, typer.Option(metavar="ID", help="The backend that is taken to be right.")] = "CpuRef",
    image: Annotated[Path | None, typer.Option(metavar="FILE", help="An image, as the one input.")] = None,
    input_: Annotated[
        list[Path] | None,
        typer.Option("--input", metavar="FILE.npy", help="An input. Repeat it: one for each, in order."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run a model on two backends and show, operation by operation, how far apart they are.

    Each backend gets a service of its own; what the first one refuses runs on the reference. The model is run twice on
    each: as it is, and with all that passes between its operations as outputs. Looking inside prevents fusion, so an
    engine may compute otherwise then; the plain run says what a client gets.

    Differences are in ULP for floating point, in quantisation steps for all else.
    """
    import json

    from tools.cli import inputs
    from tools.cli.model import load

    loaded = load(model)
    arrays = inputs.given(loaded, image, input_ or [])
    ours = _Runs(loaded, arrays, f"{backend},{reference}" if backend != reference else backend)
    theirs = _Runs(loaded, arrays, reference)
    plain, inside = _plain_rows(loaded, ours, theirs), _inside_rows(loaded, ours, theirs)
    if as_json:
        typer.echo(json.dumps({"plain": plain, "inside": inside}, indent=2))
    else:
        _show(plain, inside)


class _Runs:
    """What a service with the given backends makes of a model, plain and looked into."""

    plain: "Outputs"
    inside: "Outputs"
    placement: "Placement"

    def __init__(self, model: "Model", arrays: "Sequence[AnyArray]", backends: str) -> None:
        from contextlib import closing

        import nnhal
        from nnhal.embedded import EmbeddedService
        from tools.compare import looking_inside

        with (
            closing(EmbeddedService("--backends", backends)) as service,
            nnhal.connect(service.target, timeout=CONNECT_S) as device,
        ):
            with device.prepare(model).result() as prepared:
                self.plain = prepared.execute(arrays)
            with device.prepare(looking_inside(model)).result() as prepared:
                self.inside, self.placement = prepared.execute(arrays), prepared.placement


def _plain_rows(model: "Model", ours: _Runs, theirs: _Runs) -> list[dict[str, Any]]:
    """One row for each output of the model as it is."""
    from tools.cli.results import output_names
    from tools.compare import difference

    main = model.main
    names = output_names(model.output_names, len(main.output_indexes))
    return [
        {"output": name, **_figures(difference(a, b, main.operands[o]))}
        for name, o, a, b in zip(names, main.output_indexes, ours.plain, theirs.plain, strict=True)
    ]


def _inside_rows(model: "Model", ours: _Runs, theirs: _Runs) -> list[dict[str, Any]]:
    """One row for each output of each operation, in order of execution."""
    from nnhal.types import operation_name
    from tools.compare import difference, looking_inside

    main = looking_inside(model).main
    place = {operand: i for i, operand in enumerate(main.output_indexes)}
    backends = {one.operation: one.backend for one in ours.placement.operations if one.subgraph == 0}
    origins = model.operation_names or ("",) * len(main.operations)
    return [
        {
            "operation": index,
            "type": operation_name(operation.type),
            "origin": origin,
            "backend": backends[index],
            "shape": list(ours.inside[place[o]].shape),
            **_figures(difference(ours.inside[place[o]], theirs.inside[place[o]], main.operands[o])),
        }
        for index, (operation, origin) in enumerate(zip(main.operations, origins, strict=True))
        for o in operation.outputs
    ]


def _figures(found: Any) -> dict[str, Any]:
    return {"maximum": found.maximum, "mean": found.mean, "unit": found.unit, "largest": found.largest}


def _show(plain: list[dict[str, Any]], inside: list[dict[str, Any]]) -> None:
    from rich.table import Table

    console = make_console()
    table = Table("", "operation", "backend", "shape")
    for column in ("max", "mean"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("unit")
    for row in inside:
        shape = "x".join(map(str, row["shape"]))
        table.add_row(str(row["operation"]), row["type"], row["backend"], shape, *_cells(row))
    console.print(table)
    first = next((row for row in inside if row["maximum"] > 0), None)
    console.print(
        "looked into, which prevents fusion: "
        + (f"they differ from operation {first['operation']} ({first['type']}) on" if first else "equal everywhere"),
        soft_wrap=True,
    )
    for row in plain:
        apart = f"max {row['maximum']:.6g}, mean {row['mean']:.3g} {row['unit']}" if row["maximum"] > 0 else "equal"
        console.print(f"as it is, output {row['output']}: {apart}", soft_wrap=True)


def _cells(row: dict[str, Any]) -> list[str]:
    if not row["maximum"] > 0:
        return ["=", "", ""]
    return [f"{row['maximum']:.6g}", f"{row['mean']:.3g}", row["unit"]]
