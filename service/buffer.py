"""Buffer: IBuffer over the contract."""

import grpc

from driver.buffer import Buffer
from nnhal.v1 import buffer_pb2, buffer_pb2_grpc
from service.limits import Limits, MemoryQuota
from service.memory import read_memory
from service.returning import Returning
from service.rpc import answering
from service.sessions import Sessions


class BufferServicer(buffer_pb2_grpc.BufferServicer):
    """The RPCs."""

    def __init__(self, sessions: Sessions, limits: Limits, quota: MemoryQuota) -> None:
        self._sessions = sessions
        self._limits = limits
        self._quota = quota

    @answering
    def CopyFrom(
        self, request: buffer_pb2.CopyFromRequest, context: grpc.ServicerContext
    ) -> buffer_pb2.CopyFromResponse:
        """Fills the buffer."""
        session = self._sessions.get(request.session)
        buffer = session.get(request.buffer, Buffer)
        with buffer.contents.filling():
            self._limits.hold_inline([request.src])
            buffer.copy_from(read_memory(session, request.src), tuple(request.dimensions))
        return buffer_pb2.CopyFromResponse()

    @answering
    def CopyTo(self, request: buffer_pb2.CopyToRequest, context: grpc.ServicerContext) -> buffer_pb2.CopyToResponse:
        """Reads the buffer, into memory or into the answer."""
        session = self._sessions.get(request.session)
        buffer = session.get(request.buffer, Buffer)
        if request.HasField("dst"):
            buffer.copy_to(read_memory(session, request.dst))
            return buffer_pb2.CopyToResponse()
        returning = Returning(session, self._limits["inline_bytes"], self._quota)
        response = buffer_pb2.CopyToResponse()
        returning(buffer.read(), response.returned)
        return response
