"""What CpuAcc keeps in the compilation cache: a model's file, made again as it was."""

import mmap

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")

from driver.backends.api import CompileOptions
from driver.backends.litert.backend import CpuAcc
from driver.backends.litert.compiled import LitertSubgraph
from driver.backends.litert.pages import LEAST
from driver.backends.litert.saving import load, save
from driver.backends.litert.writer import IN_MEMORY_BYTES, ModelFile, Place, Value
from driver.graph import graphs, subgraph_view
from nnhal.types import Model
from tests.driver.test_control_flow import VALUES, adds_one


def compiled(shape: tuple[int, ...]) -> LitertSubgraph:
    (graph,) = graphs(Model(adds_one(shape), operand_values=VALUES))
    made = CpuAcc().compile(subgraph_view(graph, [0], relaxed=False), CompileOptions(1))
    assert isinstance(made, LitertSubgraph)
    return made


def test_the_same_file_comes_back() -> None:
    (engine,) = compiled((1,)).engines
    built, shapes = load(save(engine.built, ((1,),)))
    np.testing.assert_array_equal(built.file.contents(), engine.built.file.contents())
    assert (built.inputs, built.outputs, built.operators) == (
        engine.built.inputs,
        engine.built.outputs,
        engine.built.operators,
    )
    assert shapes == ((1,),)


def test_a_model_whose_shapes_are_open_keeps_nothing() -> None:
    assert compiled((1,)).save() is not None
    assert compiled((0,)).save() is None


def test_small_models_are_bytes_and_large_ones_files() -> None:
    turned, large = (
        np.arange(10, dtype=np.float32).reshape(2, 5).T,
        np.resize(np.arange(251, dtype=np.uint8), IN_MEMORY_BYTES),
    )
    values: list[Value] = [turned, lambda: large]
    places = [Place(64, 40, "FLOAT32"), Place(128, IN_MEMORY_BYTES, "UINT8")]
    small = ModelFile(b"head", places[:1], values[:1])
    assert isinstance(small.source, bytes) and small.source[:4] == b"head"
    file = ModelFile(b"head", places, values)
    assert isinstance(file.source, str) and file.size == 128 + IN_MEMORY_BYTES
    np.testing.assert_array_equal(file.contents()[:104], small.contents())
    np.testing.assert_array_equal(small.contents()[64:].view(np.float32), turned.reshape(-1))
    np.testing.assert_array_equal(file.contents()[128:], large)


@pytest.mark.parametrize("shift", [0, 64], ids=["same place in its page", "another"])
def test_large_constants_may_lie_anywhere_within_a_page(shift: int) -> None:
    memory = np.zeros(34 * 2**20 + mmap.PAGESIZE, np.uint8)
    start = -memory.ctypes.data % mmap.PAGESIZE
    memory[start : start + LEAST] = np.arange(LEAST) % 251
    memory.flags.writeable = False
    value = memory[start : start + LEAST]
    file = ModelFile(b"head", [Place(mmap.PAGESIZE + shift, LEAST, "UINT8")], [value])
    np.testing.assert_array_equal(file.contents()[mmap.PAGESIZE + shift :], value)
    np.testing.assert_array_equal(value, np.arange(LEAST) % 251)
