"""A model and its placement as rows, of partitions and of the operations of main: for tables, JSON and the page."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnhal.types import (
    Model,
    Operand,
    OperationPlacement,
    Placement,
    Span,
    SpanKind,
    operation_name,
    type_name,
)


@dataclass(frozen=True)
class Explanation:
    """Rows, as JSON has them.

    Attributes:
        partitions: in order of execution: subgraph, backend, operations, names of their types with counts.
        operations: of main, in the model's order: where it comes from in the file, inputs and outputs, the backend, the
            partition, and for each backend that refused it the reason and the nearest signature that it takes.

    Where the model was run, rows have `time_us` and `share` as well: of an operation only where its backend tells of
    single operations. `share` is the part of all that main's partitions took.
    """

    partitions: list[dict[str, Any]]
    operations: list[dict[str, Any]]

    def as_json(self) -> dict[str, Any]:
        """Both tables."""
        return {"partitions": self.partitions, "operations": self.operations}

    @property
    def is_complete(self) -> bool:
        """Whether some backend takes each operation."""
        return all(row["backend"] for row in self.operations)


def explanation(model: Model, placement: Placement) -> Explanation:
    """Puts the rows together."""
    types = {(one.subgraph, one.operation): one.type for one in placement.operations}
    homes = {
        (one.subgraph, operation): index
        for index, one in enumerate(placement.partitions)
        for operation in one.operations
    }
    partitions = [
        {
            "partition": index,
            "subgraph": one.subgraph,
            "backend": one.backend,
            "operations": list(one.operations),
            "types": _counted([operation_name(types[one.subgraph, operation]) for operation in one.operations]),
        }
        for index, one in enumerate(placement.partitions)
    ]
    return Explanation(partitions, _operations(model, placement, homes))


def add_times(explained: Explanation, spans: Sequence[Span]) -> None:
    """Adds to the rows what was measured in one execution, runs of one partition summed up."""
    took: dict[tuple[int, int, tuple[int, ...]], int] = defaultdict(int)
    for span in spans:
        took[span.kind, span.subgraph, span.operations] += span.duration_ns
    whole = sum(ns for (kind, subgraph, _), ns in took.items() if kind == SpanKind.PARTITION and subgraph == 0)
    for row in explained.partitions:
        _add_time(row, took.get((SpanKind.PARTITION, row["subgraph"], tuple(row["operations"]))), whole)
    for row in explained.operations:
        alone = (
            len(explained.partitions[row["partition"]]["operations"]) == 1 if row["partition"] is not None else False
        )
        kind = SpanKind.PARTITION if alone else SpanKind.OPERATION
        _add_time(row, took.get((kind, 0, (row["operation"],))), whole)


def _add_time(row: dict[str, Any], took_ns: int | None, whole_ns: int) -> None:
    if took_ns is not None and whole_ns:
        row["time_us"] = took_ns / 1e3
        row["share"] = took_ns / whole_ns


def time_text(row: Mapping[str, Any]) -> str:
    """The time of a row for people, "" where it has none."""
    return f"{row['time_us']:,.1f} µs ({row['share']:.1%})" if "time_us" in row else ""


def _operations(model: Model, placement: Placement, homes: Mapping[tuple[int, int], int]) -> list[dict[str, Any]]:
    placed = [operation for operation in placement.operations if operation.subgraph == 0]
    origins = model.operation_names or ("",) * len(placed)
    operands = model.main.operands
    return [
        {
            "operation": index,
            "type": operation_name(operation.type),
            "origin": origin,
            "inputs": [described(operands[i]) for i in operation.inputs if operands[i].dimensions],
            "outputs": [described(operands[i]) for i in operation.outputs],
            "backend": where.backend,
            "partition": homes.get((0, index)),
            "refusals": _refusals(where),
        }
        for index, (origin, operation, where) in enumerate(zip(origins, model.main.operations, placed, strict=True))
    ]


def described(operand: Operand) -> str:
    """Type and shape."""
    return f"{type_name(operand.type)} {list(operand.dimensions)}"


def _refusals(where: OperationPlacement) -> list[dict[str, str]]:
    return [{"backend": one.backend, "reason": one.reason, "nearest": one.nearest} for one in where.refusals]


def _counted(names: list[str]) -> dict[str, int]:
    return {name: names.count(name) for name in dict.fromkeys(names)}
