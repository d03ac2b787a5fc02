"""Executions without buffers. Unlike the synchronous form, this one does not cache encodings."""

from nnhal.client.aio.connection import Connection
from nnhal.client.core.arrays import Inputs, ModelIO, Outputs
from nnhal.client.core.prepared_model import RemoteModel, decode_outputs, empty_execute_request, memory_handles
from nnhal.client.core.request_templates import RequestTemplates, input_pools


class PlainExecutor:
    """Executes a prepared model over shared memory if possible, or else over gRPC."""

    def __init__(self, io: ModelIO, templates: RequestTemplates) -> None:
        self._io = io
        self._templates = templates

    async def execute(
        self, remote: RemoteModel[Connection], inputs: Inputs, deadline: float | None, measure_timing: bool
    ) -> Outputs:
        """Execute the model, see `PreparedModel.execute`."""
        connection, handle = remote
        if connection.shm is not None:
            outputs = await connection.shm.execute(handle, self._io, inputs, deadline, measure_timing)
            if outputs is not None:
                return outputs
        arrays = self._io.arrays(inputs)
        pools, handles = input_pools(arrays), list[bytes]()
        try:
            uploaded = await connection.upload_large(pools, handles)
            message = empty_execute_request(connection.session, handle, deadline, measure_timing)
            self._templates.fill(message.request, arrays, pools, uploaded)
            response = await connection.call(connection.prepared_model.ExecuteSynchronously, message)
            memories = await connection.take_memories(memory_handles(response.returned))
            return decode_outputs(self._io, response, memories)
        finally:
            connection.discard(*handles)
