"""Transport of outputs in a ReturnedPool: inside the response while they fit, then as Memory objects."""

from nnhal import wire
from nnhal.types import Bytes
from nnhal.v1 import types_pb2
from nnhal_service.sessions.memory_objects import MemoryObject
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.session import Session


class OutputWriter:
    """Fills the messages of the returned outputs of one execution.

    Args:
        inline_bytes: bytes that the response may carry inline.
    """

    def __init__(self, session: Session, inline_bytes: int, quota: MemoryQuota) -> None:
        self._session = session
        self._inline_bytes = inline_bytes
        self._quota = quota

    def __call__(self, data: Bytes, message: types_pb2.ReturnedOutput) -> None:
        """Fill the message of one output.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT: limit memory_bytes, service_memory_bytes or objects.
        """
        if data.size <= self._inline_bytes:
            self._inline_bytes -= data.size
            wire.put_inline(data, message)
        else:
            message.memory = self.to_memory_object(data)

    def to_memory_object(self, data: Bytes) -> bytes:
        """Return the handle of a new Memory object with these bytes.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT: limit memory_bytes, service_memory_bytes or objects.
        """
        self._quota.charge(self._session, data)
        return self._session.add(MemoryObject(data))
