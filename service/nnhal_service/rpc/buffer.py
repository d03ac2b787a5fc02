"""Buffer: IBuffer over the contract."""

import grpc

from nnhal.v1 import buffer_pb2, buffer_pb2_grpc
from nnhal_driver.execution.buffer import Buffer
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.rpc.servicer import ServicerBase
from nnhal_service.sessions.memory_objects import read_memory


class BufferServicer(ServicerBase, buffer_pb2_grpc.BufferServicer):
    """Servicer of Buffer."""

    @handler()
    def CopyFrom(
        self, request: buffer_pb2.CopyFromRequest, context: grpc.ServicerContext
    ) -> buffer_pb2.CopyFromResponse:
        """Fill the buffer."""
        session = self._sessions.get(request.session, context)
        buffer = session.get(request.buffer, Buffer)
        with buffer.state.clears_on_error():
            self._limits.require_inline([request.src])
            buffer.copy_from(read_memory(session, request.src), tuple(request.dimensions))
        return buffer_pb2.CopyFromResponse()

    @handler()
    def CopyTo(self, request: buffer_pb2.CopyToRequest, context: grpc.ServicerContext) -> buffer_pb2.CopyToResponse:
        """Copy the contents of the buffer to memory or into the response."""
        session = self._sessions.get(request.session, context)
        buffer = session.get(request.buffer, Buffer)
        response = buffer_pb2.CopyToResponse()
        if request.HasField("dst"):
            buffer.copy_to(read_memory(session, request.dst))
        else:
            self._output_writer(session)(buffer.read(), response.returned)
        return response
