"""Backends that take some operations only, and models for them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from nnhal.types import DataLocation, Model, Operand, OperandLifeTime, Operation, Placement, Subgraph
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import Backend, CompiledSubgraph, CompileOptions, OperationView, SubgraphView, Support
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device

SMALL, LARGE = (2,), (300, 300)
"""Shapes with which an operation saves less, or more, than a partition costs."""


class Fake(CpuRef):
    """Backend that supports some operation types, or some operations by number.

    Args:
        id_: its id.
        takes: the operation types that it supports; None: all.
        numbers: the indexes of the operations that it supports; None: all.
        fails: the exception that `compile` raises; None: none.
        fails_on: indexes of operations; `compile` fails only for subgraphs with one of them. None: for all.

    Attributes:
        asked: subgraph number and index of the operations it was asked about.
        compiled: the operations of each compiled subgraph.
    """

    def __init__(
        self,
        id_: str,
        takes: Sequence[int] | None = None,
        numbers: Sequence[int] | None = None,
        fails: Exception | None = None,
        fails_on: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        self.id = id_
        self.takes, self.numbers, self.fails, self.fails_on = takes, numbers, fails, fails_on
        self.asked: list[tuple[int, int]] = []
        self.compiled: list[tuple[int, ...]] = []

    def supports(self, operation: OperationView) -> Support:
        self.asked.append((operation.graph.number, operation.index))
        known = self.takes is None or operation.type in self.takes
        return Support() if known and (self.numbers is None or operation.index in self.numbers) else Support("not mine")

    def compile(self, subgraph: SubgraphView, options: CompileOptions) -> CompiledSubgraph:
        indexes = tuple(view.index for view in subgraph.operations)
        if self.fails and (self.fails_on is None or not set(self.fails_on).isdisjoint(indexes)):
            raise self.fails
        self.compiled.append(indexes)
        return super().compile(subgraph, options)


def graph_of(sources: Sequence[Sequence[int]], types: Sequence[int], shape: Sequence[int] = SMALL) -> Model:
    """Return a model of binary operations.

    Each operation reads the outputs of two others, or x (-1). Outputs that no operation reads are outputs of the model.
    """
    read = {source for pair in sources for source in pair}
    operands = [
        Operand(T.TENSOR_FLOAT32, tuple(shape), lifetime=OperandLifeTime.SUBGRAPH_INPUT),
        Operand(T.INT32, lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(0, 0, 4)),
    ]
    operations = []
    for i, (type_, pair) in enumerate(zip(types, sources, strict=True)):
        lifetime = OperandLifeTime.TEMPORARY_VARIABLE if i in read else OperandLifeTime.SUBGRAPH_OUTPUT
        operands.append(Operand(T.TENSOR_FLOAT32, tuple(shape), lifetime=lifetime))
        arguments = [0 if source < 0 else source + 2 for source in pair]
        operations.append(Operation(type_, (*arguments, *([1] if type_ in FUSED else [])), (i + 2,)))
    outputs = tuple(i for i, o in enumerate(operands) if o.lifetime == OperandLifeTime.SUBGRAPH_OUTPUT)
    return Model(Subgraph(tuple(operands), tuple(operations), (0,), outputs), operand_values=bytes(4))


FUSED = (Op.ADD, Op.SUB, Op.MUL)
BINARY = (*FUSED, Op.MAXIMUM, Op.MINIMUM)


def chain(*types: int) -> Model:
    """Return the model x -> op(x, x) -> op(., x) -> ... with one binary operation of each type."""
    operands = [
        Operand(T.TENSOR_FLOAT32, (2,), lifetime=OperandLifeTime.SUBGRAPH_INPUT),
        Operand(T.INT32, lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(0, 0, 4)),
    ]
    operations = []
    for i, type_ in enumerate(types):
        last = i == len(types) - 1
        lifetime = OperandLifeTime.SUBGRAPH_OUTPUT if last else OperandLifeTime.TEMPORARY_VARIABLE
        operands.append(Operand(T.TENSOR_FLOAT32, (2,), lifetime=lifetime))
        operations.append(Operation(type_, (i + 1 if i else 0, 0, 1), (len(operands) - 1,)))
    return Model(Subgraph(tuple(operands), tuple(operations), (0,), (len(operands) - 1,)), operand_values=bytes(4))


def parts(placement: Placement) -> list[tuple[str, tuple[int, ...]]]:
    """Return the partitions of main."""
    return [(p.backend, p.operations) for p in placement.partitions if p.subgraph == 0]


@contextmanager
def device_of(*backends: Backend) -> Iterator[Device]:
    device = Device("test", backends)
    yield device
    device.close()
