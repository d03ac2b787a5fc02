"""Decoding of requests: invalid bytes become INVALID_ARGUMENT with details.

gRPC itself would respond with INTERNAL and log a stack trace, so the decoders here never raise.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from nnhal.errors import HalError, invalid_argument

Method = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class DecodeFailure:
    """Takes the place of a request that could not be decoded."""

    reason: str

    def error(self) -> HalError:
        """Return the INVALID_ARGUMENT error of the call."""
        return invalid_argument(f"the request cannot be decoded: {self.reason}")


def without_raising(decode: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Wrap a decoder so that it returns a DecodeFailure instead of raising an exception."""

    def decode_or_fail(encoded: bytes) -> Any:
        try:
            return decode(encoded)
        except Exception as error:
            return DecodeFailure(str(error) or type(error).__name__)

    return decode_or_fail


def check_request(method: Method) -> Method:
    """Wrap a method with one request so that it raises the error of a DecodeFailure."""

    def call(request: Any, *rest: Any) -> Any:
        if type(request) is DecodeFailure:
            raise request.error()
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
            raise request.error()
        yield request
