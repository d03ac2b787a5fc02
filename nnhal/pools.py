"""How the pools of models and requests travel: inside the message while there is room, else as Memory objects.

Both clients use it, so that whatever is given to them keeps below the service's limits on messages.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from nnhal import wire
from nnhal.types import Bytes, DataLocation, Memory, Model, Operand, OperandLifeTime, Subgraph
from nnhal.v1 import memory_pb2, types_pb2

LASTING_BYTES = 64 * 1024
"""Constants of a model up to this size travel inside its message. Larger ones become Memory objects, which the service
finds again by their digests; inputs are only sent once, so they travel inside the message while it has room."""

MESSAGE_BYTES = 2 * 2**20
"""Bytes of values that one message takes in all; what goes beyond becomes Memory objects."""

OPERAND_VALUES_BYTES = 2**20
"""Operand values up to this size travel inside the model's message; larger ones become a pool."""

CHUNK_BYTES = 2**20


def to_upload(pools: Iterable[object], taken: int = 0, *, lasting: bool = True) -> list[Memory]:
    """The pools that have to become Memory objects; each once, though it be used several times.

    Args:
        pools: of a model or a request, in order; what is no memory of the client is passed over.
        taken: bytes of other values in the same message.
        lasting: the bytes may be sent again later.
    """
    room = MESSAGE_BYTES - taken
    largest = LASTING_BYTES if lasting else MESSAGE_BYTES
    spilled: dict[Memory, None] = {}
    for pool in pools:
        if not isinstance(pool, Memory):
            continue
        size = pool.size
        if size > min(largest, room):
            spilled[pool] = None
        else:
            room -= size
    return list(spilled)


def sender(elsewhere: Mapping[Memory, types_pb2.Memory]) -> wire.SendMemory:
    """Makes the messages of pools: for those that lie elsewhere the given ones, for the others with their bytes."""

    def send(pool: Memory) -> types_pb2.Memory:
        return elsewhere[pool] if pool in elsewhere else wire.inline_memory(pool)

    return send


def uploaded_memory(handle: bytes) -> types_pb2.Memory:
    """The message of a whole Memory object."""
    return types_pb2.Memory(mapped=types_pb2.MappedMemory(memory=handle))


def with_small_values(model: Model) -> Model:
    """The model itself, or, where its operand values are too large for a message, one with a pool in their place.

    Every CONSTANT_COPY operand is then a CONSTANT_POOL one at the same offset.
    """
    if memoryview(model.operand_values).nbytes <= OPERAND_VALUES_BYTES:
        return model
    index = len(model.pools)

    def in_pool(operand: Operand) -> Operand:
        # a copied operand with a pool index is invalid (V-OPERAND-17): it stays for the device to refuse
        if operand.lifetime != OperandLifeTime.CONSTANT_COPY or operand.location.pool_index != 0:
            return operand
        location: DataLocation = replace(operand.location, pool_index=index)
        return replace(operand, lifetime=OperandLifeTime.CONSTANT_POOL, location=location)

    def moved(subgraph: Subgraph) -> Subgraph:
        return replace(subgraph, operands=tuple(map(in_pool, subgraph.operands)))

    return replace(
        model,
        main=moved(model.main),
        referenced=tuple(map(moved, model.referenced)),
        operand_values=b"",
        pools=(*model.pools, Memory.of(model.operand_values)),
    )


# ---- Uploading and reading ------------------------------------------------------------------------------


def contents(pool: Memory) -> Bytes:
    """The bytes of a pool, in one piece."""
    return np.ascontiguousarray(pool.view)


def digest(data: Bytes) -> bytes:
    """SHA-256, by which the service looks for bytes that it has already."""
    return hashlib.sha256(data.data).digest()


def upload_requests(session: bytes, memory: bytes, data: Bytes, start: int = 0) -> Iterator[memory_pb2.UploadRequest]:
    """The messages that fill a Memory object, or the part of it that begins at byte `start`."""
    for offset in range(0, data.size, CHUNK_BYTES):
        chunk = data[offset : offset + CHUNK_BYTES].tobytes()
        yield memory_pb2.UploadRequest(session=session, memory=memory, offset=start + offset, data=chunk)
