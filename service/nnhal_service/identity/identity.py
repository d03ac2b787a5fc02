"""Identity of a client: what it authenticated with, and the name that this proved."""

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
