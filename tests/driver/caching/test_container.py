"""The container: what was saved comes back as it was, or not at all."""

import mmap
import os
import struct
import threading
import time
from typing import Any

import numpy as np
import pytest

from driver.caching import container as module
from driver.caching.container import FORMAT, SEAL_BYTES, Container, ContainerWriter
from driver.caching.files import read
from driver.caching.miss import CacheMissError
from nnhal.types import AnyArray
from tests.driver.caching.pair import KEY, TOKEN, Pair, contents, flip, rewrite

WEIGHTS = np.linspace(-1, 1, 33, dtype=np.float32)
AXES = np.array([[0, 1], [2, 3]], np.int32)
ARRAYS: list[AnyArray] = [
    WEIGHTS,
    AXES,
    np.arange(7, dtype=np.int8),
    np.array([True, False]),
    np.arange(5, dtype=np.float16),
    np.array(3, np.int32),
    np.empty((0, 3), np.float32),
]


def save(pair: Pair, arrays: list[AnyArray] = ARRAYS, key: bytes = KEY, token: bytes = TOKEN) -> list[int]:
    writer = ContainerWriter()
    numbers = [writer.array(array) for array in arrays]
    numbers.append(writer.blob(b"some bytes"))
    with pair.opened(token) as files:
        writer.write(files, key, {"colour": "blue"})
    return numbers


def load(pair: Pair, key: bytes = KEY, token: bytes = TOKEN, *, check: bool = True) -> Container:
    with pair.opened(token) as files:
        made = Container(files, key)
        made.read_data(check=check)
        made.finish()
    return made


def missed(pair: Pair, key: bytes = KEY, token: bytes = TOKEN) -> CacheMissError:
    with pytest.raises(CacheMissError) as caught:
        load(pair, key, token)
    return caught.value


