"""Pools of models and requests (V-POOL).

Hardware buffers are not transmitted, so V-POOL-03 has no function. `ReturnedPool` is not in the HAL. One of fixed size
follows the rules for shared memory of that size.
"""

from collections.abc import Sequence
from functools import partial

from nnhal.rules.rule import Rules
from nnhal.types import PROT_READ, PROT_WRITE, BufferToken, Memory, RequestMemoryPool, ReturnedPool

POOL_RULES = Rules[RequestMemoryPool]()


def check_pools(pools: Sequence[RequestMemoryPool], name: str) -> None:
    """Check pools of a known kind. `name`: the name of each pool in messages ("model pool").

    Raises:
        HalError: INVALID_ARGUMENT, V-POOL-01, -02 or -05.
    """
    for index, pool in enumerate(pools):
        POOL_RULES.check(pool, partial((name + " {}").format, index))


def pool_size(pool: RequestMemoryPool) -> int:
    """Return the bytes of a pool for bounds checks (V-POOL-04).

    Tokens and returned pools that grow give 0, because an argument can only use them as a whole.
    """
    if isinstance(pool, Memory):
        return pool.size
    return (pool.size or 0) if isinstance(pool, ReturnedPool) else 0


@POOL_RULES.forbid("V-POOL-02")
def _window_outside_its_buffer(pool: RequestMemoryPool) -> str | None:
    if not isinstance(pool, Memory):
        return None
    if pool.offset < 0:
        return f"has offset {pool.offset}, must be >= 0"
    if pool.offset + pool.size > pool.buffer.size:
        return f"ends at byte {pool.offset + pool.size} of a memory of {pool.buffer.size} bytes"
    return None


@POOL_RULES.forbid("V-POOL-01")
def _empty_memory(pool: RequestMemoryPool) -> str | None:
    size = pool.size if isinstance(pool, Memory | ReturnedPool) else None
    return f"has size {size}, must be > 0" if size is not None and size <= 0 else None


@POOL_RULES.forbid("V-POOL-02")
def _unknown_protection(pool: RequestMemoryPool) -> str | None:
    if isinstance(pool, Memory) and pool.prot & ~(PROT_READ | PROT_WRITE):
        return f"has prot {pool.prot}, must be made of read ({PROT_READ}) and write ({PROT_WRITE})"
    return None


@POOL_RULES.forbid("V-POOL-05")
def _invalid_token(pool: RequestMemoryPool) -> str | None:
    return f"has token {pool.token}, must be > 0" if isinstance(pool, BufferToken) and pool.token <= 0 else None
