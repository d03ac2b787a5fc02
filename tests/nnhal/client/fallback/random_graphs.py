"""Random graphs that tests divide."""

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from nnhal import ModelBuilder
from nnhal.builder import OperandRef
from nnhal.types import AnyArray, Memory, Model, OperandLifeTime, Subgraph
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.backends.litert.support.random_graphs import Sample
from tests.driver.one_operation import tensor
from tests.nnhal.client.fallback.in_process import run_whole
from tests.nnhal.client.fallback.models import F32, X


def move_to_pools(model: Model) -> Model:
    """Return the model with its constants in the second of two pools."""

    def move(graph: Subgraph) -> Subgraph:
        return replace(
            graph,
            operands=tuple(
                replace(o, lifetime=OperandLifeTime.CONSTANT_POOL, location=replace(o.location, pool_index=1))
                if o.lifetime == OperandLifeTime.CONSTANT_COPY
                else o
                for o in graph.operands
            ),
        )

    pools = (Memory.of(bytes(4)), Memory.of(bytes(model.operand_values) + bytes(1)))
    return replace(
        model, main=move(model.main), referenced=tuple(map(move, model.referenced)), operand_values=b"", pools=pools
    )


@st.composite
def connected_graphs(draw: st.DrawFn) -> Sample:
    """Return a graph whose operations read what other operations, inputs and constants provide."""
    builder = ModelBuilder()
    inputs = [builder.input(T.TENSOR_FLOAT32, F32.dimensions) for _ in range(draw(st.integers(1, 2)))]
    arrays = [X - i for i in range(len(inputs))]
    values: list[OperandRef | AnyArray] = [*inputs, X + 3]
    results: list[OperandRef] = []
    for _ in range(draw(st.integers(2, 12))):
        type_ = draw(st.sampled_from([Op.ADD, Op.MAXIMUM, Op.SUB, Op.ABS, Op.NEG, Op.CONCATENATION]))
        a, b = draw(st.sampled_from(values)), draw(st.sampled_from(values))
        if type_ in (Op.ADD, Op.SUB):
            results.append(builder.add(type_, a, b, 0, output=F32))
        elif type_ == Op.MAXIMUM:
            results.append(builder.add(type_, a, b, output=F32))
        elif type_ == Op.CONCATENATION:  # an intermediate result of two outputs
            joined = builder.add(type_, a, b, 0, output=tensor(T.TENSOR_FLOAT32, (4, 3)))
            results += builder.add(Op.SPLIT, joined, 0, 2, outputs=[F32, F32])
        else:
            results.append(builder.add(type_, a, output=F32))
        values += results[-2:]
    for position in draw(st.lists(st.integers(0, len(results) - 1), min_size=1, max_size=3, unique=True)):
        builder.output(results[position])
    model = builder.build() if draw(st.booleans()) else move_to_pools(builder.build())
    expected = run_whole(model, arrays)
    return Sample(model, arrays, expected, [np.zeros(())] * len(expected))
