"""Bodies of requests and responses: their compression, and the memory that all of them may take together."""

import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from starlette.exceptions import HTTPException
from starlette.requests import Request

_MAX_BYTES = 128 * 2**20
_GZIP_BITS = 16 + zlib.MAX_WBITS
_WINDOW_BITS = {"gzip": _GZIP_BITS, "deflate": zlib.MAX_WBITS}
_COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": lambda body: gzip.compress(body, 1, mtime=0),
    "deflate": lambda body: zlib.compress(body, 1),
}


class BodyMemory:
    """Memory of the bodies in progress. For one event loop."""

    def __init__(self) -> None:
        self._used = 0

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Reserve memory.

        Raises:
            HTTPException: 503, there is not enough of it.
        """
        if self._used + size > _MAX_BYTES:
            raise HTTPException(503, "there are too many large requests at once; try again", {"retry-after": "1"})
        self._used += size
        try:
            yield
        finally:
            self._used -= size


def expected_size(request: Request, limit: int) -> int:
    """Return the size of a body, as its sender says; the limit if it does not.

    Raises:
        HTTPException: 413, it is too large.
    """
    text = request.headers.get("content-length", "")
    size = int(text) if text.isdecimal() else limit
    if size > limit:
        raise _too_large(limit)
    return limit if "content-encoding" in request.headers else size


async def read_body(request: Request, limit: int) -> bytes:
    """Return the body of a request.

    Raises:
        HTTPException: 413, it is too large.
    """
    chunks, size = [], 0
    async for chunk in request.stream():
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
    return b"".join(chunks)


def decompress(body: bytes, encoding: str, limit: int) -> bytes:
    """Return a body without its compression.

    Raises:
        HTTPException: 415, 400 or 413: the encoding is unknown, the body is damaged, or it is too large.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in _WINDOW_BITS:
        raise HTTPException(415, f"unknown content encoding {encoding!r}; expected gzip or deflate")
    stream = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        whole = stream.decompress(body, limit)
    except zlib.error as error:
        raise HTTPException(400, f"the body is not {encoding}: {error}") from error
    if stream.unconsumed_tail:
        raise _too_large(limit)
    if not stream.eof:
        raise HTTPException(400, f"the body is not {encoding}: it ends early")
    if stream.unused_data:
        raise HTTPException(400, f"the body is not {encoding}: more follows its end")
    return whole


def compress(body: bytes, accepted: str) -> tuple[bytes, dict[str, str]]:
    """Return a body in the first encoding that the client asks for and the service has, and its headers."""
    for text in accepted.lower().split(","):
        name, _, weight = text.strip().partition(";")
        if name in _COMPRESS and weight.strip().rstrip("0.") != "q=":
            return _COMPRESS[name](body), {"content-encoding": name}
    return body, {}


def _too_large(limit: int) -> HTTPException:
    return HTTPException(413, f"the body has more than {limit} bytes, see the limit message_bytes")
