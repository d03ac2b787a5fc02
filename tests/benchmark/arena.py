"""Memory that planning saves: `python -m tests.benchmark.arena MODEL.tflite ...` prints the block and the sum.

`nnhal_driver.backends.memory` places every value between the inputs and outputs of the model, in the model's order.
"""

import sys
from pathlib import Path

from nnhal.types import OperandLifeTime, byte_size
from nnhal_driver.backends.memory import MemoryManager, Storage
from nnhal_driver.graph import Graph, build_graphs
from nnhal_tools.cli.model import load_model


def plan_memory(graph: Graph) -> MemoryManager:
    """Plan the memory of a subgraph's intermediate values."""
    memory = MemoryManager()
    last_reader = {o: view.index for view in graph.operations for o in view.operation.inputs}
    pieces = {}
    for view in graph.operations:
        for o in view.operation.outputs:
            if graph.operands[o].lifetime == OperandLifeTime.TEMPORARY_VARIABLE:
                size = byte_size(graph.operands[o].type, graph.operands[o].dimensions)
                pieces[o] = memory.get(size, Storage.DYNAMIC)
        for o in dict.fromkeys(view.operation.inputs):
            if o in pieces and last_reader[o] == view.index:
                memory.put(pieces[o])
    return memory


def main() -> None:
    """Print a row for each model."""
    for path in map(Path, sys.argv[1:]):
        memory = plan_memory(build_graphs(load_model(path))[0])
        share = memory.peak_bytes / max(memory.sum_bytes, 1)
        print(f"{path.name}: block {memory.peak_bytes:,} of {memory.sum_bytes:,} bytes ({share:.0%})")


if __name__ == "__main__":
    main()
