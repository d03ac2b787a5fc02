"""Subgraphs of TENSOR_FLOAT16 in float32, in which the accelerator and CpuRef compute them."""

from dataclasses import replace

import numpy as np

from nnhal.types import AnyArray, OperandType, Subgraph
from nnhal_driver.backends.litert.shape_analysis import analyze_shapes
from nnhal_driver.graph import Graph, SubgraphView

_WIDER: dict[int, int] = {
    OperandType.TENSOR_FLOAT16: OperandType.TENSOR_FLOAT32,
    OperandType.FLOAT16: OperandType.FLOAT32,
}


def widen(view: SubgraphView) -> SubgraphView:
    """Return a subgraph with float32 in place of float16; the same one if it has no float16.

    The engine's conversions at the ends would run on the CPU. Values within the subgraph are not rounded to float16.
    """
    graph, known = view.graph, analyze_shapes(view.graph)
    used = {i for each in view.operations for i in (*each.operation.inputs, *each.operation.outputs)}
    if not any(graph.operands[i].type in _WIDER for i in used):
        return view
    operands, constants = list(graph.operands), dict[int, AnyArray]()
    for i in used:
        operand = operands[i]
        type_, dimensions = _WIDER.get(operand.type, operand.type), known.shapes.get(i, operand.dimensions)
        operands[i] = replace(operand, type=type_, dimensions=dimensions)
        if i in graph.constants:
            array = graph.constants[i]
            constants[i] = array.astype(np.float32) if type_ != operand.type else array
    operations = tuple(each.operation for each in view.operations)
    subgraph = Subgraph(tuple(operands), operations, view.inputs, view.outputs)
    wide = Graph(graph.number, subgraph, constants, extensions=graph.extensions, check=graph.check)
    return SubgraphView(wide, wide.operations, view.inputs, view.outputs, view.relaxed)
