"""Reduces a failing vector to the smallest model that still fails, and writes it as a vector file.

It tries changes, large ones first, and keeps each with which the case still fails, until none is left:

1. operations that no output needs go;
2. an operation that takes an output of main takes the vector's value of it as an input instead, so that it no longer
   depends on what computes it;
3. an ADD of zero is bypassed;
4. outputs go, and with them the operations, operands and referenced subgraphs that only they needed;
5. the batch becomes one of its rows, where each row is computed by itself;
6. inputs become constants, but for one: a model has an input.

It cannot cut elsewhere: the vector does not hold the values of temporaries. A chain that has outputs at its end alone
stays whole. Subgraphs of IF and WHILE are kept or dropped as they are. After change 2 an output may differ from the
vector's by the rounding of the value that is now an input.
"""

import base64
import gzip
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from nnhal.types import DTYPES, OperandType
from tools.conformance.vectors import Case

LIMIT_S = 60.0
"""After this no further change is tried."""

SUFFIX = "_reduced"
"""Ends the name of a case that was made smaller."""

Json = dict[str, Any]
Fails = Callable[[Case], bool]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BATCH_FIRST = _names(
    "AVERAGE_POOL_2D CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE FULLY_CONNECTED GROUPED_CONV_2D INSTANCE_NORMALIZATION "
    "L2_POOL_2D MAX_POOL_2D RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR SPACE_TO_DEPTH"
)
"""Operations that compute each row of input 0 by itself; all other inputs are the same for each row."""

_ELEMENTWISE = _names(
    "ABS ADD CAST DEQUANTIZE DIV ELU EQUAL EXP FLOOR GREATER GREATER_EQUAL HARD_SWISH LESS LESS_EQUAL LOG LOGICAL_AND "
    "LOGICAL_NOT LOGICAL_OR LOGISTIC MAXIMUM MINIMUM MUL NEG NOT_EQUAL POW PRELU QUANTIZE RELU RELU1 RELU6 RSQRT "
    "SELECT SIN SQRT SUB TANH"
)
"""Operations that compute each element by itself, with broadcasting."""


def reduce(case: Case, fails: Fails) -> Case:
    """The smallest case that was found and still fails; the case itself where none smaller does.

    A case that must fail, or whose output is random, is returned as it is: its outputs do not say what is right.

    Args:
        fails: whether a case fails in the same way, that is, by the same check; a device that refuses a smaller model
            for another reason must not count.
    """
    if case.expect_failure or case.multinomial_tolerance is not None:
        return case
    deadline = time.monotonic() + LIMIT_S
    smallest, before = case, None
    while smallest is not before:
        before = smallest
        for step in _STEPS:
            smallest = _repeated(step, smallest, fails, deadline)
    if smallest is case:
        return case
    return Case(smallest.data | {"name": case.name + SUFFIX})


def write(path: Path, case: Case) -> None:
    """Writes a vector file with one case. The same case gives the same bytes.

    Raises:
        ValueError: the path does not end in .jsonl.gz, so that no one would take it for a vector file.
        OSError: the file cannot be written.
    """
    if not path.name.endswith(".jsonl.gz"):
        raise ValueError(f"{path}: a vector file ends in .jsonl.gz")
    path.write_bytes(gzip.compress(json.dumps(case.data).encode("ascii") + b"\n", mtime=0))


@dataclass(frozen=True)
class _Model:
    """A case taken apart.

    Attributes:
        inputs: index of the operand and its DATA, None where it is omitted; for each input of main.
        outputs: index of the operand and its EXPECTED; for each output of main.
    """

    operands: Sequence[Json]
    operations: Sequence[Json]
    inputs: Sequence[tuple[int, Json | None]]
    outputs: Sequence[tuple[int, Json]]


Step = Callable[[_Model], Iterator[_Model]]
"""Gives models that are each smaller than the one that it takes, so that repeating it ends."""


def _repeated(step: Step, case: Case, fails: Fails, deadline: float) -> Case:
    """The case after a step has been done as often as it still fails."""
    candidates = step(_apart(case))
    while (model := next(candidates, None)) is not None and time.monotonic() < deadline:
        candidate = _together(case, model)
        if candidate is not None and fails(candidate):
            case = candidate
            candidates = step(_apart(case))
    return case


def _apart(case: Case) -> _Model:
    main = case.data["model"]["main"]
    return _Model(
        main["operands"],
        main["operations"],
        list(zip(main["inputs"], case.data["inputs"], strict=True)),
        list(zip(main["outputs"], case.data["outputs"], strict=True)),
    )


