"""Reader of .wav files: integer and float samples, of any rate and number of channels.

Source: Multimedia Programming Interface and Data Specifications 1.0 (RIFF), and Microsoft's WAVEFORMATEXTENSIBLE.
"""

import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
"""Formats of samples. The extensible one has the number of the actual format in its bytes 24 and 25."""


def read_wav(data: bytes, rate: int) -> NDArray[np.float32]:
    """Return the samples in -1..1: the mean of all channels, at a rate in Hz (linear interpolation).

    Raises:
        ValueError: the bytes are not a .wav file, or its samples have another format.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise ValueError("it is not a .wav file")
    chunks = dict(_chunks(data))
    if len(chunks.get(b"fmt ", b"")) < 16 or b"data" not in chunks:
        raise ValueError("the file is damaged or truncated")
    format_, channels, own_rate, _, _, bits = struct.unpack_from("<HHIIHH", chunks[b"fmt "])
    if format_ == _EXTENSIBLE and len(chunks[b"fmt "]) >= 26:
        (format_,) = struct.unpack_from("<H", chunks[b"fmt "], 24)
    if not channels or not own_rate:
        raise ValueError("it has no channels, or no samples per second")
    samples = _decode(chunks[b"data"], format_, bits)
    mono = samples[: len(samples) // channels * channels].reshape(-1, channels).mean(axis=1)
    if not len(mono):
        raise ValueError("it has no samples")
    positions = np.arange(round(len(mono) * rate / own_rate)) * (own_rate / rate)
    return np.asarray(np.interp(positions, np.arange(len(mono)), mono), np.float32)


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    position = 12
    while position + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, position)
        yield name, data[position + 8 : position + 8 + size]
        position += 8 + size + size % 2


def _decode(data: bytes, format_: int, bits: int) -> NDArray[np.float64]:
    if format_ == _FLOAT and bits in (32, 64):
        return np.frombuffer(data[: len(data) // (bits // 8) * (bits // 8)], f"<f{bits // 8}").astype(np.float64)
    if format_ != _PCM or bits not in (8, 16, 24, 32):
        raise ValueError(f"its samples have format {format_} with {bits} bits; expected integers or floats")
    if bits == 8:  # the only unsigned one
        return np.frombuffer(data, np.uint8) / 128.0 - 1
    size = bits // 8
    raw = np.zeros((len(data) // size, 4), np.uint8)  # the highest bytes of 32-bit integers
    raw[:, 4 - size :] = np.frombuffer(data[: len(raw) * size], np.uint8).reshape(-1, size)
    return np.asarray(raw.view("<i4").ravel() / 2.0**31)
