"""Executions without buffers. Unlike the asyncio form, this one caches the encodings of requests and responses."""

from collections.abc import Sequence

import grpc

from nnhal.client.core.arrays import Inputs, ModelIO, Outputs
from nnhal.client.core.encoding_cache import RequestEncodingCache, ResponseDecodingCache
from nnhal.client.core.prepared_model import (
    RemoteModel,
    decode_outputs,
    empty_execute_request,
    encode_deadline,
    memory_handles,
)
from nnhal.client.core.profile import GRPC, ExecutionProfile, StageTimer, profile_request
from nnhal.client.core.request_templates import RequestTemplates, input_pools
from nnhal.client.sync.connection import Connection
from nnhal.message_template import inline_memories
from nnhal.types import AnyArray
from nnhal.v1 import types_pb2


class PlainExecutor:
    """Executes a prepared model over shared memory if possible, or else over gRPC. This is a hot path."""

    def __init__(self, io: ModelIO, templates: RequestTemplates) -> None:
        self._io = io
        self._templates = templates
        self._requests = RequestEncodingCache()
        self._responses = ResponseDecodingCache(io)

    def execute(
        self, remote: RemoteModel[Connection], inputs: Inputs, deadline: float | None, measure_timing: bool
    ) -> Outputs:
        """Execute the model, see `PreparedModel.execute`."""
        connection, handle = remote
        shm = connection.shm
        if shm is not None and (outputs := shm.execute(handle, self._io, inputs, deadline, measure_timing)) is not None:
            return outputs
        handles = list[bytes]()
        try:
            encoded = self._encode(remote, self._io.arrays(inputs), measure_timing, handles)
            if deadline is not None:
                encoded += encode_deadline(deadline)
            return self._decode(connection, connection.call(connection.execute, encoded))
        finally:
            if handles:
                connection.discard(*handles)

    def profile(self, remote: RemoteModel[Connection], inputs: Inputs, deadline: float | None) -> ExecutionProfile:
        """Execute the model with profiling, see `PreparedModel.profile`."""
        connection, handle = remote
        if connection.shm is not None:
            profile = connection.shm.profile(handle, self._io, inputs, deadline)
            if profile is not None:
                return profile
        timer = StageTimer()
        arrays = self._io.arrays(inputs)
        pools, handles = input_pools(arrays), list[bytes]()
        timer.lap("encode")
        try:
            uploaded = connection.upload_large(pools, handles)
            if uploaded:
                timer.lap("upload")
            message = profile_request(connection.session, handle, deadline)
            self._templates.fill(message.request, arrays, pools, uploaded)
            timer.lap("encode")
            call = connection.call(connection.prepared_model.ExecuteSynchronouslyWithConfig.future, message)
            timer.lap("send")
            response = connection.call(_wait, call)
            timer.lap("wait")
            returned = memory_handles(response.returned)
            memories = connection.take_memories(returned)
            if returned:
                timer.lap("download")
            outputs = decode_outputs(self._io, response, memories)
            timer.lap("decode")
            return timer.profile(outputs, response, GRPC)
        finally:
            connection.discard(*handles)

    def _encode(
        self,
        remote: RemoteModel[Connection],
        arrays: Sequence[AnyArray | None],
        measure_timing: bool,
        handles: list[bytes],
    ) -> bytes:
        """Return the encoded message of an execution without a deadline; `handles` takes its Memory objects."""
        options = (remote.handle, measure_timing)
        if (cached := self._requests.encode(options, arrays)) is not None:
            return cached
        pools = input_pools(arrays)
        uploaded = remote.connection.upload_large(pools, handles)
        message = empty_execute_request(remote.connection.session, remote.handle, None, measure_timing)
        self._templates.fill(message.request, arrays, pools, uploaded)
        if not uploaded:
            self._requests.add(options, arrays, message, lambda message: inline_memories(message.request))
        return message.SerializeToString()

    def _decode(self, connection: Connection, encoded: bytes) -> Outputs:
        """Return the outputs in an encoded response."""
        if (cached := self._responses.decode(encoded)) is not None:
            return cached
        response = types_pb2.ExecutionResult.FromString(encoded)
        outputs = decode_outputs(self._io, response, connection.take_memories(memory_handles(response.returned)))
        self._responses.add(encoded, response, lambda message: message.returned, outputs)
        return outputs


def _wait(call: "grpc.Future[types_pb2.ExecutionResult]", **_: object) -> types_pb2.ExecutionResult:
    """Wait for the end of a call, and cancel it if that is interrupted."""
    try:
        return call.result()
    finally:
        call.cancel()  # does nothing to a call that has ended