def _together(case: Case, model: _Model) -> Case | None:
    """The case with this model, without all that no output needs; None where no input is left."""
    operations, needed = _needed(model)
    inputs = [(i, value) for i, value in model.inputs if i in needed]
    if not inputs:
        return None
    lifetimes = dict.fromkeys(chain.from_iterable(o["outputs"] for o in operations), "TEMPORARY_VARIABLE")
    lifetimes |= dict.fromkeys((i for i, _ in model.outputs), "SUBGRAPH_OUTPUT")
    lifetimes |= dict.fromkeys((i for i, _ in inputs), "SUBGRAPH_INPUT")
    kept = sorted(needed | lifetimes.keys())
    place = {old: new for new, old in enumerate(kept)}
    operands = [model.operands[i] | ({"lifetime": lifetimes[i]} if i in lifetimes else {}) for i in kept]
    main = {
        "operands": operands,
        "operations": [
            o | {"inputs": [place[i] for i in o["inputs"]], "outputs": [place[i] for i in o["outputs"]]}
            for o in operations
        ],
        "inputs": [place[i] for i, _ in inputs],
        "outputs": [place[i] for i, _ in model.outputs],
    }
    graphs = _reachable([main, *case.data["model"]["referenced"]])
    changed = {
        "model": case.data["model"] | {"main": graphs[0], "referenced": graphs[1:]},
        "inputs": [value for _, value in inputs],
        "outputs": [value for _, value in model.outputs],
    }
    return Case(case.data | changed)


def _needed(model: _Model) -> tuple[list[Json], set[int]]:
    """The operations that outputs need, in order, and the operands that these and the outputs name."""
    needed = {i for i, _ in model.outputs}
    operations: list[Json] = []
    for operation in reversed(model.operations):
        if needed & set(operation["outputs"]):
            operations.insert(0, operation)
            needed |= set(operation["inputs"])
    return operations, needed


def _reachable(graphs: Sequence[Json]) -> list[Json]:
    """Main, which is first, and the referenced subgraphs that it still reaches, with their new indexes."""
    order, waiting = {0}, [0]
    while waiting:
        for operand in graphs[waiting.pop()]["operands"]:
            if operand["lifetime"] == "SUBGRAPH" and operand["subgraph"] + 1 not in order:
                order.add(operand["subgraph"] + 1)
                waiting.append(operand["subgraph"] + 1)
    kept = sorted(order)
    if len(kept) == len(graphs):
        return list(graphs)
    place = {old - 1: new - 1 for new, old in enumerate(kept)}
    return [graphs[i] | {"operands": [_moved(operand, place) for operand in graphs[i]["operands"]]} for i in kept]


def _moved(operand: Json, place: dict[int, int]) -> Json:
    return operand | {"subgraph": place[operand["subgraph"]]} if operand["lifetime"] == "SUBGRAPH" else operand


def _without_unneeded(model: _Model) -> Iterator[_Model]:
    """Change 1. Taking apart and putting together does it."""
    operations, needed = _needed(model)
    if len(operations) < len(model.operations) or any(i not in needed for i, _ in model.inputs):
        yield model


def _with_known_values(model: _Model) -> Iterator[_Model]:
    """Change 2, for one output of main at a time."""
    for i, expected in model.outputs:
        if not _takers(model, i) or expected["ignored"] or prod(expected["dimensions"]) == 0:
            continue
        value = {key: expected[key] for key in ("dimensions", "data")}
        operand = model.operands[i] | {"dimensions": expected["dimensions"]}
        redirected = _redirected(model, i, len(model.operands))
        inputs = [*model.inputs, (len(model.operands), value)]
        yield replace(redirected, operands=[*model.operands, operand], inputs=inputs)


def _without_neutral(model: _Model) -> Iterator[_Model]:
    """Change 3, for one ADD at a time."""
    for operation in model.operations:
        result = operation["outputs"][0]
        kept = _kept_by_adding_zero(model.operands, operation)
        if kept is not None and _takers(model, result):
            yield _redirected(model, result, kept)


def _kept_by_adding_zero(operands: Sequence[Json], operation: Json) -> int | None:
    """The operand that an ADD of zero hands on; None where the operation is none."""
    if operation["type"] != "ADD" or not _is_zero(operands[operation["inputs"][2]]):
        return None
    first, second = map(int, operation["inputs"][:2])
    for kept, zero in ((first, second), (second, first)):
        if _is_zero(operands[zero]) and _same_type(operands[kept], operands[operation["outputs"][0]]):
            return kept
    return None


