"""Sections of CpuAcc in the compilation cache: loading restores the model's file."""

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")

from nnhal.types import AnyArray, DataLocation, Memory, Model, Operand, OperandLifeTime, Operation, Subgraph
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.api import CompileOptions, Sections
from nnhal_driver.backends.litert.backend import CpuAcc
from nnhal_driver.backends.litert.engine import Interpreter
from nnhal_driver.backends.litert.serialization import load, save
from nnhal_driver.backends.litert.subgraph import LitertSubgraph
from nnhal_driver.backends.litert.writer import ConstantLocation, ModelFile
from nnhal_driver.graph import build_graphs, subgraph_view
from nnhal_driver.mapped_memory import MAPPED_BYTES, allocate
from tests.driver.backends.litert.support.page_maps import in_memory_file
from tests.driver.control_flow_models import VALUES, adds_one


def compile_addition(shape: tuple[int, ...]) -> LitertSubgraph:
    (graph,) = build_graphs(Model(adds_one(shape), operand_values=VALUES))
    subgraph = CpuAcc().compile(subgraph_view(graph, [0], relaxed=False), CompileOptions(1))
    assert isinstance(subgraph, LitertSubgraph)
    return subgraph


def test_loading_restores_the_file() -> None:
    (engine,) = compile_addition((1,)).pools
    built, shapes = load(save(engine.model, ((1,),)))
    np.testing.assert_array_equal(built.file.contents(), engine.model.file.contents())
    assert (built.inputs, built.outputs, built.operators) == (
        engine.model.inputs,
        engine.model.outputs,
        engine.model.operators,
    )
    assert shapes == ((1,),)


def test_model_with_unknown_shapes_is_not_saved() -> None:
    assert compile_addition((1,)).save() is not None
    assert compile_addition((0,)).save() is None


def test_small_models_are_bytes_and_large_models_files() -> None:
    transposed = np.arange(10, dtype=np.float32).reshape(2, 5).T
    large = np.resize(np.arange(251, dtype=np.uint8), MAPPED_BYTES)
    locations = [ConstantLocation(64, 40, "FLOAT32"), ConstantLocation(128, MAPPED_BYTES, "UINT8")]
    small = ModelFile(b"head", locations[:1], [transposed])
    assert isinstance(small.source, bytes) and small.source[:4] == b"head"
    file = ModelFile(b"head", locations, [transposed, lambda: large])
    assert isinstance(file.source, str) and file.size == 128 + MAPPED_BYTES
    np.testing.assert_array_equal(file.contents()[:104], small.contents())
    np.testing.assert_array_equal(small.contents()[64:].view(np.float32), transposed.reshape(-1))
    np.testing.assert_array_equal(file.contents()[128:], large)


def compile_product(weights: AnyArray) -> LitertSubgraph:
    """Compile x @ weights.T + 0 for weights [n, n] in a pool."""
    size = len(weights)
    operands = (
        Operand(T.TENSOR_FLOAT32, (1, size), lifetime=OperandLifeTime.SUBGRAPH_INPUT),
        Operand(
            T.TENSOR_FLOAT32,
            (size, size),
            lifetime=OperandLifeTime.CONSTANT_POOL,
            location=DataLocation(0, 0, weights.nbytes),
        ),
        Operand(
            T.TENSOR_FLOAT32, (size,), lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(0, 4, 4 * size)
        ),
        Operand(T.INT32, lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(0, 0, 4)),
        Operand(T.TENSOR_FLOAT32, (1, size), lifetime=OperandLifeTime.SUBGRAPH_OUTPUT),
    )
    main = Subgraph(operands, (Operation(Op.FULLY_CONNECTED, (0, 1, 2, 3), (4,)),), (0,), (4,))
    model = Model(main, operand_values=bytes(4 + 4 * size), pools=(Memory.of(weights),))
    (graph,) = build_graphs(model)
    subgraph = CpuAcc().compile(subgraph_view(graph, [0], relaxed=False), CompileOptions(1))
    assert isinstance(subgraph, LitertSubgraph)
    return subgraph


@pytest.mark.parametrize("shift", [0, 64, 2000], ids=["page start", "64 bytes further", "2000 bytes further"])
def test_large_constants_share_pages_after_compiling_and_loading(shift: int) -> None:
    size = 512
    memory = allocate(MAPPED_BYTES)
    weights = memory[shift : shift + size * size * 4].view(np.float32).reshape(size, size)
    weights[:] = np.random.default_rng(0).standard_normal((size, size))
    expected = weights.copy()
    memory.flags.writeable = weights.flags.writeable = False
    (engine,) = compile_product(weights).pools
    assert in_memory_file(weights), "the pages are not shared"
    sections = save(engine.model, ((1, size),))
    loaded_memory = allocate(MAPPED_BYTES)
    data = []
    for array in sections.data:  # as the model cache reads them: aligned, at another offset within the page
        start = 64 if array.nbytes == expected.nbytes else 2 * expected.nbytes
        loaded_memory[start : start + array.nbytes] = array.reshape(-1).view(np.uint8)
        data.append(loaded_memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape))
    loaded_memory.flags.writeable = False
    for array in data:
        array.flags.writeable = False
    built, _ = load(Sections(sections.model, tuple(data)))
    shared = [array for array in data if array.nbytes == expected.nbytes]
    assert len(shared) == 1 and in_memory_file(shared[0]), "the pages are not shared"
    np.testing.assert_array_equal(shared[0].reshape(-1), expected.reshape(-1))
    np.testing.assert_array_equal(weights, expected)
    x = np.ones((1, size), np.float32)
    results = []
    for model in (engine.model, built):
        interpreter = Interpreter(model.file.source, 1)
        (tensor,), ((output, _),) = model.inputs, model.outputs
        assert tensor is not None and output is not None
        interpreter.view(tensor)[...] = x
        interpreter.invoke()
        results.append(interpreter.view(output).copy())
    np.testing.assert_allclose(results[0], x @ expected.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(results[0], results[1])
