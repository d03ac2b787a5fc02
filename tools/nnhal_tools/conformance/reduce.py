"""Reduction of a failing vector to the smallest model that still fails.

It tries simplifications, large ones first, and keeps each one with which the case still fails, until none is left:

1. Remove operations that no output needs.
2. Replace an operation's input that is also an output of main by the vector's value of it, as a new input. The
   operation then no longer depends on the operation that computes that value.
3. Bypass an ADD of zero.
4. Remove outputs, and with them the operations, operands and referenced subgraphs that only they needed.
5. Replace the batch by one of its rows, if each row is computed independently.
6. Make inputs constants, except for one, because a model has at least one input.

A model cannot be cut elsewhere, because the vector does not hold the values of temporaries. A chain of operations with
outputs only at its end stays whole. Subgraphs of IF and WHILE are kept or removed as a whole. After simplification 2 an
output may differ from the vector's by the rounding of the value that is now an input.
"""

import base64
import gzip
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from nnhal.operations import SIGNATURES
from nnhal.types import DTYPES, OperandType, OperationType
from nnhal_tools.conformance.check import Result, Status
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.registry import VECTOR_CHECKS
from nnhal_tools.conformance.runner import TargetConfig
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.signed_variant import signed_variant

SUITE = "generated"
"""The suite whose failures are reduced."""

LIMIT_S = 60.0
"""Time after which no further simplification of a vector is tried."""

SUFFIX = "_reduced"
"""Suffix of the name of a reduced case."""

Json = dict[str, Any]
StillFails = Callable[[Case], bool]


