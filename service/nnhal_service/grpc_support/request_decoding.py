"""Decoding of requests: invalid bytes become INVALID_ARGUMENT with details.

gRPC itself would decode all requests on one thread, where large ones hold up other calls, and respond to invalid ones
with INTERNAL and a stack trace in the log.
"""

from collections.abc import Callable
from typing import Any, NoReturn

from nnhal.errors import HalError, invalid_argument

Decode = Callable[[bytes], Any]
Reject = Callable[..., object]
"""Takes an error, and the arguments of a method after the request."""


def fail(error: HalError, *_: object) -> NoReturn:
    """Raise an error."""
    raise error


def checked_decoder(check: Callable[[bytes], None], decode: Decode) -> Decode:
    """Return a decoder that checks the bytes first. It raises a HalError: that of the check; INVALID_ARGUMENT."""

    def check_and_decode(encoded: bytes) -> Any:
        check(encoded)
        try:
            return decode(encoded)
        except Exception as error:
            text = str(error) or type(error).__name__
            raise invalid_argument(f"the request cannot be decoded: {text}") from None

    return check_and_decode
