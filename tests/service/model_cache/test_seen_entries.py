"""Seals of seen entries: an older entry is noticed when it comes back, an equal one that is saved again is fine."""

import os
from collections.abc import Callable, Iterator

import pytest

from nnhal_cache.seal import SEAL_BYTES
from nnhal_service.model_cache.seen_entries import SeenEntries

OWNER, TOKEN = "owner", bytes(32)

MakeModel = Callable[[int], int]


@pytest.fixture
def model() -> Iterator[MakeModel]:
    """Return a function that makes a file with a seal of a number."""
    opened = []

    def make(number: int) -> int:
        opened.append(os.memfd_create("model"))
        os.write(opened[-1], b"model" + bytes([number]) * SEAL_BYTES)
        return opened[-1]

    yield make
    for descriptor in opened:
        os.close(descriptor)


def test_entry_that_was_replaced_here_or_elsewhere(model: MakeModel) -> None:
    seen = SeenEntries()
    seen.saved(OWNER, TOKEN, model(1))
    assert not seen.is_rolled_back(OWNER, TOKEN, model(1))
    seen.saved(OWNER, TOKEN, model(2))
    assert seen.is_rolled_back(OWNER, TOKEN, model(1))
    assert not seen.is_rolled_back(OWNER, TOKEN, model(3))  # another process has replaced it
    assert seen.is_rolled_back(OWNER, TOKEN, model(2))
    assert not seen.is_rolled_back(OWNER, TOKEN, model(3))


def test_other_owners_and_tokens_are_apart(model: MakeModel) -> None:
    seen = SeenEntries()
    seen.saved(OWNER, TOKEN, model(1))
    seen.saved(OWNER, TOKEN, model(2))
    assert not seen.is_rolled_back("other", TOKEN, model(1))
    assert not seen.is_rolled_back(OWNER, bytes([1]) * 32, model(1))


def test_entry_that_is_saved_again(model: MakeModel) -> None:
    seen = SeenEntries()
    for number in (1, 2, 1):
        seen.saved(OWNER, TOKEN, model(number))
    assert not seen.is_rolled_back(OWNER, TOKEN, model(1))
    assert seen.is_rolled_back(OWNER, TOKEN, model(2))


def test_short_file(model: MakeModel) -> None:
    seen = SeenEntries()
    descriptor = model(1)
    os.ftruncate(descriptor, 3)
    assert not seen.is_rolled_back(OWNER, TOKEN, descriptor)