def _is_zero(operand: Json) -> bool:
    """Whether an operand is a constant whose real values are all 0."""
    if "data" not in operand:
        return False
    return bool((_array(operand) == operand["zero_point"]).all())


def _array(operand: Json) -> Any:
    return np.frombuffer(base64.b64decode(operand["data"]), DTYPES[OperandType[operand["type"]]])


def _same_type(one: Json, other: Json) -> bool:
    return all(one[key] == other[key] for key in ("type", "dimensions", "scale", "zero_point"))


def _takers(model: _Model, operand: int) -> bool:
    """Whether any operation takes an operand."""
    return any(operand in operation["inputs"] for operation in model.operations)


def _redirected(model: _Model, old: int, new: int) -> _Model:
    """The model in which operations take another operand instead."""
    operations = [o | {"inputs": [new if i == old else i for i in o["inputs"]]} for o in model.operations]
    return replace(model, operations=operations)


def _with_fewer_outputs(model: _Model) -> Iterator[_Model]:
    """Change 4: one output alone, those that need few operations first; then all but one."""
    if len(model.outputs) < 2:
        return
    alone = [replace(model, outputs=[output]) for output in model.outputs]
    yield from sorted(alone, key=lambda smaller: len(_needed(smaller)[0]))
    if len(model.outputs) > 2:
        for output in model.outputs:
            yield replace(model, outputs=[other for other in model.outputs if other is not output])


def _with_one_row(model: _Model) -> Iterator[_Model]:
    """Change 5, for each row of the batch."""
    batched = _batched(model)
    if batched is None:
        return
    operands, rows = batched
    for row in range(rows):
        yield _Model(
            [_row(o, row, rows) if i in operands else o for i, o in enumerate(model.operands)],
            model.operations,
            [(i, _row(value, row, rows) if value and i in operands else value) for i, value in model.inputs],
            [(i, _row(value, row, rows)) for i, value in model.outputs],
        )


def _batched(model: _Model) -> tuple[set[int], int] | None:
    """The operands whose dimension 0 is the batch, and its size; None where it is 1 or rows are not independent."""
    batched: set[int] = set()
    plain: set[int] = set()
    for operation in model.operations:
        carriers = _carriers(model.operands, operation)
        if carriers is None:
            return None
        batched |= carriers
        plain |= {*operation["inputs"], *operation["outputs"]} - carriers
    sizes = {model.operands[i]["dimensions"][0] for i in batched}
    per_channel = any("channel_quant" in model.operands[i] for i in batched)
    if len(sizes) != 1 or sizes <= {0, 1} or batched & plain or per_channel:
        return None
    return batched, sizes.pop()


def _carriers(operands: Sequence[Json], operation: Json) -> set[int] | None:
    """The operands of an operation that have the batch in dimension 0; None where its rows are not independent."""
    result = operands[operation["outputs"][0]]["dimensions"]
    if not result:
        return None
    if operation["type"] in _BATCH_FIRST:
        return {operation["inputs"][0], *operation["outputs"]}
    if operation["type"] not in _ELEMENTWISE:
        return None
    same = {
        i
        for i in operation["inputs"]
        if len(operands[i]["dimensions"]) == len(result) and operands[i]["dimensions"][0] == result[0]
    }
    return same | set(operation["outputs"])


def _row(value: Json, row: int, rows: int) -> Json:
    """One row of an operand, of DATA or of EXPECTED."""
    smaller: Json = {"dimensions": [1, *value["dimensions"][1:]]}
    if "data" in value:
        data = base64.b64decode(value["data"])
        size = len(data) // rows
        smaller["data"] = base64.b64encode(data[row * size : (row + 1) * size]).decode("ascii")
    return value | smaller


def _with_constants(model: _Model) -> Iterator[_Model]:
    """Change 6, for one input at a time: the last first, because input 0 is mostly the one that is no weight."""
    for i, value in reversed(model.inputs):
        constant = {"lifetime": "NO_VALUE"} if value is None else {"lifetime": "CONSTANT_COPY", "data": value["data"]}
        operands = [operand | constant if j == i else operand for j, operand in enumerate(model.operands)]
        yield replace(model, operands=operands, inputs=[pair for pair in model.inputs if pair[0] != i])


_STEPS: tuple[Step, ...] = (
    _without_unneeded,
    _with_known_values,
    _without_neutral,
    _with_fewer_outputs,
    _with_one_row,
    _with_constants,
)
