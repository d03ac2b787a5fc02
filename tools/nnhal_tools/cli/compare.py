"""`nnhal compare`: the first operation of a model on which two backends differ."""

from dataclasses import asdict
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nnhal_tools.cli.console import make_console, make_progress, print_json, print_table, print_text
from nnhal_tools.cli.options import ImageFile, InputFiles, Json, SignatureKey
from nnhal_tools.cli.recording.devices import open_device, service_options
from nnhal_tools.tables import make_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from nnhal.client import Outputs
    from nnhal.types import AnyArray, Model, Placement


def compare(
    model: Annotated[Path, typer.Argument(metavar="MODEL.tflite", help="The model.")],
    *,
    backend: Annotated[str, typer.Option(metavar="ID", help="The backend to examine.")] = "CpuAcc",
    reference: Annotated[str, typer.Option(metavar="ID", help="The backend to compare it with.")] = "CpuRef",
    image: ImageFile = None,
    input_: InputFiles = None,
    signature: SignatureKey = None,
    as_json: Json = False,
) -> None:
    """Run a model on two backends and show how much the results of each operation differ.

    Each backend gets a service of its own. Operations that the first backend does not support run on the reference. The
    model runs twice on each: unchanged, and with the results of all operations as outputs. The second run prevents
    fusion, so an engine may compute differently. The unchanged run shows the differences that clients see.

    Differences are in ULP for floating point, in steps of quantized values, and in ones of other integers. The outputs
    are also compared with those of LiteRT, if it runs the file, and a verdict sums up.
    """
    from nnhal.cpu import available_cpus
    from nnhal_tools.bench.paths import open_engine
    from nnhal_tools.cli import inputs
    from nnhal_tools.cli.model import load_model

    loaded = load_model(model, signature=signature)
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
        plain = _plain_rows(loaded, examined.plain, expected.plain)
        engine = partial(open_engine, str(model), threads=available_cpus(), signature=signature)
        litert, problem = _litert_rows(engine, loaded, arrays, examined.plain)
        inside = _inside_rows(loaded, examined, expected)
    if as_json:
        verdict = _verdict(plain)
        print_json({"verdict": verdict, "plain": plain, "litert": litert, "litert_problem": problem, "inside": inside})
        return
    _show_inside(inside)
    console = make_console()
    _show_outputs(console, reference, plain)
    if problem:
        print_text(console, f"LiteRT cannot run the file, so it is not compared: {problem}")
    else:
        _show_outputs(console, "LiteRT", litert)


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
        from nnhal.recording.tensor_difference import expose_intermediates

        begin(f"{backends}: starting a service")
        with open_device(None, "", service_options(backends, None)) as device:
            begin(f"{backends}: preparing")
            with device.prepare(model).result() as prepared:
                begin(f"{backends}: running")
                self.plain = prepared.execute(arrays)
            begin(f"{backends}: preparing, with all results")
            with device.prepare(expose_intermediates(model)).result() as prepared:
                begin(f"{backends}: running, with all results")
                self.inside, self.placement = prepared.execute(arrays), prepared.placement


def _plain_rows(model: "Model", examined: "Sequence[AnyArray]", expected: "Sequence[AnyArray]") -> list[dict[str, Any]]:
    """Return a row for each output of the unchanged model."""
    from nnhal.recording.tensor_difference import measure_difference
    from nnhal_tools.cli.results import output_names

    names = output_names(model.output_names, len(model.outputs))
    differences = [measure_difference(*pair) for pair in zip(examined, expected, model.outputs, strict=False)]
    return [
        {"output": name, **asdict(difference), "is_rounding": difference.is_rounding}
        for name, difference in zip(names, differences, strict=False)
    ]


def _litert_rows(
    open_engine: "Callable[[Sequence[AnyArray]], Callable[[], list[AnyArray]]]",
    model: "Model",
    arrays: "Sequence[AnyArray]",
    examined: "Sequence[AnyArray]",
) -> tuple[list[dict[str, Any]], str]:
    """Return the rows of the outputs compared with those of LiteRT, or why there are none."""
    try:  # the file's own inputs come first, and then its states
        outputs = open_engine(arrays[: len(arrays) - len(model.states)])()
    except (ValueError, RuntimeError) as error:
        return [], " ".join(str(error).split())
    typed = [
        output.astype(own.dtype).reshape(own.shape) if output.size == own.size else output
        for output, own in zip(outputs, examined, strict=False)
    ]
    return _plain_rows(model, examined, typed), ""


def _verdict(rows: list[dict[str, Any]]) -> str:
    """Return what the outputs are: "equal", "equal up to rounding", or "different"."""
    if all(row["maximum"] == 0 for row in rows):
        return "equal"
    return "equal up to rounding" if all(row["is_rounding"] for row in rows) else "different"


def _inside_rows(model: "Model", examined: _BackendRuns, expected: _BackendRuns) -> list[dict[str, Any]]:
    """Return a row for each output of each operation, in order of execution."""
    from nnhal.recording.tensor_difference import expose_intermediates, measure_difference
    from nnhal.types import operation_name

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


def _show_inside(inside: list[dict[str, Any]]) -> None:
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


def _show_outputs(console: "Console", other: str, rows: list[dict[str, Any]]) -> None:
    """Print how the outputs of the unchanged model differ from others, and the verdict."""
    print_text(console, f"unchanged, compared with {other}: {_verdict(rows)}")
    for row in rows:
        text = "equal"
        if row["maximum"] > 0:
            text = f"{row['share']:.2%} of the elements differ: max {row['maximum']:.6g}, mean {row['mean']:.3g} "
            text += f"{row['unit']}; absolute error {row['absolute']:.3g} ({row['relative']:.2%} of the largest value)"
        print_text(console, f"unchanged, output {row['output']}: {text}")


def _cells(row: dict[str, Any]) -> list[str]:
    if not row["maximum"] > 0:
        return ["=", "", ""]
    return [f"{row['maximum']:.6g}", f"{row['mean']:.3g}", row["unit"]]
