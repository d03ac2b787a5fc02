"""Static bearer tokens: a file has their names and digests.

A token has 256 random bits. So a fast digest protects it: unlike for passwords, there is no dictionary to try. A reader
of the file cannot authenticate with it.
"""

import hashlib
import logging
import os
import re
import secrets
import stat
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from nnhal_service.log import event
from nnhal_service.replaced_files import file_version

PREFIX = "nnhal_"
"""Start of tokens, by which scanners find them in files that should not have them."""
TOKEN_BYTES = 32
CHECK_S = 0.5
"""Seconds after which a lookup checks whether the file has changed."""

_LINE = re.compile(r"(?P<name>\S+)\s+sha256:(?P<digest>[0-9a-f]{64})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@/-]{0,127}")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def token_digest(token: str) -> bytes:
    """Return the digest of a token."""
    return hashlib.sha256(token.encode()).digest()


def create_token(name: str) -> tuple[str, str]:
    """Return a new token and its line for the file.

    Raises:
        ValueError: the name is invalid.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"invalid name {name!r}; expected letters, digits and . _ @ / - (at most 128)")
    token = PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    return token, f"{name} sha256:{token_digest(token).hex()}"


class TokenTable:
    """Names of tokens, from a file that may be replaced at any time. Thread safe.

    If the file becomes unreadable or invalid, its last valid contents count until it is repaired: one wrong line must
    not end the sessions of all clients. The log and the metrics tell.

    Attributes:
        problem: why the file as it is now cannot be used; "" if its contents count.

    Raises:
        ValueError: the file is unreadable or invalid when the object is created.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._version = file_version(path)
        self._names = _read(path)
        self.problem = ""
        self._checked_at = time.monotonic()

    def name(self, digest: bytes) -> str | None:
        """Return the name of the token with a digest, or None if there is none."""
        if time.monotonic() - self._checked_at >= CHECK_S:
            self.refresh()
        return self._names.get(digest)

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        with self._lock:
            self._checked_at = time.monotonic()
            version = file_version(self._path)
            if version == self._version:
                return
            try:
                names = _read(self._path)
            except ValueError as error:
                if str(error) != self.problem:
                    event("tokens-unusable", logging.WARNING, reason=str(error))
                self._version, self.problem = None, str(error)
                return
            self._names, self._version, self.problem = names, version, ""
            event("tokens-read", tokens=len(names))


def _read(path: Path) -> Mapping[bytes, str]:
    """Return the names by digest. Errors have no line of the file."""
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            lines = file.read().splitlines()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8") from None
    if mode & _WRITABLE_BY_OTHERS:
        raise ValueError(f"{path} has mode {stat.S_IMODE(mode):04o}; others may write to it, and so add tokens")
    names: dict[bytes, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = _LINE.fullmatch(text)
        if match is None or not _NAME.fullmatch(match["name"]):
            raise ValueError(f"{path}, line {number}: expected NAME sha256:DIGEST, as `nnhal token create` prints it")
        names[bytes.fromhex(match["digest"])] = match["name"]
    return names
