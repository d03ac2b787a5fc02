"""Counts of the test vectors in which each backend supports an operation and an operand type.

`python -m tools.dev.vector_counts` counts ../shared/vectors. The counts are committed, so that the table of operations
can be generated without the vectors: {backend: {operation: {operand type: count}}}.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from nnhal.operations import SIGNATURES
from nnhal.types import Model, OperandType, OperationType
from nnhal_driver.backends import registry
from nnhal_driver.backends.api import Backend
from nnhal_driver.compilation.operation_support import leading_input
from nnhal_driver.graph import build_graphs
from tests.driver.validation.vector_models import cases, model_of
from tests.shared import SHARED

VECTORS = Path(__file__).resolve().parents[2] / "tests" / "data" / "vector_counts.json"
DRIVER = "driver"
"""Takes the place of a backend for IF and WHILE, which the driver runs itself."""

TYPES = {
    OperandType.TENSOR_FLOAT32: "float32",
    OperandType.TENSOR_FLOAT16: "float16",
    OperandType.TENSOR_INT32: "int32",
    OperandType.TENSOR_QUANT8_ASYMM: "quant8",
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: "quant8 signed",
    OperandType.TENSOR_QUANT8_SYMM: "quant8 symm",
    OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL: "quant8 per channel",
    OperandType.TENSOR_QUANT16_SYMM: "quant16 symm",
    OperandType.TENSOR_QUANT16_ASYMM: "quant16",
    OperandType.TENSOR_BOOL8: "bool",
    OperandType.FLOAT32: "float32",
    OperandType.FLOAT16: "float16",
    OperandType.INT32: "int32",
}
"""Names of operand types in the table. A scalar counts as a tensor."""

Counts: TypeAlias = dict[str, dict[str, int]]
Pair: TypeAlias = tuple[str, str]
"""An operation and an operand type, by name."""


def count_key(type_: int, inputs: Sequence[int]) -> Pair:
    """Return the key under which an operation is counted. IF and WHILE count as bool, the type of their condition."""
    leading = inputs[leading_input(type_)] if type_ in SIGNATURES else OperandType.TENSOR_BOOL8
    return OperationType(type_).name, TYPES[OperandType(leading)]


def _sorted_counts(pairs: Counter[Pair]) -> Counts:
    counts: Counts = {}
    for operation, type_ in sorted(pairs, key=lambda key: (OperationType[key[0]], key[1])):
        counts.setdefault(operation, {})[type_] = pairs[operation, type_]
    return counts


def count_vectors(backends: Sequence[Backend], folder: Path = SHARED / "vectors") -> dict[str, Counts]:
    """Count the vectors in which each backend supports an operation, by operation and type.

    Vectors whose execution must fail do not count. IF and WHILE are counted for the driver.
    """
    files = sorted(folder.glob("*/*.jsonl.gz"))
    if not files:
        raise SystemExit(f"no vectors in {folder}")
    counted: defaultdict[str, Counter[Pair]] = defaultdict(Counter)
    for case in (case for path in files for case in cases(path) if not case["expect_failure"]):
        for backend, pairs in _accepted_pairs(model_of(case), backends).items():
            counted[backend].update(pairs)
    return {backend: _sorted_counts(counts) for backend, counts in sorted(counted.items())}


def _accepted_pairs(model: Model, backends: Sequence[Backend]) -> dict[str, set[Pair]]:
    """Return the operations of a model that each backend, and the driver itself, supports."""
    accepted: defaultdict[str, set[Pair]] = defaultdict(set)
    for graph in build_graphs(model):
        for view in graph.operations:
            by_driver = view.type not in SIGNATURES
            runners = [DRIVER] if by_driver else [backend.id for backend in backends if backend.supports(view)]
            for runner in runners:
                accepted[runner].add(count_key(view.type, [graph.operands[i].type for i in view.operation.inputs]))
    return accepted


def all_backends() -> Sequence[Backend]:
    """Return all backends whose engine is installed, except GpuAcc, which the GPU of a machine decides about."""
    return registry.assemble([id_ for id_ in registry.registered_ids() if id_ != "GpuAcc"]).backends


def main() -> None:
    """Count, and write the counts."""
    VECTORS.write_text(json.dumps(count_vectors(all_backends()), indent=1) + "\n")


if __name__ == "__main__":
    main()
