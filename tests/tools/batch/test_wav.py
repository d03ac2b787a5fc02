"""Reading of .wav files: formats of samples, channels, rates, and damaged files."""

import struct

import numpy as np
import numpy.typing as npt
import pytest

from nnhal_tools.batch.wav import read_wav

SAMPLES = np.array([0, 0.5, -0.5, -1, 0.25], np.float64)


def wav(
    data: bytes, format_: int, bits: int, *, channels: int = 1, rate: int = 16_000, extensible: bool = False
) -> bytes:
    """Return a .wav file, with a chunk of an odd size that readers must skip."""
    size = channels * bits // 8
    header = struct.pack("<HHIIHH", 0xFFFE if extensible else format_, channels, rate, rate * size, size, bits)
    if extensible:
        header += struct.pack("<HHIH14s", 22, bits, 0, format_, b"")
    chunks = [(b"LIST", b"odd"), (b"fmt ", header), (b"data", data)]
    body = b"".join(name + struct.pack("<I", len(part)) + part + bytes(len(part) % 2) for name, part in chunks)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


def encode(samples: npt.NDArray[np.float64], bits: int) -> bytes:
    if bits == 8:
        return (samples * 128 + 128).astype(np.uint8).tobytes()
    integers = (samples * 2.0 ** (bits - 1)).astype("<i4")
    return integers.view(np.uint8).reshape(-1, 4)[:, : bits // 8].tobytes()


@pytest.mark.parametrize("extensible", [False, True])
@pytest.mark.parametrize("bits", [8, 16, 24, 32])
def test_integers_of_all_sizes(bits: int, extensible: bool) -> None:
    file = wav(encode(SAMPLES, bits), 1, bits, extensible=extensible)
    np.testing.assert_array_equal(read_wav(file, 16_000), SAMPLES.astype(np.float32))


@pytest.mark.parametrize("bits", [32, 64])
def test_floats(bits: int) -> None:
    np.testing.assert_array_equal(read_wav(wav(SAMPLES.astype(f"<f{bits // 8}").tobytes(), 3, bits), 16_000), SAMPLES)


def test_channels_are_averaged_and_the_rate_is_converted() -> None:
    stereo = np.stack([SAMPLES, np.zeros(5)], axis=1).ravel()
    np.testing.assert_array_equal(read_wav(wav(encode(stereo, 16), 1, 16, channels=2), 16_000), SAMPLES / 2)
    slow = read_wav(wav(encode(SAMPLES, 16), 1, 16, rate=8_000), 16_000)
    assert slow.tolist() == [0, 0.25, 0.5, 0, -0.5, -0.75, -1, -0.375, 0.25, 0.25]
    assert len(read_wav(wav(encode(np.zeros(44_100), 16), 1, 16, rate=44_100), 16_000)) == 16_000


@pytest.mark.parametrize(
    ("file", "word"),
    [
        (b"", "not a .wav file"),
        (b"OggS" * 10, "not a .wav file"),
        (wav(b"", 1, 16), "no samples"),
        (wav(b"aaaa", 17, 4), "its samples have format 17 with 4 bits"),
        (wav(b"aaaa", 1, 16, channels=0), "no channels"),
        (wav(b"aaaa", 1, 16, rate=0), "no samples per second"),
    ],
)
def test_files_of_other_kinds_are_rejected(file: bytes, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        read_wav(file, 16_000)


def test_no_truncated_or_damaged_file_raises_another_error() -> None:
    whole = wav(encode(SAMPLES, 24), 1, 24)
    generator = np.random.default_rng(0)
    damaged = [whole[:size] for size in range(len(whole))]
    for _ in range(300):
        bytes_ = bytearray(whole)
        bytes_[generator.integers(len(bytes_))] = generator.integers(256)
        damaged.append(bytes(bytes_))
    for file in damaged:
        try:
            read_wav(file, 16_000)
        except ValueError:
            continue
