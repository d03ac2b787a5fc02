"""Length of cache tokens."""

from nnhal.errors import invalid_argument
from nnhal.types import CACHE_TOKEN_BYTES


def check_token(token: bytes) -> None:
    """Check the length of a cache token.

    Raises:
        HalError: INVALID_ARGUMENT: the length is wrong.
    """
    if len(token) != CACHE_TOKEN_BYTES:
        raise invalid_argument(f"the cache token has {len(token)} bytes, must have {CACHE_TOKEN_BYTES}")
