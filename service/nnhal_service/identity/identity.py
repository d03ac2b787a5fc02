"""Identity of a client: what it authenticated with, and the name that this proved; and its credential."""

import hashlib
import time
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["certificate", "spiffe", "token", "jwt", "user", "anonymous", "repository"]


@dataclass(frozen=True)
class Identity:
    """Identity of a client. Its text, such as "token:alice", names it in policies, logs and the cache.

    Attributes:
        kind: how the client authenticated. Kinds have no colon, so that texts of different identities differ.
        name: subject of the certificate or JWT, SPIFFE id, name of the token, or number of the user.
    """

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind


ANONYMOUS = Identity("anonymous", "")
"""Identity of clients that do not authenticate."""

REPOSITORY = Identity("repository", "")
"""Owner of the models by name, which no client has."""

CLIENT_BYTES = 16
"""Size of the digest of a client."""


def client_name(identity: Identity, peer: str) -> str:
    """Return the client that work counts for: its identity, or its host if it is anonymous.

    `peer` is its connection, as gRPC names it.
    """
    return f"{identity} at {peer.rpartition(':')[0]}" if identity == ANONYMOUS else str(identity)


def client_digest(identity: Identity, peer: str) -> bytes:
    """Return the digest of `client_name`. Its last byte tells whether the client is a host."""
    digest = hashlib.sha256(client_name(identity, peer).encode()).digest()
    return digest[: CLIENT_BYTES - 1] + bytes([identity == ANONYMOUS])


def is_host(client: bytes) -> bool:
    """Return whether a digest is that of the anonymous clients of a host."""
    return client[-1:] == b"\1"


@dataclass(frozen=True, slots=True)
class Credential:
    """Identity of a client, and what it presented.

    Attributes:
        proof: text that proves the identity when a later call presents it again: the header of a bearer token, a
            certificate, or the name of a connection that is still open; "" for none.
        expires_at: end of its validity in seconds since 1970, or None.
        digest: digest of a static token, which may be revoked; b"" for other credentials.
    """

    identity: Identity = ANONYMOUS
    proof: str = ""
    expires_at: float | None = None
    digest: bytes = b""

    @property
    def is_expired(self) -> bool:
        """True if its validity has ended."""
        return self.expires_at is not None and time.time() >= self.expires_at
