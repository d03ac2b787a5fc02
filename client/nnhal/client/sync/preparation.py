# Generated from aio/preparation.py by `python -m tools.dev.unasync_client`. Do not edit.
"""Preparations, with the compilation cache or without."""

import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from nnhal import wire
from nnhal.client.core.arguments import InputShapes, ModelSource, import_model
from nnhal.client.core.cache import (
    DEADLINE_MISSED,
    ClientCacheFolder,
    PreparationSpec,
    SharedDeadline,
    is_session_lost,
    stored_entry,
)
from nnhal.client.core.memory import move_large_values
from nnhal.client.names.named_spec import NamedSpec
from nnhal.client.sync.concurrency import run_blocking
from nnhal.client.sync.connection import Connection
from nnhal.client.sync.grpc_calls import PreparationCall
from nnhal.errors import HalError
from nnhal.types import CacheState, ErrorStatus, Model
from nnhal.v1 import cache_pb2, device_pb2, models_pb2, types_pb2

_log = logging.getLogger(__name__)


def load_model(source: ModelSource, signature: str | None = None, shapes: InputShapes | None = None) -> Model:
    """Return a model, or import it from a .tflite file, which may have several signatures, with shapes of inputs.

    Raises:
        TypeError: the source is neither a model nor a path nor bytes.
        TfliteError: the file is damaged, or NNAPI does not support a part of it.
        OSError: the file cannot be opened.
    """
    if isinstance(source, Model) and signature is None and shapes is None:
        return source
    return run_blocking(import_model, source, signature, shapes)


@contextmanager
def model_message(connection: Connection, model: Model) -> Iterator[types_pb2.Model]:
    """Yield a model's message for a call that is made within. Large constants are uploaded, and released afterwards."""
    model = move_large_values(model)
    reserved = memoryview(model.operand_values).nbytes
    with connection.uploaded(model.pools, deduplicate=True, reserved=reserved) as encode_pool:
        yield wire.model_message(model, encode_pool)


def device_version(connection: Connection, device: str) -> str:
    """Return the version of driver and backends, which is read once for each connection."""
    if connection.version is None:
        request = device_pb2.DeviceRequest(device=device)
        response = connection.call_idempotent(connection.device.GetVersionString, request)
        connection.version = response.version
    return connection.version


# ---- Cache files of the client -----------------------------------------------------------------------------

_CHUNK_BYTES = 500_000
"""Bytes that one call reads or writes."""


class CacheFilesError(Exception):
    """Cache files that the service refuses. The model can be prepared without them."""


class ServiceCacheFiles:
    """Cache files of the HAL on the service, in the number that the device needs. They exist until they are deleted.

    Every method that makes calls raises CacheFilesError, or HalError if the session is lost.
    """

    def __init__(self, connection: Connection, needed: types_pb2.NumberOfCacheFiles) -> None:
        self.count = needed.num_model_cache + needed.num_data_cache
        self._model_count = needed.num_model_cache
        self._connection = connection
        prefix = f"client-{secrets.token_hex(16)}"
        self._names = [f"{prefix}-{number}" for number in range(self.count)]
        self._created: set[str] = set()

    @staticmethod
    def of(connection: Connection, device: str) -> "ServiceCacheFiles":
        """Return the files that a device needs, which do not exist yet."""
        request = device_pb2.DeviceRequest(device=device)
        needed = connection.call_idempotent(connection.device.GetNumberOfCacheFilesNeeded, request)
        return ServiceCacheFiles(connection, needed)

    def _call(self, method: Callable[..., Any], request: Any) -> Any:
        try:
            return self._connection.call(method, request)
        except HalError as error:
            if is_session_lost(error):
                raise
            raise CacheFilesError(error.reason) from error

    def _open(self, name: str) -> cache_pb2.OpenCacheFileResponse:
        request = cache_pb2.OpenCacheFileRequest(
            session=self._connection.session, name=name, mode=cache_pb2.ACCESS_MODE_READ_WRITE
        )
        response: cache_pb2.OpenCacheFileResponse = self._call(self._connection.cache.Open, request)
        self._created.add(name)
        return response

    def open(self, token: bytes, digest: bytes) -> types_pb2.CompilationCache:
        """Open the files for a preparation, and return its cache argument. Missing files are created empty."""
        handles = [(self._open(name)).file for name in self._names]
        models, data = handles[: self._model_count], handles[self._model_count :]
        return types_pb2.CompilationCache(model_cache=models, data_cache=data, token=token, model_digest=digest)

    def close(self, opened: types_pb2.CompilationCache) -> None:
        """Close the files of a preparation."""
        self._connection.discard(*opened.model_cache, *opened.data_cache)

    def write(self, contents: Sequence[bytes]) -> None:
        """Write the contents of all files, which are empty."""
        session = self._connection.session
        for name, content in zip(self._names, contents, strict=True):
            file = (self._open(name)).file
            for start in range(0, len(content), _CHUNK_BYTES):
                chunk = content[start : start + _CHUNK_BYTES]
                request = cache_pb2.WriteCacheFileRequest(session=session, file=file, data=chunk)
                self._call(self._connection.cache.Write, request)
            self._connection.discard(file)

    def read(self) -> list[bytes]:
        """Return the contents of all files."""
        contents = []
        for name in self._names:
            file = (self._open(name)).file
            request = cache_pb2.ReadCacheFileRequest(session=self._connection.session, file=file, length=_CHUNK_BYTES)
            content = bytearray()
            while chunk := (self._call(self._connection.cache.Read, request)).data:
                content += chunk
            self._connection.discard(file)
            contents.append(bytes(content))
        return contents

    def delete(self) -> None:
        """Delete the files."""
        while self._created:
            request = cache_pb2.DeleteCacheFileRequest(session=self._connection.session, name=self._created.pop())
            self._call(self._connection.cache.Delete, request)


