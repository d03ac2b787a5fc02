"""Preparations, with the compilation cache or without."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nnhal import wire
from nnhal.client.aio.concurrency import run_blocking
from nnhal.client.aio.connection import Connection
from nnhal.client.aio.preparation_call import PreparationCall
from nnhal.client.core.arguments import ModelSource, import_model
from nnhal.client.core.cache import PreparationSpec, SharedDeadline, should_compile, with_miss_reason
from nnhal.client.core.memory import move_large_values
from nnhal.types import Model
from nnhal.v1 import device_pb2, types_pb2


async def load_model(source: ModelSource) -> Model:
    """Return a model, or import it from the .tflite file at a path.

    Raises:
        TypeError: the source is neither a model nor a path.
        TfliteError: the file is damaged, or NNAPI does not support a part of it.
        OSError: the file cannot be opened.
        ImportError: the extra `nnhal[tflite]` is missing.
    """
    return source if isinstance(source, Model) else await run_blocking(import_model, source)


@asynccontextmanager
async def model_message(connection: Connection, model: Model) -> AsyncIterator[types_pb2.Model]:
    """Yield a model's message for a call that is made within. Large constants are uploaded, and released afterwards."""
    model = move_large_values(model)
    reserved = memoryview(model.operand_values).nbytes
    async with connection.uploaded(model.pools, deduplicate=True, reserved=reserved) as encode_pool:
        yield wire.model_message(model, encode_pool)


async def prepare(
    connection: Connection,
    spec: PreparationSpec,
    call: PreparationCall,
    deadline: SharedDeadline,
    *,
    again: bool = False,
) -> device_pb2.Notify:
    """Prepare a model: from the cache if possible, without sending it. On a miss, it is sent and saved.

    Args:
        connection: the connection.
        spec: the arguments of the preparation.
        call: makes the calls.
        deadline: deadline of the whole preparation.
        again: whether the model may have changed since the spec was made.

    Raises:
        HalError: a call failed. Other failures of the preparation are in the returned message.
    """
    if not spec.uses_cache:
        async with model_message(connection, spec.model) as message:
            prepare_request = spec.prepare_request(connection.session, message, deadline)
            return await call.run(connection, connection.device.PrepareModel, prepare_request)
    token = spec.token or spec.token_for(await device_version(connection, spec.device))
    request = spec.load_request(connection.session, token, deadline)
    loaded = await call.run(connection, connection.device.PrepareModelFromCache, request)
    if spec.is_other_model(loaded):
        connection.discard(loaded.prepared_model)
    elif not should_compile(loaded):
        return loaded
    if again:
        await run_blocking(spec.check_model_unchanged)
    async with model_message(connection, spec.model) as message:
        compile_request = spec.compile_request(connection.session, token, message, deadline)
        compiled = await call.run(connection, connection.device.PrepareModel, compile_request)
        return with_miss_reason(compiled, loaded)


async def device_version(connection: Connection, device: str) -> str:
    """Return the version of driver and backends, which is read once for each connection."""
    if connection.version is None:
        request = device_pb2.DeviceRequest(device=device)
        response = await connection.call_idempotent(connection.device.GetVersionString, request)
        connection.version = response.version
    return connection.version
