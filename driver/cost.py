"""What operations and partitions cost, roughly: enough to tell whether a partition pays for its boundary.

The unit is what a multiply-add costs a plain backend more than an accelerated one: about 0.25 ns. The constants compare
CpuRef with CpuAcc on a machine with 2 cores (x86-64, LiteRT 2.3.0, one thread each, float32; otherwise idle):
`python -m tests.benchmark.partition_cost` measures them again, `tests.benchmark.cpu_ref` the unit.

- An operation costs CpuRef 8 µs however small it is; in a partition of CpuAcc a small one costs next to nothing.
- One more partition costs 12 µs an execution: 9 on CpuAcc, 3 for the partition of CpuRef that it cuts in two.
- Preparing it takes 0.4 ms, and a file. Spread over 30 executions that is 13 µs more.
- A value that crosses a boundary is copied: 0.1 ns an element.
- An element counts as a multiply-add. A sum costs a quarter of that and a softmax more; in doubt an operation stays
  where it is, because a boundary too many costs less than an operation on the wrong side.
"""

from collections.abc import Sequence
from math import prod

from driver.graph import Graph, OperationView, SubgraphView, subgraph_view
from driver.operations.work import MULTIPLY_ADDS
from nnhal.types import OperandLifeTime, is_tensor

PER_OPERATION = 32_000
"""What an operation costs a plain backend, its elements and multiply-adds aside."""
PER_PARTITION = 100_000
"""What a partition costs, the elements that cross its boundary aside."""
PER_CROSSING = 0.4
"""What an element that crosses a boundary costs."""


def does_not_pay(graph: Graph, operations: Sequence[int]) -> str:
    """Why operations do not pay for a partition of their own, in words; "" where they do or a shape is unknown."""
    gained = 0
    for i in operations:
        if (done := work(graph.operations[i])) is None:
            return ""
        gained += PER_OPERATION + done
    cost = _boundary(subgraph_view(graph, operations, relaxed=False))
    if gained >= cost:
        return ""
    subject = "1 operation does" if len(operations) == 1 else f"{len(operations)} operations do"
    return f"{subject} not pay for a partition (worth {gained:,} multiply-adds, cost {cost:,})"


def work(view: OperationView) -> int | None:
    """Multiply-adds of an operation that has them, else the elements of all its arguments; None: a shape is unknown.

    The elements of weights are among them. Operations that use each weight once (LSTM, SVDF) therefore need no formula.
    """
    positions = (*view.operation.inputs, *view.operation.outputs)
    operands = [view.graph.operands[i] for i in positions]
    present = [o.dimensions for o in operands if is_tensor(o.type) and o.lifetime != OperandLifeTime.NO_VALUE]
    if not all(shape and 0 not in shape for shape in present):
        return None
    if (counted := MULTIPLY_ADDS.get(view.type)) is not None:
        return counted.count(*(view.operand(name).dimensions for name in counted.of))
    return sum(map(prod, present))


def _boundary(view: SubgraphView) -> int:
    """What a partition costs, its operations aside. Every shape is known."""
    crossing = sum(prod(view.graph.operands[o].dimensions) for o in (*view.inputs, *view.outputs))
    return PER_PARTITION + int(PER_CROSSING * crossing)
