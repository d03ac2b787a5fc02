"""Cost model of operations and partitions: a rough estimate of whether a partition pays for its boundary.

The unit is what a multiply-add costs a plain backend more than an accelerated one: about 0.25 ns. The constants compare
CpuRef with CpuAcc on a machine with 2 cores (x86-64, LiteRT 2.3.0, one thread each, float32; otherwise idle), with
chains of sums as one partition; `python -m tests.benchmark.cpu_ref` measures the unit.

- An operation costs CpuRef 8 µs however small it is. In a partition of CpuAcc a small one costs next to nothing.
- One more partition costs 12 µs for each execution: 9 on CpuAcc, 3 for the partition of CpuRef that it cuts in two.
- Its preparation takes 0.4 ms, and a file. Spread over 30 executions that is 13 µs more.
- A value that crosses a boundary is copied: 0.1 ns for each element.
- An element counts as a multiply-add. A sum costs a quarter of that and a softmax more. In doubt an operation stays
  on its backend, because a superfluous boundary costs less than an operation on the wrong backend.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import prod

from nnhal.types import OperandLifeTime, is_tensor
from nnhal_driver.graph import Graph, OperationView, subgraph_view
from nnhal_driver.operations.call import Shape
from nnhal_driver.operations.multiply_adds import LONG_STEPS, count_multiply_adds, count_steps

OPERATION_COST = 32_000
"""Cost of an operation on a plain backend, without its elements and multiply-adds."""
PARTITION_COST = 100_000
"""Cost of a partition, without the elements that cross its boundary."""
CROSSING_COST = 0.4
"""Cost of an element that crosses a boundary."""
SLOW_NS = 2
"""Nanoseconds of a multiply-add on a slow CPU without acceleration."""
LONGEST_NS = 2**63 - 1
"""Longest estimate. A model may declare shapes that no execution can have, and other processes read 64-bit numbers."""


def estimate_duration_ns(graphs: Iterable[Graph]) -> int:
    """Return an upper estimate of the duration of an execution, in ns: of each operation once, however slow the CPU."""
    return min(SLOW_NS * sum(estimate_steps(view) for graph in graphs for view in graph.operations), LONGEST_NS)


def divide_long(graph: Graph, operations: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the operations of a partition in parts that a call of the backend may run as a whole, in order."""
    part: list[int] = []
    work = 0
    for i in sorted(operations):
        steps = estimate_steps(graph.operations[i])
        if part and work + steps > LONG_STEPS:
            yield tuple(part)
            part, work = [], 0
        part.append(i)
        work += steps
    yield tuple(part)


def estimate_steps(view: OperationView) -> int:
    """Return the work of an operation, see `count_steps`. Tensors of unknown shape do not count."""
    return count_steps(view, _known_shapes(view))


def unprofitable_reason(graph: Graph, operations: Sequence[int]) -> str:
    """Return why operations do not pay for a partition of their own; "" if they do or a shape is unknown."""
    gain = 0
    for i in operations:
        if (work := estimate_work(graph.operations[i])) is None:
            return ""
        gain += OPERATION_COST + work
    view = subgraph_view(graph, operations, relaxed=False)
    elements = sum(prod(graph.operands[o].dimensions) for o in (*view.inputs, *view.outputs))  # every shape is known
    cost = PARTITION_COST + int(CROSSING_COST * elements)
    if gain >= cost:
        return ""
    subject = "1 operation does" if len(operations) == 1 else f"{len(operations)} operations do"
    return f"{subject} not pay for a partition (worth {gain:,} multiply-adds, cost {cost:,})"


def estimate_work(view: OperationView) -> int | None:
    """Return the multiply-adds of an operation, or the elements of all its arguments if it has none.

    None if a shape is unknown. The elements include those of weights. Operations that use each weight once (SVDF)
    therefore need no count.
    """
    operands = [(i, view.graph.operands[i]) for i in (*view.operation.inputs, *view.operation.outputs)]
    shapes = _known_shapes(view)
    if any(is_tensor(o.type) and o.lifetime != OperandLifeTime.NO_VALUE and i not in shapes for i, o in operands):
        return None
    count = count_multiply_adds(view, shapes)
    return sum(prod(shapes.get(i, (0,))) for i, _ in operands) if count is None else count


def _known_shapes(view: OperationView) -> dict[int, Shape]:
    """Return the shapes of an operation's tensors that are declared, by operand."""
    operands = view.graph.operands
    known = {}
    for i in (*view.operation.inputs, *view.operation.outputs):
        shape, lifetime = operands[i].dimensions, operands[i].lifetime
        if shape and 0 not in shape and is_tensor(operands[i].type) and lifetime != OperandLifeTime.NO_VALUE:
            known[i] = shape
    return known