def write_reduced(
    folder: Path, config: TargetConfig, cases: Sequence[Case], results: Sequence[Result]
) -> Iterator[Path]:
    """Reduce each vector that failed in the suite `generated`, write it as a vector file, and yield its path.

    The folder is created if it does not exist.

    Raises:
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    failures = {result.name: result for result in results if result.suite == SUITE and result.status is Status.FAILED}
    with config.open() as target:
        for case in chain.from_iterable(filter(None, (case, signed_variant(case))) for case in cases):
            if result := failures.get(case.name):
                path = folder / (re.sub(r"[^\w.-]+", "_", case.name) + ".jsonl.gz")
                write_case(path, _reduce_failure(target, case, result))
                yield path


def _reduce_failure(target: Target, case: Case, result: Result) -> Case:
    target.paths = (result.path,)  # the other paths would only take time

    def still_fails(smaller: Case) -> bool:
        outcomes = VECTOR_CHECKS[SUITE].body(target, smaller)
        return any(outcome.check == result.check and outcome.path == result.path for outcome in outcomes)

    return reduce_case(case, still_fails)


def reduce_case(case: Case, still_fails: StillFails) -> Case:
    """Return the smallest case found that still fails, or the case itself.

    A case that must fail, or whose output is random, is returned unchanged, because its outputs are not expectations.

    Args:
        case: the case to reduce.
        still_fails: returns whether a case fails by the same check. A device that rejects a smaller model for another
            reason must not count.
    """
    if case.expect_failure or case.multinomial_tolerance is not None:
        return case
    deadline = time.monotonic() + LIMIT_S
    smallest, previous = case, None
    while smallest is not previous:
        previous = smallest
        for simplify in _SIMPLIFICATIONS:
            smallest = _repeat(simplify, smallest, still_fails, deadline)
    if smallest is case:
        return case
    return Case(smallest.data | {"name": case.name + SUFFIX})


def write_case(path: Path, case: Case) -> None:
    """Write a vector file with one case. The same case gives the same bytes.

    Raises:
        ValueError: the path does not end in .jsonl.gz, the suffix of vector files.
        OSError: the file cannot be written.
    """
    if not path.name.endswith(".jsonl.gz"):
        raise ValueError(f"invalid vector file name {path}: expected the suffix .jsonl.gz")
    path.write_bytes(gzip.compress(json.dumps(case.data).encode("ascii") + b"\n", mtime=0))


@dataclass(frozen=True)
class _CaseModel:
    """Main subgraph of a case, with the values of its inputs and outputs.

    Each input has the index of the operand and its DATA, None if it is omitted; each output has its EXPECTED.
    """

    operands: Sequence[Json]
    operations: Sequence[Json]
    inputs: Sequence[tuple[int, Json | None]]
    outputs: Sequence[tuple[int, Json]]


Simplification = Callable[[_CaseModel], Iterator[_CaseModel]]
"""Yields models that are each smaller than its argument, so that repeating it ends."""


def _repeat(simplify: Simplification, case: Case, still_fails: StillFails, deadline: float) -> Case:
    """Return the case after applying a simplification as often as the case still fails."""
    candidates = simplify(_model_of(case))
    while (model := next(candidates, None)) is not None and time.monotonic() < deadline:
        candidate = _case_with(case, model)
        if candidate is not None and still_fails(candidate):
            case = candidate
            candidates = simplify(_model_of(case))
    return case


def _model_of(case: Case) -> _CaseModel:
    main = case.data["model"]["main"]
    return _CaseModel(
        main["operands"],
        main["operations"],
        list(zip(main["inputs"], case.data["inputs"], strict=True)),
        list(zip(main["outputs"], case.data["outputs"], strict=True)),
    )


def _case_with(case: Case, model: _CaseModel) -> Case | None:
    """Return the case with this model, without anything that no output needs. Return None if no input is left."""
    operations, needed = _needed(model)
    inputs = [(i, value) for i, value in model.inputs if i in needed]
    if not inputs:
        return None
    lifetimes = dict.fromkeys(chain.from_iterable(o["outputs"] for o in operations), "TEMPORARY_VARIABLE")
    lifetimes |= dict.fromkeys((i for i, _ in model.outputs), "SUBGRAPH_OUTPUT")
    lifetimes |= dict.fromkeys((i for i, _ in inputs), "SUBGRAPH_INPUT")
    kept = sorted(needed | lifetimes.keys())
    new_index = {old: new for new, old in enumerate(kept)}
    operands = [model.operands[i] | ({"lifetime": lifetimes[i]} if i in lifetimes else {}) for i in kept]
    main = {
        "operands": operands,
        "operations": [
            o | {"inputs": [new_index[i] for i in o["inputs"]], "outputs": [new_index[i] for i in o["outputs"]]}
            for o in operations
        ],
        "inputs": [new_index[i] for i, _ in inputs],
        "outputs": [new_index[i] for i, _ in model.outputs],
    }
    graphs = _reachable([main, *case.data["model"]["referenced"]])
    changes = {
        "model": case.data["model"] | {"main": graphs[0], "referenced": graphs[1:]},
        "inputs": [value for _, value in inputs],
        "outputs": [value for _, value in model.outputs],
    }
    return Case(case.data | changes)


def _needed(model: _CaseModel) -> tuple[list[Json], set[int]]:
    """Return the operations that outputs need, in order, and the operands that these and the outputs use."""
    needed = {i for i, _ in model.outputs}
    operations: list[Json] = []
    for operation in reversed(model.operations):
        if needed & set(operation["outputs"]):
            operations.insert(0, operation)
            needed |= set(operation["inputs"])
    return operations, needed


def _reachable(graphs: Sequence[Json]) -> list[Json]:
    """Return main, which is first, and the referenced subgraphs that it still reaches, with their new indexes."""
    reached, pending = {0}, [0]
    while pending:
        for operand in graphs[pending.pop()]["operands"]:
            if operand["lifetime"] == "SUBGRAPH" and operand["subgraph"] + 1 not in reached:
                reached.add(operand["subgraph"] + 1)
                pending.append(operand["subgraph"] + 1)
    if len(reached) == len(graphs):
        return list(graphs)
    kept = sorted(reached)
    new_index = {old - 1: new - 1 for new, old in enumerate(kept)}
    return [
        graphs[i] | {"operands": [_renumber(operand, new_index) for operand in graphs[i]["operands"]]} for i in kept
    ]


def _renumber(operand: Json, new_index: dict[int, int]) -> Json:
    if operand["lifetime"] != "SUBGRAPH":
        return operand
    return operand | {"subgraph": new_index[operand["subgraph"]]}


def _without_unneeded(model: _CaseModel) -> Iterator[_CaseModel]:
    """Simplification 1. _case_with does the work."""
    operations, needed = _needed(model)
    if len(operations) < len(model.operations) or any(i not in needed for i, _ in model.inputs):
        yield model


def _with_known_values(model: _CaseModel) -> Iterator[_CaseModel]:
    """Simplification 2, for one output of main at a time."""
    for i, expected in model.outputs:
        if not _is_read(model, i) or expected["ignored"] or prod(expected["dimensions"]) == 0:
            continue
        value = {key: expected[key] for key in ("dimensions", "data")}
        operand = model.operands[i] | {"dimensions": expected["dimensions"]}
        redirected = _redirect_reads(model, i, len(model.operands))
        inputs = [*model.inputs, (len(model.operands), value)]
        yield replace(redirected, operands=[*model.operands, operand], inputs=inputs)


def _without_neutral(model: _CaseModel) -> Iterator[_CaseModel]:
    """Simplification 3, for one ADD at a time."""
    for operation in model.operations:
        result = operation["outputs"][0]
        source = _source_of_zero_add(model.operands, operation)
        if source is not None and _is_read(model, result):
            yield _redirect_reads(model, result, source)


def _source_of_zero_add(operands: Sequence[Json], operation: Json) -> int | None:
    """Return the operand that an ADD of zero copies. Return None for another operation."""
    if operation["type"] != "ADD" or not _is_zero(operands[operation["inputs"][2]]):
        return None
    first, second = map(int, operation["inputs"][:2])
    result = operands[operation["outputs"][0]]
    for source, zero in ((first, second), (second, first)):
        same_type = all(operands[source][key] == result[key] for key in ("type", "dimensions", "scale", "zero_point"))
        if _is_zero(operands[zero]) and same_type:
            return source
    return None


def _is_zero(operand: Json) -> bool:
    """Return whether an operand is a constant whose real values are all 0."""
    if "data" not in operand:
        return False
    values = np.frombuffer(base64.b64decode(operand["data"]), DTYPES[OperandType[operand["type"]]])
    return bool((values == operand["zero_point"]).all())


def _is_read(model: _CaseModel, operand: int) -> bool:
    """Return whether any operation reads an operand."""
    return any(operand in operation["inputs"] for operation in model.operations)


def _redirect_reads(model: _CaseModel, old: int, new: int) -> _CaseModel:
    """Return the model in which operations read the operand `new` instead of `old`."""
    operations = [o | {"inputs": [new if i == old else i for i in o["inputs"]]} for o in model.operations]
    return replace(model, operations=operations)


def _with_fewer_outputs(model: _CaseModel) -> Iterator[_CaseModel]:
    """Simplification 4: first a single output, those that need few operations first, then all except one."""
    if len(model.outputs) < 2:
        return
    single = [replace(model, outputs=[output]) for output in model.outputs]
    yield from sorted(single, key=lambda smaller: len(_needed(smaller)[0]))
    if len(model.outputs) > 2:
        for output in model.outputs:
            yield replace(model, outputs=[other for other in model.outputs if other is not output])


def _with_one_row(model: _CaseModel) -> Iterator[_CaseModel]:
    """Simplification 5, for each row of the batch."""
    batched = _batched_operands(model)
    if batched is None:
        return
    operands, rows = batched
    for row in range(rows):
        yield _CaseModel(
            [_row(o, row, rows) if i in operands else o for i, o in enumerate(model.operands)],
            model.operations,
            [(i, _row(value, row, rows) if value and i in operands else value) for i, value in model.inputs],
            [(i, _row(value, row, rows)) for i, value in model.outputs],
        )


def _batched_operands(model: _CaseModel) -> tuple[set[int], int] | None:
    """Return the operands whose dimension 0 is the batch, and the size of the batch.

    Return None if the size is 1 or the rows are not independent.
    """
    batched: set[int] = set()
    unbatched: set[int] = set()
    for operation in model.operations:
        with_batch = _operands_with_batch(model.operands, operation)
        if with_batch is None:
            return None
        batched |= with_batch
        unbatched |= {*operation["inputs"], *operation["outputs"]} - with_batch
    sizes = {model.operands[i]["dimensions"][0] for i in batched}
    per_channel = any("channel_quant" in model.operands[i] for i in batched)
    if len(sizes) != 1 or sizes <= {0, 1} or batched & unbatched or per_channel:
        return None
    return batched, sizes.pop()


def _operands_with_batch(operands: Sequence[Json], operation: Json) -> set[int] | None:
    """Return the operands of an operation with the batch in dimension 0, or None if rows are not independent."""
    result = operands[operation["outputs"][0]]["dimensions"]
    if not result:
        return None
    signature = SIGNATURES.get(OperationType[operation["type"]])
    if signature is None:  # IF and WHILE
        return None
    if signature.batchwise:
        return {operation["inputs"][0], *operation["outputs"]}
    if not signature.elementwise:
        return None
    same_batch = {
        i
        for i in operation["inputs"]
        if len(operands[i]["dimensions"]) == len(result) and operands[i]["dimensions"][0] == result[0]
    }
    return same_batch | set(operation["outputs"])


def _row(value: Json, row: int, rows: int) -> Json:
    """Return one row of an operand, of DATA or of EXPECTED."""
    smaller: Json = {"dimensions": [1, *value["dimensions"][1:]]}
    if "data" in value:
        data = base64.b64decode(value["data"])
        size = len(data) // rows
        smaller["data"] = base64.b64encode(data[row * size : (row + 1) * size]).decode("ascii")
    return value | smaller


def _with_constants(model: _CaseModel) -> Iterator[_CaseModel]:
    """Simplification 6, for one input at a time, the last first, because input 0 is rarely a weight."""
    for i, value in reversed(model.inputs):
        constant = {"lifetime": "NO_VALUE"} if value is None else {"lifetime": "CONSTANT_COPY", "data": value["data"]}
        operands = [operand | constant if j == i else operand for j, operand in enumerate(model.operands)]
        yield replace(model, operands=operands, inputs=[pair for pair in model.inputs if pair[0] != i])


_SIMPLIFICATIONS: tuple[Simplification, ...] = (
    _without_unneeded,
    _with_known_values,
    _without_neutral,
    _with_fewer_outputs,
    _with_one_row,
    _with_constants,
)
