"""How outputs that lie in a ReturnedPool go back: inside the answer while they fit, then as Memory objects."""

from nnhal import wire
from nnhal.types import Bytes
from nnhal.v1 import types_pb2
from service.limits import MemoryQuota
from service.memory import MemoryObject
from service.sessions import Session


class Returning:
    """Fills the messages of the returned outputs of one execution. `room`: bytes that the answer may carry inline."""

    def __init__(self, session: Session, room: int, quota: MemoryQuota) -> None:
        self._session = session
        self._room = room
        self._quota = quota

    def __call__(self, data: Bytes, message: types_pb2.ReturnedOutput) -> None:
        """Fills the message of one output."""
        if data.size <= self._room:
            self._room -= data.size
            wire.put_inline(data, message)
        else:
            message.memory = self.as_memory(data)

    def as_memory(self, data: Bytes) -> bytes:
        """The handle of a new Memory object with these bytes.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT: limit memory_bytes, or objects.
        """
        self._quota.charge(self._session.identity, data)
        return self._session.add(MemoryObject(data))
