"""The import of a file as rows, for tables, JSON and the page: what became of each operator, tensors and options."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from nnhal.client.core.arrays import TensorInfo, has_fixed_shape
from nnhal.litert_extension import element_dtypes
from nnhal.tflite.graph import TYPE_NAMES, Operator, Tensor, TfliteGraph
from nnhal.tflite.report import EXPLANATIONS, ImportOutcome, ImportReport, OperatorReport
from nnhal.tflite_schema import ActivationFunctionType, Padding, TensorType
from nnhal.tflite_schema.enumerations import (
    CombinerType,
    FullyConnectedOptionsWeightsFormat,
    LSTMKernelType,
    MirrorPadMode,
)
from nnhal.tflite_schema.shapes.rule import UNKNOWN_RANK
from nnhal.types import Model

_MAX_ELEMENTS = 16
"""Longest option that is shown completely."""


_ENUMS: dict[str, type[IntEnum]] = {
    "combiner": CombinerType,
    "fused_activation_function": ActivationFunctionType,
    "in_data_type": TensorType,
    "kernel_type": LSTMKernelType,
    "mode": MirrorPadMode,
    "out_data_type": TensorType,
    "out_type": TensorType,
    "output_type": TensorType,
    "padding": Padding,
    "quantized_bias_type": TensorType,
    "weights_format": FullyConnectedOptionsWeightsFormat,
}
"""Types of the values of options, by the option's name in the schema."""


@dataclass(frozen=True)
class ImportedFile:
    """Rows in the form of the JSON output.

    Attributes:
        inputs: the model's inputs: name, type, shape and quantization, and whether it holds a variable.
        operators: for each operator of the file its name, outcome, NNAPI operations, reason, tensors and options.
        regions: number of regions of the LiteRT extension.
        problem: why the file cannot be imported, or "".
    """

    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    operators: list[dict[str, Any]]
    regions: int
    problem: str

    @property
    def totals(self) -> dict[str, int]:
        """Number of operators by outcome."""
        outcomes = [row["outcome"] for row in self.operators]
        return {outcome.value: outcomes.count(outcome) for outcome in ImportOutcome if outcome in outcomes}

    @property
    def others(self) -> list[dict[str, Any]]:
        """Rows of the operators that are not direct."""
        return [row for row in self.operators if row["outcome"] != ImportOutcome.DIRECT]

    def as_json(self) -> dict[str, Any]:
        """Return the rows and the totals."""
        return {"totals": self.totals, **asdict(self)}


def describe_import(report: ImportReport, model: Model | None) -> ImportedFile:
    """Return the rows of an import. There is no model if the file cannot be imported."""
    graph = report.graph
    names, states = (model.operation_names, model.states) if model is not None else ((), ())
    return ImportedFile(
        _io_rows(graph, graph.inputs, {state.input_index for state in states}, _client_rows(model, "inputs")),
        _io_rows(graph, graph.outputs, {state.output_index for state in states}, _client_rows(model, "outputs")),
        [_operator_row(each, graph, names) for each in report.operators],
        report.regions,
        _problem(report),
    )


