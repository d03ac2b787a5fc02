"""Table of operations, their family files and backends, from signatures and counts of vectors: docs/operations.md."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from nnhal.operations import SIGNATURES
from nnhal.types import OperationType
from nnhal_driver import operations
from nnhal_driver.backends.api import Backend
from nnhal_driver.compilation.operation_support import operation_rows, shortest_graph
from nnhal_driver.operations import SHAPE_RULES
from tools.dev.documents.markdown import Documents, render
from tools.dev.vector_counts import DRIVER, TYPES, VECTORS, Counts, all_backends, count_key

Support = Mapping[str, Sequence[str]]
"""Ids of the backends that support an operation, by operand type."""


def supported_types(type_: int, backends: Sequence[Backend]) -> Support:
    """Return the backends that support an operation, for each row of types of its signature."""
    if type_ not in SIGNATURES:
        return {count_key(type_, ())[1]: [DRIVER]}
    supported: dict[str, dict[str, None]] = {}
    for inputs, outputs in operation_rows(type_):
        (view,) = shortest_graph(type_, inputs, outputs).operations
        by_backend = supported.setdefault(count_key(type_, inputs)[1], {})
        by_backend.update((backend.id, None) for backend in backends if backend.supports(view))
    return {name: list(by_backend) for name, by_backend in supported.items()}


def family(type_: int) -> str:
    """Return the path of an operation's family below the folders of operations, or "" for IF and WHILE."""
    if type_ not in SHAPE_RULES:
        return ""
    return SHAPE_RULES[type_].rule.__module__.removeprefix(f"{operations.__name__}.").replace(".", "/")


def rows(support: Mapping[str, Support], vectors: Mapping[str, Counts]) -> list[str]:
    """Return the lines of the table.

    Args:
        support: backends that support an operation for some shapes at least, by operation.
        vectors: counts of vectors by backend; see `vector_counts`.
    """
    types = [name for name in dict.fromkeys(TYPES.values()) if any(name in row for row in support.values())]
    lines = [["", "operation", "family", *types], ["--:", "---", "---", *["---"] * len(types)]]
    for operation, row in support.items():
        cells = []
        for type_ in types:
            counted = {backend: counts.get(operation, {}).get(type_, 0) for backend, counts in vectors.items()}
            backends = [backend for backend in sorted(counted) if counted[backend] or backend in row.get(type_, ())]
            cells.append("<br>".join(f"{backend} {counted[backend]}" for backend in backends))
        code = OperationType[operation].value
        lines.append([str(code), operation, family(code), *cells])
    return [f"| {' | '.join(line)} |" for line in lines]


def generate() -> Documents:
    """Return the document for the current signatures, backends and counts."""
    backends = all_backends()
    support = {type_.name: supported_types(type_, backends) for type_ in OperationType}
    return {
        Path("docs/operations.md"): render("operations", rows="\n".join(rows(support, json.loads(VECTORS.read_text()))))
    }
