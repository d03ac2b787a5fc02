"""Digest of a model: a SHA-256 over its graph and its constants, which client and service compute alike.

The client computes it from a model, the service from the message that it receives. The service saves it with a
prepared model, so that a cache entry is never used for another model.
"""

import hashlib
from collections.abc import Iterable

from nnhal.v1 import types_pb2

DIGEST_BYTES = hashlib.sha256().digest_size

NO_POOL_DIGEST = bytes(DIGEST_BYTES)
"""Digest of a pool that is not set."""


def graph_digest(message: types_pb2.Model) -> bytes:
    """Return the digest of a model's message without its operand values and pools."""
    graph = types_pb2.Model()
    graph.CopyFrom(message)
    graph.ClearField("operand_values")
    graph.ClearField("pools")
    return hashlib.sha256(graph.SerializeToString(deterministic=True)).digest()


def combined_digest(graph: bytes, operand_values: bytes | memoryview, pools: Iterable[bytes]) -> bytes:
    """Return the digest of a model.

    Args:
        graph: the result of `graph_digest`.
        operand_values: the operand values of the message.
        pools: the SHA-256 of each pool's bytes, in order; `NO_POOL_DIGEST` for a pool that is not set.
    """
    sha256 = hashlib.sha256(graph + hashlib.sha256(operand_values).digest())
    for pool in pools:
        sha256.update(pool)
    return sha256.digest()
