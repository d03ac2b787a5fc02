"""Sources of the keys of an issuer: a file, or a URL.

`python -m nnhal_service.identity.jwks URL FILE LEVEL FORMAT` fetches keys into a file. Workers cannot connect to other
machines, so their supervisor has this done in a process of its own.
"""

import logging
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from nnhal_service import log
from nnhal_service.replaced_files import read_file, replace_file

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
        return partial(read_file, Path(source))
    url = urlsplit(source)
    if url.scheme != "https" and not (url.scheme == "http" and url.hostname in _LOOPBACK):
        raise ValueError(f"invalid source of keys {source!r}; expected a path or a URL that starts with https://")
    return partial(_get, source)


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


def fetch_keys(url: str, path: Path) -> bool:
    """Replace a file by the keys at a URL. Return whether that succeeded; the log has the reason otherwise."""
    try:
        text = fetcher(url)()
    except ValueError as error:
        log.event("jwks-unusable", logging.WARNING, reason=str(error))
        return False
    replace_file(path, text)
    return True


if __name__ == "__main__":
    url_, path_, level, format_ = sys.argv[1:]
    log.configure(level, format_)
    sys.exit(not fetch_keys(url_, Path(path_)))
