"""Windows on the pools of a model: they cover the constants of a part, and not much more."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nnhal.client.fallback.constants import ALIGNMENT, MAX_GAP_BYTES, PoolWindows
from nnhal.types import DataLocation, Memory, Model, Operand, OperandLifeTime, Subgraph

SIZE = 8 * MAX_GAP_BYTES
BUFFER = np.random.default_rng(0).integers(0, 256, SIZE, np.uint8)
NO_OPERATIONS = Subgraph((), (), (), ())


def constant(pool: int, offset: int, length: int) -> Operand:
    return Operand(lifetime=OperandLifeTime.CONSTANT_POOL, location=DataLocation(pool, offset, length))


REGIONS = st.tuples(st.integers(0, 2), st.integers(0, SIZE - 5000), st.integers(1, 4000)).map(
    lambda region: constant(*region)
)


@given(st.lists(REGIONS, max_size=8), st.lists(REGIONS, max_size=3))
def test_constants_keep_their_values(operands: list[Operand], referenced: list[Operand]) -> None:
    subgraphs = (NO_OPERATIONS, replace(NO_OPERATIONS, operands=tuple(referenced)))
    model = Model(NO_OPERATIONS, subgraphs, pools=tuple(Memory(BUFFER, i, SIZE - i) for i in range(3)))
    windows = PoolWindows(model, operands, [1])
    for operand in (*operands, *referenced):
        location, moved = operand.location, windows.move(operand).location
        pool, window = model.pools[location.pool_index], windows.pools[moved.pool_index]
        assert isinstance(pool, Memory)
        assert isinstance(window, Memory)
        assert window.buffer is BUFFER
        end = moved.offset + moved.length
        assert end <= window.size
        assert moved.offset % ALIGNMENT == location.offset % ALIGNMENT
        np.testing.assert_array_equal(
            window.view[moved.offset : end], pool.view[location.offset : location.offset + location.length]
        )
    used = sum(operand.location.length for operand in (*operands, *referenced))
    total = sum(window.size for window in windows.pools if isinstance(window, Memory))
    assert total <= used + (MAX_GAP_BYTES + ALIGNMENT) * len([*operands, *referenced])


def test_other_operands_are_not_changed() -> None:
    operand = Operand(lifetime=OperandLifeTime.CONSTANT_COPY, location=DataLocation(0, 3, 4))
    assert PoolWindows(Model(NO_OPERATIONS), [operand], []).move(operand) is operand
