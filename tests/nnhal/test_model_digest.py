"""Digests of models: what the service computes from a message is what the client computes from the model."""

import hashlib
from collections.abc import Callable

import numpy as np
import pytest

from nnhal import ModelBuilder, wire
from nnhal.client.core.cache import model_digest
from nnhal.client.core.memory import MAX_OPERAND_VALUES_BYTES, move_large_values
from nnhal.model_digest import NO_POOL_DIGEST, combined_digest, graph_digest
from nnhal.types import Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import types_pb2
from tests.nnhal.changed_models import CHANGES, model


def message_digest(model: Model) -> bytes:
    """Return the digest of the message that a client sends, as a service computes it."""
    message = types_pb2.Model.FromString(wire.model_message(move_large_values(model)).SerializeToString())
    pools = [sha256(pool.inline) if pool.HasField("inline") else NO_POOL_DIGEST for pool in message.pools]
    return combined_digest(graph_digest(message), message.operand_values, pools)


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_client_and_service_agree(change: Callable[[Model], Model]) -> None:
    changed = change(model())
    assert message_digest(changed) == model_digest(changed)


def test_values_that_become_a_pool() -> None:
    """Values too large for a message travel as a pool: both sides hash what travels."""
    count = MAX_OPERAND_VALUES_BYTES // 8 + 1
    b = ModelBuilder()
    x = b.input(T.TENSOR_FLOAT32, [count])
    for value in (1, 2):
        x = b.add(Op.ADD, x, np.full(count, value, np.float32), 0, output=Operand(T.TENSOR_FLOAT32, (count,)))
    b.output(x)
    built = b.build()
    assert message_digest(built) == model_digest(built)


def test_the_digest_ignores_neither_order_nor_number_of_pools() -> None:
    a, b = sha256(b"a"), sha256(b"b")
    digests = {combined_digest(a, b"", pools) for pools in ([], [a], [a, b], [b, a], [a, b, NO_POOL_DIGEST])}
    assert len(digests) == 5
