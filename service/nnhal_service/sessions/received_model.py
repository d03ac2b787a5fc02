"""Models that clients send, with their digests."""

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, islice
from weakref import WeakKeyDictionary

from nnhal import wire
from nnhal.model_digest import NO_POOL_DIGEST, combined_digest, graph_digest
from nnhal.types import PROT_WRITE, Memory, Model, UnsetUnion
from nnhal.v1 import types_pb2
from nnhal_driver.model_cache.files import CacheFiles
from nnhal_driver.preparation.launch import GivenModel
from nnhal_driver.scheduling.preparation import Check
from nnhal_service.identity.digests import scoped_digest
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_objects import MemoryObject, read_memory
from nnhal_service.sessions.session import Session

_COUNTED_OPERATIONS = 10_000
"""Number of operations after which a model is large, whatever their arguments."""


class ReceivedModelReader:
    """Converts the messages of models, and computes their digests from the bytes that the driver reads. Thread safe.

    A memfd that is sealed against writing is hashed once. Memory objects were hashed when they were uploaded.
    """

    def __init__(self) -> None:
        self._sealed: WeakKeyDictionary[Memory, bytes] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def read(self, session: Session, message: types_pb2.Model, check: Check) -> tuple[Model, bytes]:
        """Return the model of a message and its digest, see `nnhal.model_digest` and `nnhal_service.identity.digests`.

        `check` is called between steps. The digest is b"" if it is unknown: a pool is memory that the client can still
        write to, or a part of a Memory object.

        Raises:
            HalError: INVALID_ARGUMENT: a handle or number is unknown, or a memory is not complete; or what `check`
                raises.
        """
        digests: list[bytes | None] = []

        def read_pool(pool: types_pb2.Memory) -> Memory | UnsetUnion:
            # looked up once: the client may release a number meanwhile and share another memory under it
            memory = read_memory(session, pool)
            digests.append(self._pool_digest(session, pool, memory))
            return memory

        model = wire.to_model(message, read_pool, check)
        known = [digest for digest in digests if digest is not None]
        if len(known) < len(digests):
            return model, b""
        digest = combined_digest(graph_digest(message), message.operand_values, known)
        return model, scoped_digest(session.identity, digest)

    def _pool_digest(self, session: Session, message: types_pb2.Memory, memory: Memory | UnsetUnion) -> bytes | None:
        if isinstance(memory, UnsetUnion):
            return NO_POOL_DIGEST
        match message.WhichOneof("memory"):
            case "inline":
                return _sha256(memory)
            case "shared":
                return None if memory.prot & PROT_WRITE else self._sealed_digest(memory)
            case _:
                whole = session.get(message.mapped.memory, MemoryObject)
                is_whole = memory.offset == 0 and memory.size == whole.buffer.size
                return whole.sha256 if whole.sha256 and is_whole else None

    def _sealed_digest(self, memory: Memory) -> bytes:
        with self._lock:
            digest = self._sealed.get(memory)
        if digest is None:
            digest = _sha256(memory)  # without the lock: it may take a second
            with self._lock:
                self._sealed[memory] = digest
        return digest


def _open_none() -> None:
    """Return the files of a call that saves nothing."""


@dataclass(frozen=True, slots=True)
class ReceivedModel:
    """Reader of the model in a message.

    Attributes:
        limits: limits on the model.
        digests: reads it with its digest; None to do without.
        open_files: opens the files to save to, after the model was read.
    """

    session: Session
    message: types_pb2.Model
    limits: Limits
    digests: ReceivedModelReader | None = None
    open_files: Callable[[], CacheFiles | None] = _open_none

    @property
    def size(self) -> int:
        """Number of operands and arguments of the model, see `ModelReader`."""
        graphs = (self.message.main, *self.message.referenced)
        operations = islice(chain.from_iterable(graph.operations for graph in graphs), _COUNTED_OPERATIONS)
        arguments = sum(len(operation.inputs) + len(operation.outputs) for operation in operations)
        return arguments + sum(len(graph.operands) for graph in graphs)

    def read(self, check: Check) -> GivenModel:
        """Return the model.

        Raises:
            HalError: INVALID_ARGUMENT: a handle or number is unknown, or a memory is not complete;
                RESOURCE_EXHAUSTED_*: the model exceeds a limit; or what `check` raises.
        """
        self.limits.require_model(self.message, check)
        if self.digests is None:
            return GivenModel(wire.to_model(self.message, lambda pool: read_memory(self.session, pool), check))
        model, digest = self.digests.read(self.session, self.message, check)
        return GivenModel(model, digest, self.open_files())


def _sha256(memory: Memory) -> bytes:
    return hashlib.sha256(memory.view.data).digest()
