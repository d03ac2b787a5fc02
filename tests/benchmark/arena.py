"""How much memory a plan saves: `python -m tests.benchmark.arena MODEL.tflite ...` prints the block and the sum.

Every value between inputs and outputs of the model gets its place from `driver.backends.memory`, in the model's order.
"""

import sys
from pathlib import Path

from driver.backends.memory import MemoryManager, Storage
from driver.graph import Graph, graphs
from nnhal.types import OperandLifeTime, byte_size
from tools.cli.model import load


def planned(graph: Graph) -> MemoryManager:
    """The plan of a subgraph's intermediate values."""
    memory = MemoryManager()
    last = {o: view.index for view in graph.operations for o in view.operation.inputs}
    pieces = {}
    for view in graph.operations:
        for o in view.operation.outputs:
            if graph.operands[o].lifetime == OperandLifeTime.TEMPORARY_VARIABLE:
                size = byte_size(graph.operands[o].type, graph.operands[o].dimensions)
                pieces[o] = memory.get(size, Storage.DYNAMIC)
        for o in dict.fromkeys(view.operation.inputs):
            if o in pieces and last[o] == view.index:
                memory.put(pieces[o])
    return memory


def main() -> None:
    """Prints a row for each model."""
    for path in map(Path, sys.argv[1:]):
        memory = planned(graphs(load(path))[0])
        share = memory.peak_bytes / max(memory.sum_bytes, 1)
        print(f"{path.name}: block {memory.peak_bytes:,} of {memory.sum_bytes:,} bytes ({share:.0%})")


if __name__ == "__main__":
    main()
