"""The seal: HMAC-SHA-256 of the body and the token."""

import hmac

from nnhal_cache.seal import SEAL_BYTES, compute_seal


def test_seal_covers_body_and_token_in_any_pieces() -> None:
    expected = hmac.digest(b"key", b"body" + b"token", "sha256")
    assert compute_seal(b"key", [b"body"], b"token") == expected
    assert compute_seal(b"key", [b"bo", memoryview(b"dy")], b"token") == expected
    assert len(expected) == SEAL_BYTES
    assert compute_seal(b"key", [b"body"], b"other") != expected
    assert compute_seal(b"other", [b"body"], b"token") != expected
