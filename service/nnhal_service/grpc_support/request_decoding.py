"""Decoding of requests: invalid bytes become INVALID_ARGUMENT with details, and limits are checked first.

gRPC itself would respond with INTERNAL and log a stack trace, so the decoders here never raise.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from nnhal.errors import HalError, invalid_argument

Method = Callable[..., Any]
Reject = Callable[..., object]
"""Takes an error, and the arguments of a method after the request."""


@dataclass(frozen=True, slots=True)
class DecodeFailure:
    """Takes the place of a request that could not be decoded."""

    error: HalError


def fail(error: HalError, *_: object) -> NoReturn:
    """Raise an error."""
    raise error


def checked_decoder(check: Callable[[bytes], None], decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return a decoder that checks the bytes first, and returns a DecodeFailure instead of raising an exception."""

    def decode_or_fail(encoded: bytes) -> Any:
        try:
            check(encoded)
            return decode(encoded)
        except HalError as error:
            return DecodeFailure(error)
        except Exception as error:
            return DecodeFailure(
                invalid_argument(f"the request cannot be decoded: {str(error) or type(error).__name__}")
            )

    return decode_or_fail


def check_request(method: Method, reject: Reject = fail) -> Method:
    """Wrap a method with one request so that the error of a DecodeFailure is passed to `reject` instead."""

    def call(request: Any, *rest: Any) -> Any:
        if type(request) is DecodeFailure:
            return reject(request.error, *rest)
        return method(request, *rest)

    return call


def check_requests(method: Method) -> Method:
    """Wrap a method with a stream of requests, whose iteration then raises the error of a DecodeFailure."""

    def call(requests: Iterator[Any], *rest: Any) -> Any:
        return method(_checked(requests), *rest)

    return call


def _checked(requests: Iterator[Any]) -> Iterator[Any]:
    for request in requests:
        if type(request) is DecodeFailure:
            raise request.error
        yield request
