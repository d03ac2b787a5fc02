"""Identity of a client: what it authenticated with, and the name that this proved; and its credential."""

import time
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["certificate", "spiffe", "token", "jwt", "user", "anonymous"]


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
