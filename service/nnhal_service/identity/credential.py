"""Credential: an identity with what proved it."""

import time
from dataclasses import dataclass

from nnhal_service.identity.identity import ANONYMOUS, Identity


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
