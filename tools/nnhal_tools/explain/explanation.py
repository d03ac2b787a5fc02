"""A model and its placement as rows of partitions and of operations, for tables, JSON and the HTML page."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnhal import litert_extension
from nnhal.client.fallback.placement import FallbackPlacement, OperationSide, PartitionSide
from nnhal.types import Model, Operand, Placement, Span, SpanKind, operation_name, type_name
from nnhal_tools.explain.times import RunTimes, partition_times


@dataclass(frozen=True)
class Explanation:
    """Rows in the form of the JSON output.

    If the model was run, rows also have `time_us` and `share`, the share in the time of all partitions of main. Rows of
    operations have them only if the backend measures single operations. The row of their partition then has
    `between_us`, the time between them.

    Attributes:
        partitions: the partitions in order of execution: subgraph, backend, operations, and the count of each type.
        operations: the operations of main in the model's order: origin in the file, inputs, outputs, backend,
            partition, and for each backend that does not support it the reason and the nearest supported signature.
        times: times of the whole run, if the model was run.
        fallback: if the client's machine runs a part, the number of parts, the bytes of intermediate results that cross
            per execution, and a summary; otherwise None.
    """

    partitions: list[dict[str, Any]]
    operations: list[dict[str, Any]]
    times: RunTimes | None = None
    fallback: dict[str, Any] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return both tables, the fallback, and the times of the run."""
        tables: dict[str, Any] = {
            "totals": {"operations": len(self.operations), "backends": self.backends, "fallback": self.fallback_count},
            "partitions": self.partitions,
            "operations": self.operations,
            "fallback": self.fallback,
        }
        return tables if self.times is None else tables | {"run": self.times.as_json()}

    @property
    def backends(self) -> dict[str, int]:
        """Number of operations by backend. Operations without a backend are under "not supported"."""
        return dict(Counter(backend_text(row) for row in self.operations))

    @property
    def fallback_count(self) -> int:
        """Number of operations that the client's machine runs."""
        return sum(row["is_fallback"] for row in self.operations)

    @property
    def is_complete(self) -> bool:
        """True if every operation has a backend."""
        return all(row["backend"] for row in self.operations)


def build_explanation(model: Model, placement: Placement) -> Explanation:
    """Return the explanation of a model and its placement."""
    types = {(each.subgraph, each.operation): each.type for each in placement.operations}
    partition_of = {
        (partition.subgraph, operation): index
        for index, partition in enumerate(placement.partitions)
        for operation in partition.operations
    }
    partitions = [
        {
            "partition": index,
            "subgraph": partition.subgraph,
            "backend": partition.backend,
            "is_fallback": isinstance(partition, PartitionSide) and partition.is_fallback,
            "operations": list(partition.operations),
            "types": Counter(
                operation_name(types[partition.subgraph, o], model.extension_names) for o in partition.operations
            ),
        }
        for index, partition in enumerate(placement.partitions)
    ]
    return Explanation(partitions, _operation_rows(model, placement, partition_of), fallback=_fallback(placement))


def _fallback(placement: Placement) -> dict[str, Any] | None:
    if not isinstance(placement, FallbackPlacement):
        return None
    parts = [{"operations": list(part.operations), "is_fallback": part.is_fallback} for part in placement.parts]
    return {"parts": parts, "crossing_bytes": placement.crossing_bytes, "summary": placement.summary}


def add_times(explanation: Explanation, spans: Sequence[Span]) -> None:
    """Add the times of one execution to the rows. Repeated runs of a partition are summed up."""
    between_ns: dict[tuple[int, ...], int] = defaultdict(int)
    for times in partition_times(spans):
        between_ns[times.operations] += times.between_ns
    durations_ns: dict[tuple[int, int, tuple[int, ...]], int] = defaultdict(int)
    for span in spans:
        durations_ns[span.kind, span.subgraph, span.operations] += span.duration_ns
    total_ns = sum(
        ns for (kind, subgraph, _), ns in durations_ns.items() if kind == SpanKind.PARTITION and subgraph == 0
    )
    for row in explanation.partitions:
        _add_time(row, durations_ns.get((SpanKind.PARTITION, row["subgraph"], tuple(row["operations"]))), total_ns)
        if row["subgraph"] == 0 and (between := between_ns[tuple(row["operations"])]):
            row["between_us"] = between / 1e3
    for row in explanation.operations:
        single = (row["operation"],)
        alone_ns = durations_ns.get((SpanKind.PARTITION, 0, single))
        _add_time(row, durations_ns.get((SpanKind.OPERATION, 0, single), alone_ns), total_ns)


def _add_time(row: dict[str, Any], duration_ns: int | None, total_ns: int) -> None:
    if duration_ns is not None and total_ns:
        row["time_us"] = duration_ns / 1e3
        row["share"] = duration_ns / total_ns


def time_text(row: Mapping[str, Any]) -> str:
    """Return the time of a row as text, or "" if it was not measured."""
    return f"{row['time_us']:,.1f} µs ({row['share']:.1%})" if "time_us" in row else ""


def backend_text(row: Mapping[str, Any]) -> str:
    """Return the backend of a row as text."""
    return f"{row['backend'] or 'not supported'}{' (this machine)' if row['is_fallback'] else ''}"


def between_text(row: Mapping[str, Any]) -> str:
    """Return the time of a partition that belongs to none of its operations as text, or "" if none was measured."""
    return f"{row['between_us']:,.1f} µs" if "between_us" in row else ""


def _operation_rows(
    model: Model, placement: Placement, partition_of: Mapping[tuple[int, int], int]
) -> list[dict[str, Any]]:
    placements = [operation for operation in placement.operations if operation.subgraph == 0]
    origins = model.operation_names or ("",) * len(placements)
    operands = model.main.operands
    names = model.extension_names
    types = _extension_types(model)
    return [
        {
            "operation": index,
            "type": operation_name(operation.type, names),
            "origin": origin,
            "inputs": [operand_text(operands[i], types) for i in operation.inputs if operands[i].dimensions],
            "outputs": [operand_text(operands[i], types) for i in operation.outputs],
            "backend": placed.backend,
            "is_fallback": isinstance(placed, OperationSide) and placed.is_fallback,
            "partition": partition_of.get((0, index)),
            "refusals": [
                {key: getattr(each, key) for key in ("backend", "reason", "nearest")} for each in placed.refusals
            ],
        }
        for index, (origin, operation, placed) in enumerate(
            zip(origins, model.main.operations, placements, strict=True)
        )
    ]


def _extension_types(model: Model) -> dict[int, str]:
    """Return names of the operand types of the LiteRT extension, by type."""
    prefixes = [prefix for prefix, name in model.extension_names.items() if name == litert_extension.NAME]
    files = {prefix << 16 | litert_extension.SUBMODEL_BYTES: "SUBMODEL_BYTES" for prefix in prefixes}
    dtypes = litert_extension.element_dtypes(model.extension_name_to_prefix)
    return files | {type_: f"{dtype} of {litert_extension.NAME}" for type_, dtype in dtypes.items()}


def operand_text(operand: Operand, names: Mapping[int, str]) -> str:
    """Return the type and shape of an operand. `names`: those of types of extensions."""
    return f"{names.get(operand.type) or type_name(operand.type)} {list(operand.dimensions)}"
