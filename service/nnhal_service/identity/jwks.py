"""Sources of the keys of an issuer: a file, or a URL."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

Fetch = Callable[[], bytes]
"""Returns the JSON text of a set of keys. Raises ValueError if that fails."""

TIMEOUT_S = 5
MAX_BYTES = 2**20
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def is_url(source: str) -> bool:
    """Return whether a source of keys is a URL, not a path."""
    return "://" in source


def fetcher(source: str) -> Fetch:
    """Return a function that reads the keys of a source.

    Raises:
        ValueError: the source is a URL that others could answer, because it is not of https.
    """
    if not is_url(source):
        return partial(_read, Path(source))
    url = urlsplit(source)
    if url.scheme != "https" and not (url.scheme == "http" and url.hostname in _LOOPBACK):
        raise ValueError(f"invalid source of keys {source!r}; expected a path or a URL that starts with https://")
    return partial(_get, source)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None


def _get(url: str) -> bytes:
    import urllib.error  # noqa: PLC0415 - takes 30 ms, and few services need it
    import urllib.request  # noqa: PLC0415

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        """Handler that follows no redirects: they could lead to a server that the operator has not named."""

        def redirect_request(self, *_: object) -> None:
            return None

    try:
        with urllib.request.build_opener(NoRedirects).open(url, timeout=TIMEOUT_S) as response:
            text: bytes = response.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ValueError(f"cannot fetch {url}: {error}") from None
    if len(text) > MAX_BYTES:
        raise ValueError(f"{url} has more than {MAX_BYTES} bytes")
    return text
