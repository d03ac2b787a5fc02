"""Bodies: compression in both directions, bombs, and the memory of all of them."""

import gzip
import zlib

import pytest
from starlette.exceptions import HTTPException

from nnhal_service.operating.web.inference.bodies import BodyMemory, compress, decompress

BODY = b"body" * 100


@pytest.mark.parametrize(
    ("body", "encoding"),
    [(BODY, ""), (BODY, "identity"), (gzip.compress(BODY), "GZip"), (zlib.compress(BODY), " deflate ")],
    ids=["none", "identity", "gzip", "deflate"],
)
def test_decompression(body: bytes, encoding: str) -> None:
    assert decompress(body, encoding, len(BODY)) == BODY


@pytest.mark.parametrize(
    ("body", "encoding", "status"),
    [
        (b"", "br", 415),
        (b"none", "gzip", 400),
        (gzip.compress(BODY)[:-9], "gzip", 400),
        (gzip.compress(BODY[:9]) + gzip.compress(BODY[9:]), "gzip", 400),
        (gzip.compress(bytes(2**24)), "gzip", 413),
        (zlib.compress(bytes(len(BODY) + 1)), "deflate", 413),
    ],
    ids=["unknown encoding", "not gzip", "cut off", "two members", "gzip bomb", "deflate bomb"],
)
def test_body_that_is_refused(body: bytes, encoding: str, status: int) -> None:
    with pytest.raises(HTTPException) as caught:
        decompress(body, encoding, len(BODY))
    assert caught.value.status_code == status


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("", None), ("gzip", "gzip"), ("br, Deflate;q=0.5", "deflate"), ("gzip;q=0.000, deflate", "deflate"), ("*", None)],
)
def test_compression(accepted: str, encoding: str | None) -> None:
    body, headers = compress(BODY, accepted)
    assert headers.get("content-encoding") == encoding
    assert decompress(body, encoding or "", len(BODY)) == BODY


def test_memory_of_all_bodies() -> None:
    memory = BodyMemory()
    with memory.reserve(100 * 2**20):
        with pytest.raises(HTTPException) as caught, memory.reserve(100 * 2**20):
            pass
        assert (caught.value.status_code, caught.value.headers) == (503, {"retry-after": "1"})
    with memory.reserve(100 * 2**20):
        pass
