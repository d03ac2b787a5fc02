"""Memory pools of models and requests on their way to the service.

Pools travel inside the message while it has room. Larger ones are uploaded as Memory objects, so that messages stay
below the limits of the service.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np

from nnhal import wire
from nnhal.types import Bytes, DataLocation, Memory, Model, Operand, OperandLifeTime, Subgraph
from nnhal.v1 import memory_pb2, types_pb2

MAX_INLINE_CONSTANT_BYTES = 64 * 1024
"""Largest size of a model's constant inside its message, in bytes. Larger ones become Memory objects, which the service
finds again by their digests. Inputs are sent only once, so they travel inside the message while it has room."""

MAX_MESSAGE_VALUES_BYTES = 2 * 2**20
"""Largest total size of the values in one message, in bytes. Further values become Memory objects."""

MAX_OPERAND_VALUES_BYTES = 2**20
"""Largest size of the operand values inside a model's message, in bytes. Larger ones become a pool."""

CHUNK_BYTES = 2**20


def pools_to_upload(pools: Iterable[object], reserved: int = 0, *, deduplicate: bool = True) -> list[Memory]:
    """Return the pools that must become Memory objects, without duplicates.

    Args:
        pools: the pools of a model or a request, in order. Anything but a `Memory` is skipped.
        reserved: size of other values in the same message, in bytes.
        deduplicate: whether the bytes may be sent again later.
    """
    room = MAX_MESSAGE_VALUES_BYTES - reserved
    max_inline = MAX_INLINE_CONSTANT_BYTES if deduplicate else MAX_MESSAGE_VALUES_BYTES
    large: dict[Memory, None] = {}
    for pool in pools:
        if not isinstance(pool, Memory):
            continue
        size = pool.size
        if size > min(max_inline, room):
            large[pool] = None
        else:
            room -= size
    return list(large)


def pool_encoder(uploaded: Mapping[Memory, types_pb2.Memory]) -> wire.SendMemory:
    """Return a function that encodes pools: uploaded ones as their given messages, others with their bytes."""

    def encode(pool: Memory) -> types_pb2.Memory:
        return uploaded[pool] if pool in uploaded else wire.inline_memory(pool)

    return encode


def memory_object_message(handle: bytes) -> types_pb2.Memory:
    """Return the message of a whole Memory object."""
    return types_pb2.Memory(mapped=types_pb2.MappedMemory(memory=handle))


def move_large_values(model: Model) -> Model:
    """Return a model whose operand values fit into its message.

    If the operand values are too large, they become a pool. Every CONSTANT_COPY operand is then a CONSTANT_POOL one at
    the same offset. Otherwise the model itself is returned.
    """
    if memoryview(model.operand_values).nbytes <= MAX_OPERAND_VALUES_BYTES:
        return model
    index = len(model.pools)

    def move_operand(operand: Operand) -> Operand:
        # a CONSTANT_COPY operand with a pool index is invalid (V-OPERAND-17) and stays so, for the device to reject
        if operand.lifetime != OperandLifeTime.CONSTANT_COPY or operand.location.pool_index != 0:
            return operand
        location: DataLocation = replace(operand.location, pool_index=index)
        return replace(operand, lifetime=OperandLifeTime.CONSTANT_POOL, location=location)

    def move_operands(subgraph: Subgraph) -> Subgraph:
        return replace(subgraph, operands=tuple(map(move_operand, subgraph.operands)))

    return replace(
        model,
        main=move_operands(model.main),
        referenced=tuple(map(move_operands, model.referenced)),
        operand_values=b"",
        pools=(*model.pools, Memory.of(model.operand_values)),
    )


# ---- Uploading and reading ------------------------------------------------------------------------------


def contiguous_bytes(pool: Memory) -> Bytes:
    """Return the bytes of a pool as a contiguous array."""
    return np.ascontiguousarray(pool.view)


def digest(data: Bytes) -> bytes:
    """Return the SHA-256 by which the service finds bytes that it already has."""
    return hashlib.sha256(data.data).digest()


def upload_requests(session: bytes, memory: bytes, data: Bytes, start: int = 0) -> Iterator[memory_pb2.UploadRequest]:
    """Yield the messages that write bytes into a Memory object, from byte `start` on."""
    for offset in range(0, data.size, CHUNK_BYTES):
        chunk = data[offset : offset + CHUNK_BYTES].tobytes()
        yield memory_pb2.UploadRequest(session=session, memory=memory, offset=start + offset, data=chunk)
