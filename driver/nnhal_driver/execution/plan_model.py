"""Model of a plan: what a client sent, for a copy of the model that others can prepare."""

from collections.abc import Mapping
from dataclasses import replace

from nnhal.alignment import align
from nnhal.types import (
    DataLocation,
    ExtensionNameAndPrefix,
    Memory,
    Model,
    Operand,
    OperandLifeTime,
    Subgraph,
)
from nnhal_driver.execution.control_flow import If, While
from nnhal_driver.execution.plan import PartitionNode, Plan
from nnhal_driver.graph import Graph

_CONSTANTS = (OperandLifeTime.CONSTANT_COPY, OperandLifeTime.CONSTANT_POOL)


def model_of(plan: Plan) -> Model:
    """Return the model that a plan runs, without subgraphs that it never runs. All constants are in one pool."""
    graphs: dict[int, Graph] = {}
    relaxed = False
    pending = [plan]
    while pending:
        current = pending.pop()
        graphs[current.graph.number] = current.graph
        for node in current.nodes:
            match node:
                case PartitionNode(view=view):
                    relaxed = relaxed or view.relaxed
                case If(then=first, otherwise=second) | While(condition=first, body=second):
                    pending += [each for each in (first, second) if each.graph.number not in graphs]
    numbers = {number: position for position, number in enumerate(sorted(graphs))}
    pool = bytearray()
    main, *referenced = (_with_constants(graphs[number], numbers, pool) for number in numbers)
    extensions = tuple(ExtensionNameAndPrefix(name, prefix) for prefix, name in plan.graph.extensions.items())
    pools = (Memory.of(pool),) if pool else ()
    return Model(main, tuple(referenced), b"", pools, relaxed, extensions)


def _with_constants(graph: Graph, numbers: Mapping[int, int], pool: bytearray) -> Subgraph:
    """Return a subgraph whose constants are added to a pool. `numbers`: the new number of each subgraph."""
    operands = []
    for index, operand in enumerate(graph.operands):
        if operand.lifetime in _CONSTANTS:
            operand = _constant(operand, graph.constants[index].tobytes(), pool)
        elif operand.lifetime == OperandLifeTime.SUBGRAPH:
            operand = replace(operand, location=DataLocation(offset=numbers[operand.location.offset + 1] - 1))
        operands.append(operand)
    subgraph = graph.subgraph
    return Subgraph(tuple(operands), tuple(subgraph.operations), subgraph.input_indexes, subgraph.output_indexes)


def _constant(operand: Operand, data: bytes, pool: bytearray) -> Operand:
    pool += bytes(align(len(pool)) - len(pool))
    location = DataLocation(0, len(pool), len(data))
    pool += data
    return replace(operand, lifetime=OperandLifeTime.CONSTANT_POOL, location=location)
