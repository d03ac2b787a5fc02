"""Makes docs/operations.md: which backend runs which operation in which operand types, and what stands behind it.

`python -m tests.operations_table --write` makes it from the signatures, the backends and the committed counts. With
`--count` the counts are made first, from ../shared/vectors and by running the tests of the driver. It lies below
`tests` because it asks the backends themselves, which no tool may.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from driver.backends import registry
from driver.backends.api import Backend
from driver.graph import Graph
from nnhal.operations import SIGNATURES
from nnhal.operations.signature import ArgumentList
from nnhal.types import Operand, Operation, OperationType, Subgraph
from tests.operation_counts import DATA, DRIVER, TYPES, Counts, count_tests, count_vectors, pair

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "operations.md"
VECTORS, TESTS = DATA / "vector_counts.json", DATA / "test_counts.json"

Support = Mapping[str, Sequence[str]]
"""By operand type: ids of the backends that take it."""

HEAD = """\
<!-- Made by `python -m tests.operations_table --write`. Do not edit. -->

# Operations

Every operation of the HAL, by its code; and for each type of its leading operand, the backends that take it. The
leading operand is the first input that may have several types. A scalar counts as a tensor of its type. IF and WHILE
are run by the driver itself, whatever the backend; they stand under the type of their condition.

`12v 3t` behind a backend: in 12 vectors the backend takes the operation in this type (AOSP's cases, run by `nnhal
conformance`; the signed twins that it derives from them are not counted), and 3 of the project's own tests run it on
this backend. CpuRef takes all that there is, so its vectors are those that have the operation. CpuAcc judges by shapes
and constants too: why it refuses one, `nnhal explain` says. An empty cell is a type that the operation does not have.
"""


def supported(type_: int, backends: Sequence[Backend]) -> Support:
    """Which backends take an operation, asked for each row of types of its signature."""
    if type_ not in SIGNATURES:
        return {pair(type_, ())[1]: [DRIVER]}
    found: dict[str, dict[str, None]] = {}
    for inputs, outputs in rows(type_):
        operands = tuple(Operand(each, scale=0.5) for each in (*inputs, *outputs))
        operation = Operation(type_, tuple(range(len(inputs))), tuple(range(len(inputs), len(operands))))
        (view,) = Graph(0, Subgraph(operands, (operation,), operation.inputs, operation.outputs), {}).operations
        takers = found.setdefault(pair(type_, inputs)[1], {})
        takers.update((backend.id, None) for backend in backends if backend.supports(view))
    return {name: list(takers) for name, takers in found.items()}


def rows(type_: int) -> list[tuple[list[int], list[int]]]:
    """Types of inputs and outputs of an operation in its shortest form, for each row of its signature."""
    signature = SIGNATURES[type_]

    def types(side: ArgumentList, row: Mapping[str, int]) -> list[int]:
        return [row[argument.type] if isinstance(argument.type, str) else argument.type for argument in side.required]

    return [(types(signature.inputs[0], row), types(signature.outputs, row)) for row in signature.rows]


def document(support: Mapping[str, Support], vectors: Mapping[str, Counts], tests: Mapping[str, Counts]) -> str:
    """The text.

    Args:
        support: by operation, what backends take whatever the shapes; more is told by the counts.
        vectors, tests: by backend; see `operation_counts`.
    """
    types = [name for name in dict.fromkeys(TYPES.values()) if any(name in row for row in support.values())]
    lines = [["", "operation", *types], ["--:", "---", *["---"] * len(types)]]
    for operation, row in support.items():
        cells = []
        for type_ in types:
            counted = {b: [_count(each, b, operation, type_) for each in (vectors, tests)] for b in (*vectors, *tests)}
            takers = [b for b, counts in sorted(counted.items()) if any(counts) or b in row.get(type_, ())]
            cells.append("<br>".join(f"{b} {counted[b][0]}v {counted[b][1]}t" for b in takers))
        lines.append([str(OperationType[operation].value), operation, *cells])
    return HEAD + "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _count(counts: Mapping[str, Counts], backend: str, operation: str, type_: str) -> int:
    return counts.get(backend, {}).get(operation, {}).get(type_, 0)


def all_backends() -> Sequence[Backend]:
    """Every backend but those whose engine is not installed."""
    return registry.assemble(registry.ids()).backends


def fresh() -> str:
    """The document as it must be now."""
    support = {type_.name: supported(type_, all_backends()) for type_ in OperationType}
    return document(support, json.loads(VECTORS.read_text()), json.loads(TESTS.read_text()))


def _write(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data, indent=1) + "\n")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", required=True, help="write docs/operations.md")
    parser.add_argument("--count", action="store_true", help="make the counts first; takes a minute")
    if parser.parse_args().count:
        _write(VECTORS, count_vectors(all_backends()))
        _write(TESTS, count_tests(str(ROOT / "tests" / "driver")))
    DOCUMENT.write_text(fresh())


if __name__ == "__main__":
    main()
