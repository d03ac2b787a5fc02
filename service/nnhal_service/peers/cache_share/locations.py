"""Locations of shares and of models: directories, and URLs of what fsspec can reach."""

import importlib.util
from pathlib import Path
from urllib.parse import unquote, urlsplit

from nnhal_service.peers.cache_share.directory_store import DirectoryStore
from nnhal_service.peers.cache_share.stores import ObjectStore


def directory_of(url: str) -> Path | None:
    """Return the directory that a URL or a path means, or None if it means another store."""
    if "://" not in url:
        return Path(url).absolute()
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def check_url(url: str, option: str) -> None:
    """Check the URL that an option has, and that the packages are installed that it needs.

    Raises:
        ValueError: it cannot be used.
    """
    directory = directory_of(url)
    parts = urlsplit(url)
    if directory is not None:
        if parts.netloc not in ("", "localhost") or str(directory) in ("", "."):
            raise ValueError(f"{option} {url}: expected an absolute path after file://")
        return
    if parts.password is not None or parts.query:
        raise ValueError(
            f"{option}: a URL must not contain a password or parameters; configure the store or fsspec instead"
        )
    if importlib.util.find_spec("fsspec") is None:
        raise ValueError(f"{option} {url} needs the package fsspec: install nnhal[share]")
    from fsspec.registry import known_implementations, registry  # noqa: PLC0415

    if parts.scheme in registry:
        return
    known = known_implementations.get(parts.scheme)
    if known is None:
        raise ValueError(f"{option} {url}: fsspec knows no store {parts.scheme!r}")
    package = str(known["class"]).partition(".")[0]
    if importlib.util.find_spec(package) is None:
        raise ValueError(f"{option} {url} needs the package {package}")


def open_store(url: str, timeout_s: float) -> ObjectStore:
    """Return the store at a path or URL that `check_url` accepts. Nothing is read yet.

    Each request may take `timeout_s` seconds, where the store can limit them.

    Raises:
        Exception: the store cannot be opened, for any reason that its package has.
    """
    directory = directory_of(url)
    if directory is not None:
        return DirectoryStore(directory)
    from nnhal_service.peers.cache_share.fsspec_store import FsspecStore  # noqa: PLC0415

    return FsspecStore(url, timeout_s)
