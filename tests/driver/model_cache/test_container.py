"""The container returns the saved data unchanged, or reports a miss."""

import os
import struct
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nnhal.types import AnyArray
from nnhal_cache.errors import TooLargeError
from nnhal_cache.seal import SEAL_BYTES
from nnhal_driver.mapped_memory import MAPPED_BYTES, in_own_mapping
from nnhal_driver.model_cache import container as module
from nnhal_driver.model_cache.container import FORMAT, Container, ContainerWriter
from nnhal_driver.model_cache.files import CacheMissError, OpenFiles, read_file
from tests.driver.model_cache.cache_files import KEY, TOKEN, Pair, contents, flip, rewrite

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
    numbers = [writer.add_array(array) for array in arrays]
    numbers.append(writer.add_blob(b"some bytes"))
    with pair.opened(token) as files:
        writer.write(files, key, {"color": "blue"})
    return numbers


def load(pair: Pair, key: bytes = KEY, token: bytes = TOKEN, *, check: bool = True) -> Container:
    with pair.opened(token) as files:
        container = Container(files, key)
        container.read_data(check=check)
        container.finish()
    return container


def load_error(pair: Pair, key: bytes = KEY, token: bytes = TOKEN) -> CacheMissError:
    with pytest.raises(CacheMissError) as caught:
        load(pair, key, token)
    return caught.value


def test_arrays_that_overlap_are_stored_once(pair: Pair) -> None:
    pool = np.arange(10_000, dtype=np.float32)
    windows: list[AnyArray] = [pool[number : number + 9000] for number in range(800)]
    numbers = save(pair, [*windows, pool[5:11].copy()])
    assert os.fstat(pair.data).st_size < 5 * pool.nbytes
    container = load(pair)
    for number, window in zip(numbers, windows, strict=False):
        array = container.array(number)
        np.testing.assert_array_equal(array, window)
        assert array.flags.aligned


def save_with_check(pair: Pair, check_size: Callable[[int], None]) -> None:
    writer = ContainerWriter()
    writer.add_array(WEIGHTS)
    writer.add_array(AXES)
    files = OpenFiles(replace(pair.files(), check_size=check_size))
    try:
        writer.write(files, KEY, {})
    finally:
        files.close()


def test_size_is_checked_before_files_are_written(pair: Pair) -> None:
    sizes: list[int] = []
    save_with_check(pair, sizes.append)
    assert sizes == [len(contents(pair.model)) + len(contents(pair.data))]

    def refuse(size: int) -> None:
        raise TooLargeError(f"{size} bytes are too many")

    before = contents(pair.model), contents(pair.data)
    with pytest.raises(TooLargeError, match=f"^{sizes[0]} bytes"):
        save_with_check(pair, refuse)
    assert (contents(pair.model), contents(pair.data)) == before


