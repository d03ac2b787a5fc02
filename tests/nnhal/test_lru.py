"""The LRU dictionary: what it evicts, and when."""

import pytest

from nnhal.lru import LruDict


def filled(capacity: int, *keys: str) -> LruDict[str, int]:
    lru = LruDict[str, int](capacity)
    for value, key in enumerate(keys):
        lru.put(key, value)
    return lru


def test_least_recently_used_entry_is_evicted() -> None:
    lru = filled(2, "a", "b")
    assert lru.use("a") == 0
    assert lru.put("c", 2) == ("b", 1)
    assert list(lru) == ["a", "c"]


def test_plain_lookups_are_not_uses() -> None:
    lru = filled(2, "a", "b")
    assert lru["a"] == lru.get("a") == 0 and "a" in lru
    assert lru.put("c", 2) == ("a", 0)


def test_replacing_a_value_evicts_nothing_and_counts_as_a_use() -> None:
    lru = filled(2, "a", "b")
    assert lru.put("a", 7) is None
    assert lru.put("c", 2) == ("b", 1)
    assert dict(lru) == {"a": 7, "c": 2}


def test_unknown_key_is_an_error() -> None:
    with pytest.raises(KeyError):
        filled(1).use("a")
