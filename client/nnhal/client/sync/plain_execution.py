# Generated from aio/plain_execution.py by `python -m tools.dev.unasync_client`. Do not edit.
"""Executions without buffers, over shared memory or gRPC."""

from nnhal.client.core.arrays import Inputs, ModelIO, Outputs
from nnhal.client.core.definitions import Arrays, RequestDefinition, RequestDefinitions, form_of
from nnhal.client.core.prepared_model import RemoteModel, decode_outputs, empty_execute_request, memory_handles
from nnhal.client.core.profile import GRPC, ExecutionProfile, StageTimer, profile_request
from nnhal.client.core.request_templates import RequestTemplates, input_pools
from nnhal.client.sync.connection import Connection
from nnhal.errors import HalError
from nnhal.v1 import prepared_model_pb2, types_pb2


class PlainExecutor:
    """Executes a prepared model over shared memory if possible, or else over gRPC. This is a hot path."""

    def __init__(self, io: ModelIO, templates: RequestTemplates) -> None:
        self._io = io
        self._templates = templates
        self._definitions = RequestDefinitions(io)

    def execute(
        self, remote: RemoteModel[Connection], inputs: Inputs, deadline: float | None, measure_timing: bool
    ) -> Outputs:
        """Execute the model, see `PreparedModel.execute`."""
        connection, handle = remote
        if connection.shm is not None:
            outputs = connection.shm.execute(handle, self._io, inputs, deadline, measure_timing)
            if outputs is not None:
                return outputs
        arrays = self._io.arrays(inputs)
        definition = define(self._definitions, remote, arrays, measure_timing=measure_timing)
        if definition is None:
            return self._execute_message(remote, arrays, deadline, measure_timing)
        encoded = connection.call(connection.run, definition.encode(arrays, deadline))
        outputs = definition.decode(encoded)
        if outputs is None:
            return self._decode(connection, prepared_model_pb2.RunResponse.FromString(encoded).result)
        return outputs

    def _execute_message(
        self,
        remote: RemoteModel[Connection],
        arrays: Arrays,
        deadline: float | None,
        measure_timing: bool,
    ) -> Outputs:
        """Execute the model with a message that contains the whole request."""
        connection, handle = remote
        pools, handles = input_pools(arrays), list[bytes]()
        try:
            uploaded = connection.upload_large(pools, handles)
            message = empty_execute_request(connection.session, handle, deadline, measure_timing)
            self._templates.fill(message.request, arrays, pools, uploaded)
            return self._decode(connection, connection.call(connection.prepared_model.ExecuteSynchronously, message))
        finally:
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
            call = connection.send(connection.prepared_model.ExecuteSynchronouslyWithConfig, message)
            timer.lap("send")
            response = connection.wait(call)
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

    def _decode(self, connection: Connection, result: types_pb2.ExecutionResult) -> Outputs:
        """Return the outputs in a result."""
        return decode_outputs(self._io, result, connection.take_memories(memory_handles(result.returned)))


def define(
    definitions: RequestDefinitions, target: RemoteModel[Connection], arrays: Arrays, *, measure_timing: bool
) -> RequestDefinition | None:
    """Return the definition of an execution, which is made now if that is worthwhile; None if there is none.

    See `nnhal.client.core.definitions`. The target is the prepared model, or a burst of it.
    """
    connection, handle = target
    form = form_of(handle, arrays, measure_timing=measure_timing)
    if (definition := definitions.find(form)) is not None:
        return definition
    request = definitions.next_request(form, connection.session, handle, arrays, measure_timing=measure_timing)
    if request is None:
        return None
    try:
        response = connection.call(connection.prepared_model.Define, request)
    except HalError:  # an older service, or a limit; the execution itself reports what concerns it
        return None
    return definitions.add(form, connection, arrays, response)