def test_round_trip(pair: Pair) -> None:
    numbers = save(pair)
    container = load(pair)
    assert container.document["color"] == "blue"
    for number, array in zip(numbers, ARRAYS, strict=False):
        loaded = container.array(number)
        assert (loaded.dtype, loaded.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(loaded, array)
        assert not loaded.flags.writeable
    assert container.blob(numbers[-1]) == b"some bytes"


def test_previous_contents_and_offset_are_ignored(pair: Pair) -> None:
    for descriptor in (pair.model, pair.data):
        os.write(descriptor, bytes(100_000))
    save(pair)
    load(pair)
    assert os.lseek(pair.model, 0, os.SEEK_CUR) == 100_000


def test_scalars_of_any_type_are_sealed(pair: Pair) -> None:
    scale = np.array(1.2345, np.float32)
    save(pair, [scale, WEIGHTS])
    assert scale.tobytes() in contents(pair.model)
    assert scale.tobytes() not in contents(pair.data)


def test_only_integer_and_boolean_tensors_are_sealed(pair: Pair) -> None:
    save(pair)
    assert WEIGHTS.tobytes() in contents(pair.data)
    assert WEIGHTS.tobytes() not in contents(pair.model)
    assert AXES.tobytes() in contents(pair.model)
    assert AXES.tobytes() not in contents(pair.data)


def test_equal_arrays_are_stored_once(pair: Pair) -> None:
    save(pair, [WEIGHTS])
    size = os.fstat(pair.data).st_size
    save(pair, [WEIGHTS, WEIGHTS.copy(), WEIGHTS.reshape(3, 11), WEIGHTS.view(np.uint8)])
    assert os.fstat(pair.data).st_size == size
    save(pair, [WEIGHTS, WEIGHTS + 1])
    assert os.fstat(pair.data).st_size > size


@pytest.mark.parametrize("size", [100_000, MAPPED_BYTES // 4], ids=["small", "large"])
def test_arrays_of_the_data_cache_are_aligned(pair: Pair, size: int) -> None:
    memory = np.arange(size, dtype=np.float32)
    numbers = save(pair, [WEIGHTS, memory[5:], memory[: 1 << 15]])
    container = load(pair)
    for number, expected in zip(numbers[1:], (memory[5:], memory[: 1 << 15]), strict=False):
        array = container.array(number)
        np.testing.assert_array_equal(array, expected)
        assert array.flags.aligned
        assert in_own_mapping(array) == (memory.nbytes >= MAPPED_BYTES)


def test_seal_covers_every_byte_of_the_model_cache(pair: Pair) -> None:
    save(pair)
    for at in range(os.fstat(pair.model).st_size):
        flip(pair.model, at, 1 << at % 8)
        load_error(pair)
        flip(pair.model, at, 1 << at % 8)
    load(pair)


def test_digest_covers_every_byte_of_the_data_cache(pair: Pair) -> None:
    save(pair)
    for at in range(os.fstat(pair.data).st_size):
        flip(pair.data, at)
        error = load_error(pair)
        assert error.damaged and "digest" in error.reason
        flip(pair.data, at)
    load(pair)


def test_large_data_cache_is_checked(pair: Pair) -> None:
    save(pair, [np.zeros(1 << 20, np.int8)])
    load(pair)
    flip(pair.data, 1 << 19)
    assert "digest" in load_error(pair).reason


@pytest.mark.parametrize("size", [1000, 1 << 20], ids=["read at once", "read by a thread"])
def test_data_cache_shrinks_during_the_read(pair: Pair, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    (number, _) = save(pair, [np.zeros(size, np.int8)])
    status = os.fstat(pair.data)
    full_size = status.st_size
    os.ftruncate(pair.data, size // 2)
    monkeypatch.setattr("nnhal_driver.model_cache.data_file.file_status", lambda _: status)
    with pair.opened() as files:
        container = Container(files, KEY)
        container.read_data(check=True)
        for access in (lambda: container.array(number), container.finish):
            with pytest.raises(CacheMissError, match=f"truncated: {size // 2} of {full_size}"):
                access()


def test_data_cache_exceeds_the_memory(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    save(pair, [np.zeros(1 << 20, np.int8)])
    monkeypatch.setattr("nnhal_driver.model_cache.data_file.read_file", fail)
    with pytest.raises(MemoryError):
        load(pair)


def test_finish_joins_the_reading_thread(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    proceed = threading.Event()

    def slow(*arguments: Any) -> Any:
        proceed.wait(60)
        return read_file(*arguments)

    save(pair, [np.zeros(1 << 20, np.int8)])
    monkeypatch.setattr("nnhal_driver.model_cache.data_file.read_file", slow)
    with pair.opened() as files:
        container = Container(files, KEY)
        container.read_data(check=True)
        assert "nnhal-data-cache" in [thread.name for thread in threading.enumerate()]
        threading.Timer(0.05, proceed.set).start()
        container.finish()
        assert "nnhal-data-cache" not in [thread.name for thread in threading.enumerate()]


def test_unchecked_data_changes_only_values(pair: Pair) -> None:
    numbers = save(pair)
    rewrite(pair.data, lambda data: bytes(0xFF for _ in data))
    container = load(pair, check=False)
    assert container.array(numbers[0]).shape == WEIGHTS.shape
    np.testing.assert_array_equal(container.array(numbers[1]), AXES)


@pytest.mark.parametrize("which", ["model", "data"])
def test_truncated_and_extended_files_are_rejected(pair: Pair, which: str) -> None:
    save(pair)
    descriptor = getattr(pair, which)
    whole = contents(descriptor)
    for size in range(len(whole)):
        rewrite(descriptor, lambda data, size=size: bytes(data[:size]))  # type: ignore[misc]
        error = load_error(pair)
        assert "truncated" in error.reason or "empty" in error.reason or "invalid size" in error.reason
    for extra in (1, 256):
        rewrite(descriptor, lambda data, extra=extra: whole + bytes(extra))  # type: ignore[misc]
        assert "extended" in load_error(pair).reason


def test_other_keys_and_tokens_are_rejected(pair: Pair) -> None:
    save(pair)
    assert load_error(pair, key=bytes(32)).reason == "it was saved with another key"
    assert load_error(pair, token=bytes(32)).reason == "it was saved with another token"
    for bit in range(256):
        other = bytearray(TOKEN)
        other[bit // 8] ^= 1 << bit % 8
        load_error(pair, token=bytes(other))


def test_files_of_two_models_do_not_mix(pair: Pair) -> None:
    save(pair, [WEIGHTS])
    data = contents(pair.data)
    save(pair, [WEIGHTS + 1])
    rewrite(pair.data, lambda _: data)
    assert "digest" in load_error(pair).reason


def test_empty_files(pair: Pair) -> None:
    error = load_error(pair)
    assert "nothing was saved" in error.reason and not error.damaged


def test_other_format_is_reported_and_not_damaged(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FORMAT", 1)
    save(pair)
    monkeypatch.undo()
    error = load_error(pair)
    assert f"format 1, this driver reads {FORMAT}" in error.reason and not error.damaged
    monkeypatch.setattr(module, "FORMAT", FORMAT + 1)
    save(pair)
    monkeypatch.undo()
    error = load_error(pair)
    assert f"format {FORMAT + 1}, this driver reads {FORMAT}" in error.reason and not error.damaged
    flip(pair.model, os.fstat(pair.model).st_size - 1)  # the format is reported even if the seal is invalid
    assert "format" in load_error(pair).reason


def test_random_file_is_rejected(pair: Pair) -> None:
    save(pair)
    rewrite(pair.model, lambda data: os.urandom(len(data)))
    assert "not a file of this driver" in load_error(pair).reason


def test_forged_seal_is_rejected(pair: Pair) -> None:
    """The forger knows the format but not the key."""
    save(pair, key=bytes(32))
    forged = bytearray(contents(pair.model))
    name = module.key_id(KEY)
    struct.pack_into("<16s", forged, 24, name)
    rewrite(pair.model, lambda _: bytes(forged))
    assert "seal" in load_error(pair).reason
    assert len(forged) > SEAL_BYTES
