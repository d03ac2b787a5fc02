"""Test vectors from records: conversion, choice for coverage, and reduction to the smallest model that differs."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nnhal import wire
from nnhal.errors import HalError
from nnhal.recording.archive import Archive, Record
from nnhal.recording.comparison import compare_outputs, tolerance_of
from nnhal.types import (
    AnyArray,
    DataLocation,
    Model,
    OperandLifeTime,
    OperandType,
    OperationType,
    Subgraph,
    SymmPerChannelQuantParams,
)
from nnhal_tools.conformance.reduce import reduce_case
from nnhal_tools.conformance.vectors.builtin.writer import CaseGraph, encode_array, make_case
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.replay.blame import Blame, ReferenceRun

if TYPE_CHECKING:
    from nnhal.client import Device

FOLDER = "recorded"
"""Folder of the vectors in their specs."""
_LIFETIMES = {OperandLifeTime.CONSTANT_POOL: "CONSTANT_REFERENCE"}
"""Names of lifetimes in vectors, unless they are those of the HAL."""
_RANGES = 4
"""Number of ranges of a tensor's values that count as different."""


class NoVectorError(Exception):
    """A model that the format of vectors cannot hold. The text says why."""


def case_of(name: str, model: Model, inputs: Sequence[AnyArray | None], outputs: Sequence[AnyArray | None]) -> Case:
    """Return a vector with the outputs of a model for given inputs. An output without a value is ignored.

    Raises:
        NoVectorError: the model has an extension.
    """
    graphs = [_graph(model, subgraph) for subgraph in model.subgraphs]
    main, operands = graphs[0], [model.main.operands[i] for i in model.main.output_indexes]
    values = [
        np.zeros(operand.dimensions, np.uint8) if value is None else value
        for operand, value in zip(operands, outputs, strict=True)
    ]
    ignored = [i for i, value in enumerate(outputs) if value is None]
    relaxed = model.relax_computation_float32_to_float16
    case = make_case(name, main, inputs, values, referenced=graphs[1:], ignored=ignored, relaxed=relaxed)
    for operand, output in zip(operands, case.data["outputs"], strict=True):
        output["atol"], output["rtol"] = tolerance_of(operand, relaxed=relaxed)
    return Case(case.data | {"spec": f"{FOLDER}/{name}", "folder": FOLDER})


def _graph(model: Model, subgraph: Subgraph) -> CaseGraph:
    """Return a subgraph in the format of vectors."""
    graph = CaseGraph()
    graph.inputs, graph.outputs = list(subgraph.input_indexes), list(subgraph.output_indexes)
    for operand in subgraph.operands:
        lifetime = OperandLifeTime(operand.lifetime)
        row: dict[str, Any] = {
            "type": _name(OperandType, operand.type),
            "dimensions": list(operand.dimensions),
            "scale": operand.scale,
            "zero_point": operand.zero_point,
            "lifetime": _LIFETIMES.get(lifetime, lifetime.name),
        }
        if "CONSTANT" in row["lifetime"]:
            row["data"] = encode_array(_constant(model, operand.lifetime, operand.location))
        elif lifetime is OperandLifeTime.SUBGRAPH:
            row["subgraph"] = operand.location.offset
        if isinstance(params := operand.extra_params, SymmPerChannelQuantParams):
            row["channel_quant"] = {"scales": list(params.scales), "channel_dim": params.channel_dim}
        graph.operands.append(row)
    for operation in subgraph.operations:
        graph.apply(_name(OperationType, operation.type), operation.inputs, operation.outputs)
    return graph


def _name(kind: type[OperandType] | type[OperationType], number: int) -> str:
    try:
        return kind(number).name
    except ValueError:
        raise NoVectorError("vectors have no extensions, and the model uses one") from None


def _constant(model: Model, lifetime: int, location: DataLocation) -> AnyArray:
    if lifetime == OperandLifeTime.CONSTANT_COPY:
        data: AnyArray = np.frombuffer(model.operand_values, np.uint8)
    else:
        data = model.pools[location.pool_index].view  # type: ignore[union-attr]
    return data[location.offset : location.offset + location.length]


def choose_records(archive: Archive) -> Iterator[tuple[Record, Model]]:
    """Yield the records, with their models, that each add something to those before: what `_features` tells.

    Records without values, of executions that failed, and of models that are lost are left out.
    """
    models: dict[str, Model] = {}
    seen: set[object] = set()
    for record in archive.records:
        if record.status != "ok" or not record.has_values:
            continue
        model = models[record.model] = models.get(record.model) or archive.model(record.model)
        features = set(_features(record, model))
        if features - seen:
            seen |= features
            yield record, model


def _features(record: Record, model: Model) -> Iterator[object]:
    """Yield what a record covers: its model, and of each tensor the shape and the range of its values."""
    values = [value for arrays in record.values() for value in arrays]
    yield record.model, tuple(value.shape if value is not None else None for value in values)
    for i, value in enumerate(values):
        if value is not None and value.size:
            yield record.model, i, "extremes", _range(value.min(), value), _range(value.max(), value)


def _range(value: Any, array: AnyArray) -> int:
    """Return the range of a value: a quarter of the type's, or the power of ten of a float."""
    if array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        return (int(value) - limits.min) * _RANGES // (limits.max - limits.min + 1)
    number = float(value)
    return int(np.sign(number)) * int(np.clip(np.log10(abs(number) + 1e-9) + 10, 0, 30)) if np.isfinite(number) else 99


def recorded_case(record: Record, model: Model) -> Case:
    """Return a record as a vector.

    Raises:
        NoVectorError: the model has an extension.
    """
    inputs, outputs = record.values()
    digest = hashlib.sha256(record.name.encode()).hexdigest()[:8]
    return case_of(f"{record.model[:12]}_{digest}", model, inputs, outputs)


def minimize(name: str, run: ReferenceRun, blame: Blame, device: "Device") -> Case:
    """Return the smallest vector found that differs on a device from the reference.

    Raises:
        NoVectorError: the model has an extension.
    """
    values = dict(zip(run.operands, run.values, strict=True))
    operation = run.model.main.operations[blame.operation]
    outputs = tuple(dict.fromkeys(o for o in (*operation.inputs, *operation.outputs) if o in values))
    operands = tuple(
        replace(operand, lifetime=_lifetime(i, operand.lifetime, outputs))
        for i, operand in enumerate(run.model.main.operands)
    )
    main = replace(run.model.main, operands=operands, output_indexes=outputs)
    case = case_of(name, replace(run.model, main=main), run.inputs, [values[o] for o in outputs])
    return reduce_case(case, lambda smaller: differs(device, smaller))


def _lifetime(number: int, lifetime: int, outputs: Sequence[int]) -> int:
    if number in outputs:
        return OperandLifeTime.SUBGRAPH_OUTPUT
    return OperandLifeTime.TEMPORARY_VARIABLE if lifetime == OperandLifeTime.SUBGRAPH_OUTPUT else lifetime


def differs(device: "Device", case: Case) -> bool:
    """Return whether a device runs a vector, with outputs outside of their tolerance."""
    model = wire.to_model(case.model())
    try:
        with device.prepare(model).result() as prepared:
            actual = [np.asarray(value) for value in prepared.execute(case.inputs)]
    except HalError:
        return False
    expected = [None if output.ignored else output.array for output in case.outputs]
    compared = compare_outputs(model, model.main.output_indexes, actual, expected)
    return any(not difference.is_allowed for difference in compared)
