"""The seal of a model cache: its last bytes, by which its owner detects changes. The driver seals, `verify` checks."""

import hmac
from collections.abc import Iterable
from typing import TypeAlias

SEAL_BYTES = 32

_Buffer: TypeAlias = bytes | bytearray | memoryview


def compute_seal(key: bytes, body: Iterable[_Buffer], token: bytes) -> bytes:
    """Return the seal of a model cache: HMAC-SHA-256, by the key, of all bytes before the seal, then the token."""
    seal = hmac.new(key, digestmod="sha256")
    for piece in body:
        seal.update(piece)
    seal.update(token)
    return seal.digest()
