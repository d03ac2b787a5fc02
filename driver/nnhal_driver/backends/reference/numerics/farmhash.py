"""FarmHash's 64-bit fingerprint of many byte strings of equal length, for LSH_PROJECTION.

Numbers are uint64 arrays with one element for each string. Their arithmetic is modulo 2^64.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nnhal.types import Bytes

Words: TypeAlias = NDArray[np.uint64]
Pair: TypeAlias = tuple[Words, Words]

_K0 = np.uint64(0xC3A5C85C97CB3127)
_K1 = np.uint64(0xB492B66FBE98F273)
_K2 = np.uint64(0x9AE16A3B2F90404F)
_BLOCK = 64


class _Strings:
    """Byte strings [count, length], read as little-endian words. Negative positions count from the end."""

    def __init__(self, data: Bytes) -> None:
        self.count, self.length = data.shape
        self._data = data

    def word(self, position: int, size: int = 8) -> Words:
        """Return the unsigned number in the `size` bytes at `position`."""
        start = position % self.length
        raw = np.ascontiguousarray(self._data[:, start : start + size])
        return raw.view(f"<u{size}")[:, 0].astype(np.uint64)


@np.errstate(over="ignore")
def fingerprint64(data: Bytes) -> Words:
    """Return the fingerprints, uint64 [count], of byte strings, uint8 [count, length] with length >= 4."""
    strings = _Strings(data)
    if strings.length <= 16:
        return _up_to_16(strings)
    if strings.length <= 32:
        return _hash_128_to_64(*_mix_ends(strings, _K1), _factor(strings))
    return _up_to_64(strings) if strings.length <= _BLOCK else _over_64(strings)


def _factor(strings: _Strings) -> np.uint64:
    return _K2 + np.uint64(2 * strings.length)


def _rotate_right(value: Words, bits: int) -> Words:
    """Rotate to the right."""
    return (value >> np.uint64(bits)) | (value << np.uint64(64 - bits))


def _shift_mix(value: Words) -> Words:
    return value ^ (value >> np.uint64(47))


def _hash_128_to_64(a: Words, b: Words, factor: np.uint64 | Words) -> Words:
    """Hash 128 bits to 64 (HashLen16)."""
    return _shift_mix((b ^ _shift_mix((a ^ b) * factor)) * factor) * factor


def _up_to_16(strings: _Strings) -> Words:
    length = np.uint64(strings.length)
    if strings.length >= 8:
        factor = _factor(strings)
        first, last = strings.word(0) + _K2, strings.word(-8)
        return _hash_128_to_64(
            _rotate_right(last, 37) * factor + first, (_rotate_right(first, 25) + last) * factor, factor
        )
    return _hash_128_to_64(length + (strings.word(0, 4) << np.uint64(3)), strings.word(-4, 4), _factor(strings))


def _mix_ends(strings: _Strings, first: np.uint64) -> Pair:
    """Return two numbers mixed from the first and the last 16 bytes."""
    a, b = strings.word(0) * first, strings.word(8)
    c, d = strings.word(-8) * _factor(strings), strings.word(-16) * _K2
    return _rotate_right(a + b, 43) + _rotate_right(c, 30) + d, a + _rotate_right(b + _K2, 18) + c


def _up_to_64(strings: _Strings) -> Words:
    factor = _factor(strings)
    y, z = _mix_ends(strings, _K2)
    z = _hash_128_to_64(y, z, factor)
    e, f = strings.word(16) * factor, strings.word(24)
    g, h = (y + strings.word(-32)) * factor, (z + strings.word(-24)) * factor
    first = strings.word(0) * _K2
    return _hash_128_to_64(
        _rotate_right(e + f, 43) + _rotate_right(g, 30) + h, e + _rotate_right(f + first, 18) + g, factor
    )


def _weak_hash_32(strings: _Strings, position: int, a: Words, b: Words) -> Pair:
    """Hash 32 bytes and two seeds to two numbers (WeakHashLen32WithSeeds)."""
    w, x, y, z = (strings.word(position + 8 * i) for i in range(4))
    a = a + w
    b = _rotate_right(b + a + z, 21)
    mixed = a + x + y
    return mixed + z, b + _rotate_right(mixed, 44) + a


def _over_64(strings: _Strings) -> Words:
    """Hash strings of more than 64 bytes, in blocks of 64. The last 64 bytes are mixed in once more."""
    zeros = np.zeros(strings.count, np.uint64)
    y = np.uint64(81) * _K1 + np.uint64(113) + zeros
    z = _shift_mix(y * _K2 + np.uint64(113)) * _K2
    x = np.uint64(81) * _K2 + strings.word(0)
    v: Pair = (zeros, zeros)
    w: Pair = (zeros, zeros)
    for start in range(0, (strings.length - 1) // _BLOCK * _BLOCK, _BLOCK):
        x, y, z, v, w = _round(strings, start, (x, y, z, v, w), _K1, np.uint64(1))
    factor = _K1 + ((z & np.uint64(0xFF)) << np.uint64(1))
    w = (w[0] + np.uint64((strings.length - 1) % _BLOCK), w[1])
    v = (v[0] + w[0], v[1])
    w = (w[0] + v[0], w[1])
    x, y, z, v, w = _round(strings, strings.length - _BLOCK, (x, y, z, v, w), factor, np.uint64(9))
    return _hash_128_to_64(
        _hash_128_to_64(v[0], w[0], factor) + _shift_mix(y) * _K0 + z, _hash_128_to_64(v[1], w[1], factor) + x, factor
    )


def _round(
    strings: _Strings,
    start: int,
    state: tuple[Words, Words, Words, Pair, Pair],
    factor: np.uint64 | Words,
    weight: np.uint64,
) -> tuple[Words, Words, Words, Pair, Pair]:
    """Mix 64 bytes into the state of seven numbers."""
    x, y, z, v, w = state
    x = _rotate_right(x + y + v[0] + strings.word(start + 8), 37) * factor
    y = _rotate_right(y + v[1] + strings.word(start + 48), 42) * factor
    x = x ^ (w[1] * weight)
    y = y + v[0] * weight + strings.word(start + 40)
    z = _rotate_right(z + w[0], 33) * factor
    v = _weak_hash_32(strings, start, v[1] * factor, x + w[0])
    w = _weak_hash_32(strings, start + 32, z + w[1], y + strings.word(start + 16))
    return z, y, x, v, w
