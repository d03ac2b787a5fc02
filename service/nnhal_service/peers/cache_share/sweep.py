"""Eviction in the share: the objects that were written or refreshed longest ago go first.

Every member may do it. A mark in the store says when one has begun, and for an hour no other one lists the objects.
"""

from nnhal_service.peers.cache_share.envelope import FOLDER, NAME
from nnhal_service.peers.cache_share.stores import ObjectStore

SWEEP_S = 3600.0
"""Seconds between two sweeps."""
MARK = f"{FOLDER}/swept"
"""Name of the mark."""
_FILLED = 0.9
"""Part of the limit to which a sweep reduces the objects."""


def sweep(store: ObjectStore, max_bytes: int, now: float) -> int:
    """Remove objects if they have more bytes than they may, and none has done so lately. Return how many are removed.

    Other files are not counted and stay. `now` is in seconds since 1970.

    Raises:
        Exception: the store has failed.
    """
    try:
        if abs(now - store.modified_at(MARK)) < SWEEP_S:
            return 0
    except FileNotFoundError:
        pass
    store.replace(MARK, b"")
    found = [each for each in store.list(FOLDER) if NAME.fullmatch(each.name)]
    excess = sum(each.size for each in found)
    excess = excess - int(max_bytes * _FILLED) if excess > max_bytes else 0
    count = 0
    for each in sorted(found, key=lambda each: each.modified_at):
        if excess <= 0:
            break
        store.delete(each.name)
        excess, count = excess - each.size, count + 1
    return count