# ---- Preparation -------------------------------------------------------------------------------------------


def prepare(
    connection: Connection,
    spec: PreparationSpec | NamedSpec,
    call: PreparationCall,
    deadline: SharedDeadline,
    *,
    again: bool = False,
) -> device_pb2.Notify:
    """Prepare a model: from the cache if possible, without sending it. On a miss, it is sent and saved.

    A model by name is prepared by the service alone.

    `deadline` is that of the whole preparation. With `again`, the model may have changed since the spec was made.

    Raises:
        HalError: a call failed. Other failures of the preparation are in the returned message.
    """
    if isinstance(spec, NamedSpec):
        return (prepare_named(connection, spec, deadline)).notify
    preparation = _Preparation(connection, spec, call, deadline, again)
    if spec.folder is not None:
        try:
            return preparation.with_files(spec.folder)
        except CacheFilesError as error:
            _log.warning("the model is prepared without cache files: %s", error)
    if not spec.uses_cache or spec.folder is not None:
        return preparation.compile(None)
    return preparation.with_store()


def prepare_named(
    connection: Connection, spec: NamedSpec, deadline: SharedDeadline
) -> models_pb2.PrepareNamedModelResponse:
    """Prepare a model that the service has.

    Raises:
        HalError: there is no such model, or it cannot be used.
    """
    return connection.call(connection.models.Prepare, spec.request(connection.session, deadline))


@dataclass(frozen=True)
class _Preparation:
    """One preparation of a model. For the attributes, see `prepare`."""

    connection: Connection
    spec: PreparationSpec
    call: PreparationCall
    deadline: SharedDeadline
    again: bool

    def with_store(self) -> device_pb2.Notify:
        """Prepare with the cache of the service."""
        spec = self.spec
        token = spec.token or spec.token_for(device_version(self.connection, spec.device))
        cache = stored_entry(token, spec.digest)
        loaded, is_usable = self._load(cache)
        if is_usable:
            return loaded
        self._check_unchanged()
        compiled = self.compile(cache)
        if int(compiled.cache.state) == CacheState.SAVED:
            compiled.cache.reason = loaded.cache.reason or loaded.reason
        return compiled

    def with_files(self, folder: ClientCacheFolder) -> device_pb2.Notify:
        """Prepare with cache files of the client."""
        spec = self.spec
        files = ServiceCacheFiles.of(self.connection, spec.device)
        try:
            saved = run_blocking(folder.read, files.count)
            if saved:
                files.write(saved)
                opened = files.open(spec.token, spec.digest)
                loaded, is_usable = self._load(opened)
                files.close(opened)
                if is_usable:
                    return loaded
                files.delete()
            self._check_unchanged()
            cache = files.open(spec.token, spec.digest) if files.count else None
            compiled = self.compile(cache)
            if cache is not None:
                files.close(cache)
            if int(compiled.cache.state) == CacheState.SAVED:
                run_blocking(folder.write, files.read())
            return compiled
        finally:
            files.delete()

    def _load(self, cache: types_pb2.CompilationCache) -> tuple[device_pb2.Notify, bool]:
        """Prepare the model from the cache. Return the result, and False if a compilation may have another one."""
        request = self.spec.load_request(self.connection.session, cache, self.deadline)
        loaded = self.call.run(self.connection, self.connection.device.PrepareModelFromCache, request)
        if self.spec.is_other_model(loaded):
            self.connection.discard(loaded.prepared_model)
            return loaded, False
        return loaded, int(loaded.status) in (ErrorStatus.NONE, *DEADLINE_MISSED)

    def _check_unchanged(self) -> None:
        if self.again:
            run_blocking(self.spec.check_model_unchanged)

    def compile(self, cache: types_pb2.CompilationCache | None) -> device_pb2.Notify:
        """Send the model, and prepare it; it is saved if there is a cache."""
        with model_message(self.connection, self.spec.model) as message:
            request = self.spec.prepare_request(self.connection.session, message, cache, self.deadline)
            return self.call.run(self.connection, self.connection.device.PrepareModel, request)
