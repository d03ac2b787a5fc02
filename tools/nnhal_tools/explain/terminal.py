"""An explanation for a terminal: totals, the operators that are not direct, and the tables of operations."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from nnhal_tools.explain.explanation import Explanation, backend_text, between_text, time_text
from nnhal_tools.explain.imported import group_operators, short_origin, tensor_text
from nnhal_tools.explain.model_explanation import ModelExplanation, become_text

_SUBMODEL = "SUBMODEL_BYTES"


def title_lines(name: str, explanation: ModelExplanation) -> list[str]:
    """Return the totals, and the inputs and outputs of the model."""
    totals, *more = explanation.summary()
    imported = explanation.imported
    ends = [("input", row) for row in imported.inputs] + [("output", row) for row in imported.outputs]
    return [f"{name}: {totals}", *more, *(f"{kind} {tensor_text(row)}" for kind, row in ends)]


def operators_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return what became of operators of the file. Similar ones share a row."""
    table = Table("operators", "", "outcome", "became", "why")
    for row in group_operators(rows):
        # the operations of a group would need a list of their own
        became = become_text(row if row["count"] == 1 else {**row, "operations": []})
        table.add_row(row["numbers"], row["name"], row["outcome"], became, row["reason"])
    return table


def operations_table(placed: Explanation, *, narrow: bool) -> Table:
    """Return the operations of the model, with the backends and the reasons.

    In narrow terminals, operators of the file are below operations, and outputs below inputs.
    """
    timed = any("time_us" in row for row in placed.partitions)
    headings = ["", "operation\noperator of the file", "first input\noutput"]
    if not narrow:
        headings = ["", "operator of the file", "operation", "first input", "output"]
    table = Table(*headings, "backend", *(["time"] * timed), show_lines=narrow)
    for row in placed.operations:
        origin = short_origin(row["origin"])
        inputs = [text for text in row["inputs"] if not text.startswith(_SUBMODEL)]
        # without blanks, because lines may end at blanks
        first, last = ((operands or [""])[0].replace(", ", ",") for operands in (inputs, row["outputs"]))
        names = [f"{row['type']}\n{origin}", f"{first}\n{last}"] if narrow else [origin, row["type"], first, last]
        backend = "\n".join(_backend_lines(row))
        table.add_row(str(row["operation"]), *names, backend, *([time_text(row)] * timed))
    return table


def _backend_lines(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the backend of an operation, and the reasons why it does not run on another one."""
    yield backend_text(row)
    for refusal in row["refusals"]:
        yield f"{refusal['backend']}: {refusal['reason']}"
        if refusal["nearest"]:
            yield f"nearest supported: {refusal['nearest']}"


def partitions_table(placed: Explanation) -> Table:
    """Return the partitions, with their times."""
    timed = any("time_us" in row for row in placed.partitions)
    table = Table("partition", "subgraph", "backend", "operations", *(["time", "between operations"] * timed))
    for row in placed.partitions:
        types = ", ".join(f"{count} {type_}" for type_, count in row["types"].items())
        subgraph = "main" if row["subgraph"] == 0 else f"referenced {row['subgraph'] - 1}"
        times = [time_text(row), between_text(row)] if timed else []
        table.add_row(str(row["partition"]), subgraph, backend_text(row), types, *times)
    return table
