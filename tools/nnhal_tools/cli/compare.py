"""`nnhal compare`: the first operation of a model on which two backends differ."""

from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnhal_tools.cli.console import make_console, make_progress, print_json, print_table, print_text
from nnhal_tools.cli.options import CONNECT_S, ImageFile, InputFiles, Json
from nnhal_tools.tables import make_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nnhal.client import Outputs
    from nnhal.types import AnyArray, Model, Placement


def compare(
    model: Annotated[Path, typer.Argument(metavar="MODEL.tflite", help="The model.")],
    *,
    backend: Annotated[str, typer.Option(metavar="ID", help="The backend to examine.")] = "CpuAcc",
    reference: Annotated[str, typer.Option(metavar="ID", help="The backend to compare it with.")] = "CpuRef",
    image: ImageFile = None,
    input_: InputFiles = None,
    as_json: Json = False,
) -> None:
    """Run a model on two backends and show how much the results of each operation differ.

    Each backend gets a service of its own. Operations that the first backend does not support run on the reference. The
    model runs twice on each: unchanged, and with the results of all operations as outputs. The second run prevents
    fusion, so an engine may compute differently. The unchanged run shows the differences that clients see.

    Differences are in ULP for floating point, and in quantization steps otherwise.
    """
    from nnhal_tools.cli import inputs
    from nnhal_tools.cli.model import load_model

    loaded = load_model(model)
    arrays = inputs.with_initial_states(loaded, inputs.read_inputs(loaded, image, input_ or []))
    with make_progress() as progress:
        bar = progress.add_task("", total=2 * _BackendRuns.STEPS + 1)

        def begin(step: str) -> None:
            """Show a step. The bar counts the steps that have ended."""
            progress.update(bar, description=step, completed=next(ended))

        ended = count()
        examined = _BackendRuns(loaded, arrays, f"{backend},{reference}" if backend != reference else backend, begin)
        expected = _BackendRuns(loaded, arrays, reference, begin)
        begin("comparing")
        plain, inside = _plain_rows(loaded, examined, expected), _inside_rows(loaded, examined, expected)
    if as_json:
        print_json({"plain": plain, "inside": inside})
    else:
        _show(plain, inside)


class _BackendRuns:
    """Outputs of a model on a service with some backends, unchanged and with the results of all operations."""

    STEPS = 5
    """Number of steps that the constructor reports."""

    plain: "Outputs"
    inside: "Outputs"
    placement: "Placement"

    def __init__(
        self, model: "Model", arrays: "Sequence[AnyArray]", backends: str, begin: "Callable[[str], None]"
    ) -> None:
        from contextlib import closing

        import nnhal
        from nnhal.embedded import EmbeddedService
        from nnhal_tools.tensor_difference import expose_intermediates

        begin(f"{backends}: starting a service")
        with (
            closing(EmbeddedService("--backends", backends)) as service,
            nnhal.connect(service.target, timeout=CONNECT_S) as device,
        ):
            begin(f"{backends}: preparing")
            with device.prepare(model).result() as prepared:
                begin(f"{backends}: running")
                self.plain = prepared.execute(arrays)
            begin(f"{backends}: preparing, with all results")
            with device.prepare(expose_intermediates(model)).result() as prepared:
                begin(f"{backends}: running, with all results")
                self.inside, self.placement = prepared.execute(arrays), prepared.placement


def _plain_rows(model: "Model", examined: _BackendRuns, expected: _BackendRuns) -> list[dict[str, Any]]:
    """Return a row for each output of the unchanged model."""
    from nnhal_tools.cli.results import output_names
    from nnhal_tools.tensor_difference import measure_difference

    main = model.main
    names = output_names(model.output_names, len(main.output_indexes))
    return [
        {"output": name, **asdict(measure_difference(a, b, main.operands[o]))}
        for name, o, a, b in zip(names, main.output_indexes, examined.plain, expected.plain, strict=True)
    ]


def _inside_rows(model: "Model", examined: _BackendRuns, expected: _BackendRuns) -> list[dict[str, Any]]:
    """Return a row for each output of each operation, in order of execution."""
    from nnhal.types import operation_name
    from nnhal_tools.tensor_difference import expose_intermediates, measure_difference

    main = expose_intermediates(model).main
    position = {operand: i for i, operand in enumerate(main.output_indexes)}
    backends = {each.operation: each.backend for each in examined.placement.operations if each.subgraph == 0}
    origins = model.operation_names or ("",) * len(main.operations)
    return [
        {
            "operation": index,
            "type": operation_name(operation.type, model.extension_names),
            "origin": origin,
            "backend": backends[index],
            "shape": list(examined.inside[position[o]].shape),
            **asdict(measure_difference(examined.inside[position[o]], expected.inside[position[o]], main.operands[o])),
        }
        for index, (operation, origin) in enumerate(zip(main.operations, origins, strict=True))
        for o in operation.outputs
    ]


def _show(plain: list[dict[str, Any]], inside: list[dict[str, Any]]) -> None:
    console = make_console()
    table = make_table("", "operation", "backend", "shape", "max", "mean", "unit", right=("max", "mean"))
    for row in inside:
        shape = "x".join(map(str, row["shape"]))
        table.add_row(str(row["operation"]), row["type"], row["backend"], shape, *_cells(row))
    print_table(console, table)
    first = next((row for row in inside if row["maximum"] > 0), None)
    print_text(
        console,
        "with the results of all operations, which prevents fusion: "
        + (f"first difference at operation {first['operation']} ({first['type']})" if first else "no differences"),
    )
    for row in plain:
        text = f"max {row['maximum']:.6g}, mean {row['mean']:.3g} {row['unit']}" if row["maximum"] > 0 else "equal"
        print_text(console, f"unchanged, output {row['output']}: {text}")


def _cells(row: dict[str, Any]) -> list[str]:
    if not row["maximum"] > 0:
        return ["=", "", ""]
    return [f"{row['maximum']:.6g}", f"{row['mean']:.3g}", row["unit"]]