def _io_rows(
    graph: TfliteGraph, indexes: Sequence[int], states: Collection[int], client_rows: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the rows of inputs or outputs, with what clients see of them if the file can be imported."""
    rows = [tensor_row(graph.tensors[index]) | {"is_state": i in states} for i, index in enumerate(indexes)]
    return [row | client for row, client in zip(rows, client_rows or [{}] * len(rows), strict=False)]


def _client_rows(model: Model | None, side: str) -> list[dict[str, Any]]:
    """Return the dtype of each input or output for clients, and whether its shape depends on the execution."""
    if model is None:
        return []
    dtypes = element_dtypes(model.extension_name_to_prefix)
    operands = model.inputs if side == "inputs" else model.outputs
    return [
        {
            "dtype": str(info.dtype),
            "is_dynamic": side == "outputs" and not has_fixed_shape(info),
        }
        for info in TensorInfo.all_of(operands, (), dtypes)
    ]


def _problem(report: ImportReport) -> str:
    """Return why a file cannot be imported, or ""."""
    count = report.totals.get(ImportOutcome.REFUSED, 0)
    refused = f"{count} operator{'s are' if count > 1 else ' is'} refused" if count else ""
    return "; ".join(filter(None, (report.problem, refused)))


def _operator_row(report: OperatorReport, graph: TfliteGraph, operation_names: Sequence[str]) -> dict[str, Any]:
    operator = report.operator
    return {
        "operator": operator.index if operator.index >= 0 else None,
        "name": operator.name,
        "version": operator.version,
        "outcome": report.outcome.value,
        "types": list(report.operations),
        "operations": _operations(report, operation_names),
        "reason": report.reason or EXPLANATIONS[report.outcome],
        "inputs": [tensor_row(graph.tensors[index]) if index >= 0 else None for index in operator.inputs],
        "outputs": [tensor_row(graph.tensors[index]) for index in operator.outputs],
        "options": dict(_options(operator)),
    }


def _operations(report: OperatorReport, operation_names: Sequence[str]) -> list[int]:
    """Return the positions of the operations that an operator became, by the origins of the operations."""
    name = str(report.operator)
    if report.outcome == ImportOutcome.EXTENSION:
        return [i for i, origin in enumerate(operation_names) if is_region(origin) and name in origin]
    return [i for i, origin in enumerate(operation_names) if origin == name]


def is_region(origin: str) -> bool:
    """Return whether an operation whose origin is given is a region of the LiteRT extension."""
    return origin.startswith("region of ")


def short_origin(origin: str) -> str:
    """Return the origin of an operation, with many operators of a region as their numbers: "region of 0-3, 7"."""
    numbers = [int(number) for number in re.findall(r"operator (\d+) \(", origin)]
    return f"region of operators {number_ranges(numbers)}" if is_region(origin) and len(numbers) > 1 else origin


def number_ranges(numbers: Iterable[int]) -> str:
    """Return numbers in ascending order as text, with ranges: "0-3, 7"."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


# ---- Tensors and options --------------------------------------------------------------------------------


def tensor_row(tensor: Tensor) -> dict[str, Any]:
    """Return the row of a tensor."""
    row: dict[str, Any] = {
        "tensor": tensor.index,
        "name": tensor.name,
        "type": TYPE_NAMES.get(tensor.type, str(tensor.type)),
        "shape": None if tensor.shape == UNKNOWN_RANK else list(tensor.shape),
        "constant": tensor.is_constant,
    }
    if tensor.scales:
        row["scales"], row["zero_points"] = list(tensor.scales), list(tensor.zero_points)
        if len(tensor.scales) > 1:
            row["axis"] = tensor.quantized_dimension
    return row


def quantization_text(row: Mapping[str, Any]) -> str:
    """Return the quantization of a tensor's row as text, or ""."""
    scales, zero_points = row.get("scales", ()), row.get("zero_points", ())
    if not scales:
        return ""
    low, high = (f"{value:.6g}" for value in (min(scales), max(scales)))
    points = sorted(set(zero_points)) or [0]
    zero = f"zero point {points[0]}" if len(points) == 1 else f"zero points {points[0]} to {points[-1]}"
    if len(scales) == 1:
        return f"scale {low}, {zero}"
    return f"{len(scales)} scales from {low} to {high} along axis {row['axis']}, {zero}"


def tensor_text(row: Mapping[str, Any]) -> str:
    """Return the name, type, shape and quantization of a tensor's row."""
    name = f"{row['name']}: " if row["name"] else ""
    kind = ", constant" if row["constant"] else ", state" if row.get("is_state") else ""
    quantization = quantization_text(row)
    shape = "of unknown rank" if row["shape"] is None else row["shape"]
    client = f", {row['dtype']} for clients" if row.get("dtype", row["type"].lower()) != row["type"].lower() else ""
    dynamic = "; warning: the shape is known only at run time" if row.get("is_dynamic") else ""
    return f"{name}{row['type']} {shape}{kind}{f', {quantization}' if quantization else ''}{client}{dynamic}"


def _options(operator: Operator) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of options, with the names of enumerations."""
    for name, value in operator.options.items():
        if value is not None:
            yield name, _option_value(name, value)
    if operator.custom_options:
        yield "custom_options", f"{len(operator.custom_options)} bytes"


def _option_value(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value) if len(value) <= _MAX_ELEMENTS else f"{len(value)} elements"
    enum = _ENUMS.get(name)
    return enum(value).name if enum is not None and value in iter(enum) else value


# ---- Groups ---------------------------------------------------------------------------------------------


def group_operators(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of operators with the same name, outcome, operations and reason as one row, with their numbers."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        key = (row["name"], row["outcome"], tuple(row["types"]), row["reason"], row["operator"] is None)
        groups.setdefault(key, []).append(row)
    return [{**members[0], "numbers": _numbers(members), "count": len(members)} for members in groups.values()]


def _numbers(rows: Sequence[Mapping[str, Any]]) -> str:
    return number_ranges(row["operator"] for row in rows if row["operator"] is not None) or "added"
