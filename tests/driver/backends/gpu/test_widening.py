"""float16 on the GPU: constants, chains through a buffer, and values that float16 cannot hold."""

import numpy as np
import pytest

from nnhal import ModelBuilder
from nnhal.types import (
    BufferDesc,
    BufferRole,
    BufferToken,
    DataLocation,
    Memory,
    Model,
    Request,
    RequestArgument,
    ReturnedPool,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.gpu.widening import widen
from nnhal_driver.graph import build_graphs, subgraph_view
from tests.driver.backends.gpu.software_gpu import gpu_device, require_software_gpu
from tests.driver.one_operation import execute, prepare, tensor

HALF = tensor(T.TENSOR_FLOAT16, (2, 4))
X = np.linspace(-2, 2, 8, dtype=np.float16).reshape(2, 4)
WEIGHTS = np.arange(4, dtype=np.float16)


def unary(type_: Op) -> Model:
    builder = ModelBuilder()
    builder.output(builder.add(type_, builder.input(HALF.type, HALF.dimensions), output=HALF))
    return builder.build()


def compressed() -> Model:
    """Return x + w for a float32 input, and constants that are stored in float16."""
    builder = ModelBuilder()
    wide = tensor(T.TENSOR_FLOAT32, (2, 4))
    weights = builder.add(Op.CAST, builder.constant(WEIGHTS), output=tensor(T.TENSOR_FLOAT32, (4,)))
    builder.output(builder.add(Op.ADD, builder.input(wide.type, wide.dimensions), weights, 0, output=wide))
    return builder.build()


def test_constants_that_are_stored_in_float16() -> None:
    require_software_gpu()
    outcome = prepare(compressed(), gpu_device())
    (result,) = execute(outcome, [X.astype(np.float32)])[1]
    np.testing.assert_allclose(result, X.astype(np.float32) + WEIGHTS, rtol=1e-6)


def test_results_that_float16_cannot_hold_are_infinite() -> None:
    require_software_gpu()
    (result,) = execute(prepare(unary(Op.EXP), gpu_device()), [X * np.float16(10)])[1]
    assert result.dtype == np.float16 and np.isinf(result[1, 3]) and np.isfinite(result[0]).all()


def test_chain_through_a_buffer() -> None:
    require_software_gpu()
    first, second = (prepare(unary(type_), gpu_device()).prepared_model for type_ in (Op.TANH, Op.ABS))
    assert first is not None and second is not None
    buffer = gpu_device().allocate(BufferDesc(), (first, second), (BufferRole(1, 0),), (BufferRole(0, 0),))
    token, size = BufferToken(buffer.token), X.nbytes
    image, output = RequestArgument(False, DataLocation(0, 0, size)), RequestArgument(False, DataLocation(1))
    first.execute_synchronously(Request((image,), (output,), (Memory.of(X), token)))
    np.testing.assert_allclose(buffer.read().view(np.float16).reshape(2, 4), np.tanh(X), rtol=2e-3)
    whole = RequestArgument(False, DataLocation(0))
    (data,) = second.execute_synchronously(Request((whole,), (output,), (token, ReturnedPool()))).returned
    assert data is not None
    np.testing.assert_allclose(data.view(np.float16).reshape(2, 4), np.abs(np.tanh(X)), rtol=2e-3)


@pytest.mark.parametrize("model", [compressed(), unary(Op.TANH)])
def test_wide_subgraph_has_no_float16(model: Model) -> None:
    graph = build_graphs(model)[0]
    view = subgraph_view(graph, range(len(graph.operations)), relaxed=False)
    wide = widen(view)
    used = {i for each in wide.operations for i in (*each.operation.inputs, *each.operation.outputs)}
    assert T.TENSOR_FLOAT16 not in {wide.graph.operands[i].type for i in used}
    assert (wide.inputs, wide.outputs) == (view.inputs, view.outputs)
    assert widen(wide) is wide
