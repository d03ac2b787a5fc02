"""Identity of a backend object: its own version, the digest of its files, and its options.

Clients and cached models must tell apart two builds of a plug-in that state the same version. So the host adds what the
author may forget to change.
"""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nnhal_driver.backends.api import Backend

_ATTRIBUTE = "_nnhal_identity"
_SHOWN = 8
"""Digits of the digest in a version."""


@dataclass(frozen=True, slots=True)
class BackendIdentity:
    """Facts about a backend object that the host knows.

    Attributes:
        files: SHA-256 of the files of its plug-in; "" for built-in backends, whose version is that of nnhal.
        options: values of its options, by key, sorted. Saved programs depend on them.
        other_options: the same, for options that saved programs do not depend on.
    """

    files: str = ""
    options: tuple[tuple[str, str], ...] = ()
    other_options: tuple[tuple[str, str], ...] = ()

    @property
    def digest(self) -> str:
        """The digest of all that saved programs depend on; that of the files if there are no options; "" if nothing."""
        if not self.options:
            return self.files
        lines = [self.files, *(f"{key}={value!r}" for key, value in self.options)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def set_identity(backend: "Backend", identity: BackendIdentity) -> None:
    """Note the identity of a backend in the object itself, which may be a frozen dataclass."""
    object.__setattr__(backend, _ATTRIBUTE, identity)


def identity_of(backend: "Backend") -> BackendIdentity:
    """Return the identity of a backend; an empty one if there is none."""
    identity: BackendIdentity | None = getattr(backend, _ATTRIBUTE, None)
    return identity or BackendIdentity()


def full_version(backend: "Backend") -> str:
    """Return the version of a backend with the digest of its files and options, for example 1+3fa9c2d1."""
    digest = identity_of(backend).digest[:_SHOWN]
    if not digest:
        return backend.version
    separator = "." if "+" in backend.version else "+"
    return f"{backend.version}{separator}{digest}"


def full_fingerprint(backend: "Backend") -> str:
    """Return all that `Backend.load` depends on, besides the version: the author's fingerprint, and the digest."""
    return " ".join(filter(None, (backend.fingerprint(), identity_of(backend).digest)))


def measured_as(backend: "Backend") -> str:
    """Return all that the speed of a backend depends on, besides the version."""
    others = (f"{key}={value!r}" for key, value in identity_of(backend).other_options)
    return " ".join((full_fingerprint(backend), *others))
