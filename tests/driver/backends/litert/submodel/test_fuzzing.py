"""Mutated sub-models: the process that parses them, and copies their operators, fails with a reason or not at all.

LiteRT does not see them here. `tests/end_to_end/robustness/test_hostile_regions.py` has it run them.
"""

import os
from collections import Counter

import pytest

from nnhal_driver.backends.litert.convert import check_operation, convert
from nnhal_driver.backends.litert.inlining import runs_alone
from nnhal_driver.backends.litert.shape_analysis import Unsupported
from nnhal_driver.graph import build_graphs, subgraph_view
from nnhal_driver.operations.shape import MAX_TENSOR_BYTES
from tests.driver.backends.litert.submodel.fuzzing import example
from tests.driver.backends.litert.support.regions import region

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

EXAMPLES = int(os.environ.get("NNHAL_FUZZ_EXAMPLES", "600"))


def _convert(data: bytes, mutated: bytes) -> str:
    """Return what becomes of a mutated region whose operands are those of the original."""
    (graph,) = build_graphs(region(data, mutated))
    try:
        check_operation(graph.operations[0])
        if runs_alone(graph.operations[0]):
            return "alone"
        view = subgraph_view(graph, [0], relaxed=False)
        convert(view, [graph.operands[i].dimensions for i in view.inputs], MAX_TENSOR_BYTES)
    except Unsupported as error:
        assert error.reason
        return "refused"
    return "inlined"


def test_mutations_are_refused_or_converted() -> None:
    counts = Counter(_convert(*example(number)) for number in range(EXAMPLES))
    assert min(counts[outcome] for outcome in ("alone", "refused", "inlined")) > EXAMPLES // 50