def test_what_was_saved_comes_back(pair: Pair) -> None:
    numbers = save(pair)
    found = load(pair)
    assert found.document["colour"] == "blue"
    for number, array in zip(numbers, ARRAYS, strict=False):
        back = found.array(number)
        assert (back.dtype, back.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(back, array)
        assert not back.flags.writeable
    assert found.blob(numbers[-1]) == b"some bytes"


def test_files_may_hold_anything_and_stand_anywhere_before(pair: Pair) -> None:
    for descriptor in (pair.model, pair.data):
        os.write(descriptor, bytes(100_000))
    save(pair)
    load(pair)
    assert os.lseek(pair.model, 0, os.SEEK_CUR) == 100_000


def test_scalars_are_sealed_whatever_their_type(pair: Pair) -> None:
    scale = np.array(1.2345, np.float32)
    save(pair, [scale, WEIGHTS])
    assert scale.tobytes() in contents(pair.model)
    assert scale.tobytes() not in contents(pair.data)


def test_integers_and_booleans_are_sealed_and_other_tensors_are_not(pair: Pair) -> None:
    save(pair)
    assert WEIGHTS.tobytes() in contents(pair.data)
    assert WEIGHTS.tobytes() not in contents(pair.model)
    assert AXES.tobytes() in contents(pair.model)
    assert AXES.tobytes() not in contents(pair.data)


def test_equal_arrays_are_kept_once(pair: Pair) -> None:
    save(pair, [WEIGHTS])
    once = os.fstat(pair.data).st_size
    save(pair, [WEIGHTS, WEIGHTS.copy(), WEIGHTS.reshape(3, 11), WEIGHTS.view(np.uint8)])
    assert os.fstat(pair.data).st_size == once
    save(pair, [WEIGHTS, WEIGHTS + 1])
    assert os.fstat(pair.data).st_size > once


def test_large_arrays_keep_their_place_within_a_page(pair: Pair) -> None:
    memory = np.arange(100_000, dtype=np.float32)
    numbers = save(pair, [WEIGHTS, memory[5:], memory[: 1 << 15]])
    found = load(pair)
    for number, array in zip(numbers[1:], (memory[5:], memory[: 1 << 15]), strict=False):
        back = found.array(number)
        np.testing.assert_array_equal(back, array)
        assert back.ctypes.data % mmap.PAGESIZE == array.ctypes.data % mmap.PAGESIZE


def test_every_byte_of_the_model_cache_is_sealed(pair: Pair) -> None:
    save(pair)
    for at in range(os.fstat(pair.model).st_size):
        flip(pair.model, at, 1 << at % 8)
        missed(pair)
        flip(pair.model, at, 1 << at % 8)
    load(pair)


def test_every_byte_of_the_data_cache_is_in_its_digest(pair: Pair) -> None:
    save(pair)
    for at in range(os.fstat(pair.data).st_size):
        flip(pair.data, at)
        error = missed(pair)
        assert error.damaged and "digest" in error.reason
        flip(pair.data, at)
    load(pair)


def test_a_large_data_cache_is_checked_as_well(pair: Pair) -> None:
    save(pair, [np.zeros(1 << 20, np.int8)])
    load(pair)
    flip(pair.data, 1 << 19)
    assert "digest" in missed(pair).reason


@pytest.mark.parametrize("size", [1000, 1 << 20], ids=["read at once", "read by a thread"])
def test_a_data_cache_that_shrinks_while_it_is_read(pair: Pair, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    (number, _) = save(pair, [np.zeros(size, np.int8)])
    whole = os.fstat(pair.data).st_size
    os.ftruncate(pair.data, size // 2)
    monkeypatch.setattr("driver.caching.data_file.size_of", lambda _: whole)
    with pair.opened() as files:
        container = Container(files, KEY)
        container.read_data(check=True)
        for look in (lambda: container.array(number), container.finish):
            with pytest.raises(CacheMissError, match=f"truncated: {size // 2} of {whole}"):
                look()


def test_no_memory_for_a_data_cache(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise MemoryError

    save(pair, [np.zeros(1 << 20, np.int8)])
    monkeypatch.setattr("driver.caching.data_file.read", none)
    with pytest.raises(MemoryError):
        load(pair)


def test_what_is_not_used_leaves_no_thread(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*arguments: Any) -> Any:
        time.sleep(0.05)
        return read(*arguments)

    save(pair, [np.zeros(1 << 20, np.int8)])
    monkeypatch.setattr("driver.caching.data_file.read", slow)
    with pair.opened() as files:
        container = Container(files, KEY)
        container.read_data(check=True)
        assert "nnhal-data-cache" in [thread.name for thread in threading.enumerate()]
        container.close()
        assert "nnhal-data-cache" not in [thread.name for thread in threading.enumerate()]


def test_unchecked_data_brings_other_numbers_and_the_same_shapes(pair: Pair) -> None:
    numbers = save(pair)
    rewrite(pair.data, lambda held: bytes(0xFF for _ in held))
    found = load(pair, check=False)
    assert found.array(numbers[0]).shape == WEIGHTS.shape
    np.testing.assert_array_equal(found.array(numbers[1]), AXES)


@pytest.mark.parametrize("which", ["model", "data"])
def test_truncated_and_extended_files_are_refused(pair: Pair, which: str) -> None:
    save(pair)
    descriptor = getattr(pair, which)
    whole = contents(descriptor)
    for size in range(len(whole)):
        rewrite(descriptor, lambda held, size=size: bytes(held[:size]))  # type: ignore[misc]
        error = missed(pair)
        assert "truncated" in error.reason or "empty" in error.reason or "no model cache" in error.reason
    for extra in (1, 256):
        rewrite(descriptor, lambda held, extra=extra: whole + bytes(extra))  # type: ignore[misc]
        assert "extended" in missed(pair).reason


def test_keys_and_tokens(pair: Pair) -> None:
    save(pair)
    assert missed(pair, key=bytes(32)).reason == "it was saved with another key"
    assert missed(pair, token=bytes(32)).reason == "it was saved with another token"
    for bit in range(256):
        other = bytearray(TOKEN)
        other[bit // 8] ^= 1 << bit % 8
        missed(pair, token=bytes(other))


def test_files_of_two_models_do_not_mix(pair: Pair) -> None:
    save(pair, [WEIGHTS])
    held = contents(pair.data)
    save(pair, [WEIGHTS + 1])
    rewrite(pair.data, lambda _: held)
    assert "digest" in missed(pair).reason


def test_nothing_saved(pair: Pair) -> None:
    error = missed(pair)
    assert "nothing was saved" in error.reason and not error.damaged


def test_another_format_says_so_and_is_not_damaged(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FORMAT", 1)
    save(pair)
    monkeypatch.undo()
    error = missed(pair)
    assert f"format 1, this driver reads {FORMAT}" in error.reason and not error.damaged
    monkeypatch.setattr(module, "FORMAT", FORMAT + 1)
    save(pair)
    monkeypatch.undo()
    error = missed(pair)
    assert f"format {FORMAT + 1}, this driver reads {FORMAT}" in error.reason and not error.damaged
    flip(pair.model, os.fstat(pair.model).st_size - 1)  # also where its seal is made in another way
    assert "format" in missed(pair).reason


def test_another_file_altogether(pair: Pair) -> None:
    save(pair)
    rewrite(pair.model, lambda held: os.urandom(len(held)))
    assert "no file of this driver" in missed(pair).reason


def test_a_seal_made_without_the_key_is_none(pair: Pair) -> None:
    """A forger who knows the form, and not the key."""
    save(pair, key=bytes(32))
    forged = bytearray(contents(pair.model))
    name = module.key_name(KEY)
    struct.pack_into("<16s", forged, 24, name)
    rewrite(pair.model, lambda _: bytes(forged))
    assert "seal" in missed(pair).reason
    assert len(forged) > SEAL_BYTES
