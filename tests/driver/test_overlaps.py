"""Arrays that overlap in memory are stored and copied once."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from nnhal.types import Bytes, DataLocation, Memory, Model, Operand, OperandLifeTime, Subgraph
from nnhal.types import OperandType as T
from nnhal_driver.graph import build_graphs
from nnhal_driver.memory_estimate import model_bytes
from nnhal_driver.overlaps import ALIGNMENT, address, merge

COUNT, ELEMENTS = 100, 10_000


def memory(size: int) -> Bytes:
    return np.random.default_rng(1).integers(0, 256, size, np.uint8)


def test_arrays_that_overlap_have_one_region() -> None:
    pool = memory(100)
    regions, places = merge([pool[16:48], pool[80:90], pool[0:20], pool[32:60], pool[60:70]])
    assert [region.size for region in regions] == [60, 10, 10]
    assert all(np.shares_memory(region, pool) for region in regions)
    assert places == [(0, 16), (1, 0), (0, 0), (0, 32), (2, 0)]


def test_regions_have_the_order_of_the_arrays() -> None:
    """Saved files must not depend on the addresses of a process."""
    pool = memory(200)
    low, high = pool[0:16], pool[96:112]
    for arrays in ([low, high], [high, low]):
        regions, places = merge(arrays)
        assert [address(region) for region in regions] == [address(array) for array in arrays]
        assert places == [(0, 0), (1, 0)]


@pytest.mark.parametrize("seed", range(20))
def test_places_have_the_bytes_and_the_alignment_of_the_arrays(seed: int) -> None:
    chance, pool, other = Random(seed), memory(3000), memory(3000)
    arrays = []
    for _ in range(chance.randrange(60)):
        start = chance.randrange(3000)
        arrays.append(chance.choice((pool, other))[start : start + chance.choice((0, 1, 4, 100, 2000))])
    regions, places = merge(arrays)
    for array, (number, offset) in zip(arrays, places, strict=True):
        assert offset % ALIGNMENT == 0
        np.testing.assert_array_equal(regions[number][offset : offset + array.size], array)
        if array.size:
            assert address(regions[number]) + offset == address(array)
    assert sum(region.size for region in regions) <= ALIGNMENT * (pool.size + other.size)


def windows(type_: T, step: int, subgraphs: int = 1) -> Model:
    """Return a model of constants that overlap in writable memory, `step` bytes apart."""
    size = ELEMENTS * (1 if type_ == T.TENSOR_BOOL8 else 4)
    pool = memory(size + COUNT * step) % 2
    operands = tuple(
        Operand(
            type_, (ELEMENTS,), lifetime=OperandLifeTime.CONSTANT_POOL, location=DataLocation(0, number * step, size)
        )
        for number in range(COUNT)
    )
    graph = Subgraph(operands, (), (), ())
    return Model(graph, (graph,) * (subgraphs - 1), pools=(Memory.of(pool),))


@pytest.mark.parametrize(("type_", "step"), [(T.TENSOR_FLOAT32, 4), (T.TENSOR_INT32, 3), (T.TENSOR_BOOL8, 1)])
def test_copies_of_overlapping_constants_are_views_of_one_copy(type_: T, step: int) -> None:
    model = windows(type_, step, subgraphs=3)
    pool = model.pools[0]
    assert isinstance(pool, Memory)
    empty = replace(model, pools=(), main=replace(model.main, operands=()), referenced=(Subgraph((), (), (), ()),) * 2)
    copied = model_bytes(model) - model_bytes(empty) - 3 * COUNT * (2**10 + 40)
    assert copied <= ALIGNMENT * pool.size
    before = pool.view.copy()
    graphs = build_graphs(model)
    pool.view[:] = 1  # the copies stay
    constants = [array for graph in graphs for array in graph.constants.values()]
    assert len({id(array.base) for array in constants}) <= ALIGNMENT
    for graph in graphs:
        for number, array in graph.constants.items():
            raw = before[number * step : number * step + array.nbytes]
            expected = raw != 0 if type_ == T.TENSOR_BOOL8 else raw.view(array.dtype)
            np.testing.assert_array_equal(array, expected)
            assert not array.flags.writeable and array.flags.aligned
