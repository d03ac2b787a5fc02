"""Pools of models and requests (V-POOL).

Hardware buffers do not travel, so V-POOL-03 has nothing to judge. A `ReturnedPool` is no pool of the HAL: one of fixed
size obeys what a shared memory of that size obeys.
"""

from collections.abc import Sequence
from functools import partial

from driver.validation.rule import Rules
from nnhal.types import PROT_READ, PROT_WRITE, BufferToken, Memory, RequestMemoryPool, ReturnedPool

POOL = Rules[RequestMemoryPool]()


def check_pools(pools: Sequence[RequestMemoryPool], name: str) -> None:
    """Judges pools that passed the wire level.

    Args:
        pools: of a model or a request.
        name: what a person calls each of them ("model pool").

    Raises:
        HalError: INVALID_ARGUMENT, V-POOL-01, -02 or -05.
    """
    for index, pool in enumerate(pools):
        POOL.check(pool, partial((name + " {}").format, index))


def pool_size(pool: RequestMemoryPool) -> int:
    """Bytes for checks of bounds (V-POOL-04); 0 for tokens and returned pools that grow: only the whole is meant."""
    if isinstance(pool, Memory):
        return pool.size
    return (pool.size or 0) if isinstance(pool, ReturnedPool) else 0


@POOL.forbid("V-POOL-02")
def _window_outside_its_buffer(pool: RequestMemoryPool) -> str | None:
    if not isinstance(pool, Memory):
        return None
    if pool.offset < 0:
        return f"has offset {pool.offset}, must be >= 0"
    if pool.offset + pool.size > pool.buffer.size:
        return f"ends at byte {pool.offset + pool.size} of a memory of {pool.buffer.size} bytes"
    return None


@POOL.forbid("V-POOL-01")
def _empty_memory(pool: RequestMemoryPool) -> str | None:
    size = pool.size if isinstance(pool, Memory | ReturnedPool) else None
    return f"has size {size}, must be > 0" if size is not None and size <= 0 else None


@POOL.forbid("V-POOL-02")
def _unknown_protection(pool: RequestMemoryPool) -> str | None:
    if isinstance(pool, Memory) and pool.prot & ~(PROT_READ | PROT_WRITE):
        return f"has prot {pool.prot}, must be made of read ({PROT_READ}) and write ({PROT_WRITE})"
    return None


@POOL.forbid("V-POOL-05")
def _token_that_is_never_given(pool: RequestMemoryPool) -> str | None:
    return f"has token {pool.token}, must be > 0" if isinstance(pool, BufferToken) and pool.token <= 0 else None
