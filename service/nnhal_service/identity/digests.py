"""Digests of models, as the service knows them: each identity has digests of its own.

Otherwise an identity would learn from the quarantine, or from the time that a preparation takes, that another one has
the same model. Those of anonymous clients are the clients' own.
"""

import hashlib

from nnhal_service.identity.identity import ANONYMOUS, Identity

_SIZE = 32


def scoped_digest(identity: Identity, digest: bytes) -> bytes:
    """Return the digest of a model of an identity, given that of the client; or the other way round.

    Two models of different identities have the same digest only with the probability of a collision of SHA-256. A
    digest of another size is returned as it is.
    """
    if identity == ANONYMOUS or len(digest) != _SIZE:
        return digest
    mask = hashlib.sha256(b"nnhal model of %s" % str(identity).encode()).digest()
    return bytes(one ^ other for one, other in zip(digest, mask, strict=True))
