"""Cache: entries of the store, and the named cache files of clients, as the HAL passes them to a driver."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict

import grpc

from nnhal import wire
from nnhal.errors import HalError, general_failure, invalid_argument, limit_exceeded
from nnhal.types import ErrorStatus
from nnhal.v1 import cache_pb2, cache_pb2_grpc
from nnhal_cache.errors import CacheError, FullError, TooLargeError
from nnhal_cache.files import BadNameError, NamedFiles, TooManyFilesError
from nnhal_cache.store import Store
from nnhal_service.grpc_support.handlers import handler
from nnhal_service.model_cache.cache_arguments import CacheArguments
from nnhal_service.model_cache.cache_file import MODE_NAMES, CacheFile, access_mode, unknown_file
from nnhal_service.requests.service_parts import ServiceParts
from nnhal_service.rpc.servicer import ServicerBase
from nnhal_service.serving.devices import Devices
from nnhal_service.sessions.session import Session

READ_BYTES = 2**20
_ACCESS = {
    cache_pb2.ACCESS_MODE_READ_ONLY: os.O_RDONLY,
    cache_pb2.ACCESS_MODE_WRITE_ONLY: os.O_WRONLY,
    cache_pb2.ACCESS_MODE_READ_WRITE: os.O_RDWR,
}
_STATUS = {
    errno.EINVAL: ErrorStatus.INVALID_ARGUMENT,
    errno.EFBIG: ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT,
    errno.ENOSPC: ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT,
    errno.EDQUOT: ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT,
    errno.EMFILE: ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT,
    errno.ENFILE: ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT,
}
"""Status of system errors by errno; other errors are a GENERAL_FAILURE."""


@contextmanager
def hal_errors() -> Iterator[None]:
    """Convert errors of the cache directory and of cache files to HAL errors."""
    try:
        yield
    except BadNameError as error:
        raise invalid_argument(str(error)) from error
    except TooManyFilesError as error:
        raise limit_exceeded("cache_files", str(error)) from error
    except (FullError, TooLargeError) as error:
        raise HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, str(error)) from error
    except CacheError as error:
        raise general_failure(str(error)) from error
    except OSError as error:
        status = _STATUS.get(error.errno or 0, ErrorStatus.GENERAL_FAILURE)
        raise HalError(status, f"cannot use the cache file: {error.strerror}") from error


class CacheServicer(ServicerBase, cache_pb2_grpc.CacheServicer):
    """Servicer of Cache."""

    def __init__(self, parts: ServiceParts, store: Store, devices: Devices, arguments: CacheArguments) -> None:
        super().__init__(parts)
        self._devices = devices
        self._arguments = arguments
        self._store = store
        self._files = NamedFiles(store)
        self._growth_lock = threading.Lock()

    @handler()
    def Open(
        self, request: cache_pb2.OpenCacheFileRequest, context: grpc.ServicerContext
    ) -> cache_pb2.OpenCacheFileResponse:
        """Open a named or shared cache file."""
        session = self._sessions.get(request.session, context)
        offset = _offset(request.offset)
        with hal_errors():
            file = CacheFile(self._open(session, request), named=request.HasField("name"))
            try:
                file.seek(offset)
                size, handle = file.size, session.add(file, "open_cache_files")
            except BaseException:
                file.close()
                raise
        return cache_pb2.OpenCacheFileResponse(file=handle, size=size)

    def _open(self, session: Session, request: cache_pb2.OpenCacheFileRequest) -> int:
        """Return a descriptor of the requested file."""
        match request.WhichOneof("file"):
            case "name":
                if request.mode not in _ACCESS:
                    raise invalid_argument(f"unknown access mode {request.mode}")
                access, limit = _ACCESS[request.mode], self._limits["cache_files"]
                return self._files.open(str(session.identity), request.name, access, limit)
            case "shared":
                return _check_mode(session.shared.descriptor(request.shared), _ACCESS.get(request.mode))
            case _:
                raise invalid_argument("one of name and shared must be set")

    @handler()
    def Read(
        self, request: cache_pb2.ReadCacheFileRequest, context: grpc.ServicerContext
    ) -> cache_pb2.ReadCacheFileResponse:
        """Read bytes at the offset."""
        file = self._sessions.get(request.session, context).get(request.file, CacheFile)
        if not 0 <= request.length <= READ_BYTES:
            raise invalid_argument(f"length is {request.length}; it must be 0 to {READ_BYTES}")
        with hal_errors():
            return cache_pb2.ReadCacheFileResponse(data=file.read(request.length))

    @handler()
    def Write(
        self, request: cache_pb2.WriteCacheFileRequest, context: grpc.ServicerContext
    ) -> cache_pb2.WriteCacheFileResponse:
        """Write bytes at the offset."""
        session = self._sessions.get(request.session, context)
        file = session.get(request.file, CacheFile)
        with self._growing(session, file, lambda: file.growth(len(request.data))):
            file.write(request.data)
        return cache_pb2.WriteCacheFileResponse()

    @handler()
    def Seek(
        self, request: cache_pb2.SeekCacheFileRequest, context: grpc.ServicerContext
    ) -> cache_pb2.SeekCacheFileResponse:
        """Set the offset."""
        file = self._sessions.get(request.session, context).get(request.file, CacheFile)
        with hal_errors():
            file.seek(_offset(request.offset))
        return cache_pb2.SeekCacheFileResponse()

    @handler()
    def Truncate(
        self, request: cache_pb2.TruncateCacheFileRequest, context: grpc.ServicerContext
    ) -> cache_pb2.TruncateCacheFileResponse:
        """Set the size of the file."""
        session = self._sessions.get(request.session, context)
        file = session.get(request.file, CacheFile)
        if request.size < 0:
            raise invalid_argument(f"size is {request.size}; it must be >= 0")
        with self._growing(session, file, lambda: request.size - file.size):
            file.truncate(request.size)
        return cache_pb2.TruncateCacheFileResponse()

    @handler()
    def Delete(
        self, request: cache_pb2.DeleteCacheFileRequest, context: grpc.ServicerContext
    ) -> cache_pb2.DeleteCacheFileResponse:
        """Remove a named file. Sessions that have it open keep it."""
        session = self._sessions.get(request.session, context)
        with hal_errors():
            if not self._files.delete(str(session.identity), request.name):
                raise unknown_file(f"there is no cache file {request.name!r}")
        return cache_pb2.DeleteCacheFileResponse()

    @handler()
    def Check(
        self, request: cache_pb2.CheckCacheRequest, context: grpc.ServicerContext
    ) -> cache_pb2.CheckCacheResponse:
        """Return whether PrepareModelFromCache would succeed."""
        session = self._sessions.get(request.session, context)
        outcome = self._arguments.check(self._devices.get(request.device), session, request.cache)
        return cache_pb2.CheckCacheResponse(outcome=wire.cache_outcome_message(outcome))

    @handler()
    def List(self, request: cache_pb2.ListCacheRequest, context: grpc.ServicerContext) -> cache_pb2.ListCacheResponse:
        """Return the entries of the store, most recently used first."""
        session = self._sessions.get(request.session, context)
        with hal_errors():
            entries = self._store.list(str(session.identity))
        counters = self._store.counters(str(session.identity))
        return cache_pb2.ListCacheResponse(
            counters=cache_pb2.CacheCounters(**asdict(counters)),
            entries=(
                cache_pb2.CacheEntry(
                    token=entry.token,
                    size=entry.size,
                    saved_at=int(entry.saved_at),
                    last_used_at=int(entry.last_used_at),
                    hits=entry.hits,
                )
                for entry in entries
            ),
        )

    @handler()
    def Clear(
        self, request: cache_pb2.ClearCacheRequest, context: grpc.ServicerContext
    ) -> cache_pb2.ClearCacheResponse:
        """Remove entries of the store."""
        session = self._sessions.get(request.session, context)
        with hal_errors():
            return cache_pb2.ClearCacheResponse(removed=self._store.clear(str(session.identity), request.tokens))

    @contextmanager
    def _growing(self, session: Session, file: CacheFile, growth: Callable[[], int]) -> Iterator[None]:
        """Check the total size of an identity's named files before one grows. They grow one at a time."""
        with hal_errors(), self._growth_lock if file.named else nullcontext():
            if file.named and (more := growth()) > 0:
                if file.is_deleted:  # a deleted file is not counted
                    raise invalid_argument("the cache file has been deleted and cannot grow")
                used = self._files.total_bytes(str(session.identity))
                self._limits.require("cache_file_bytes", used + more, "cache files would have")
                quota = session.account.rules.cache_bytes
                if quota is not None and used + more > quota:
                    raise session.account.exceeded("cache_bytes", f"has {used} bytes in cache files", quota)
            yield


def _check_mode(descriptor: int, access: int | None) -> int:
    """Return a shared descriptor if it has the requested access mode; close it otherwise. None allows any mode."""
    actual = access_mode(descriptor)
    if access not in (None, actual):
        os.close(descriptor)
        raise invalid_argument(f"the shared descriptor is open for {MODE_NAMES.get(actual, 'neither')}")
    return descriptor


def _offset(value: int) -> int:
    if value < 0:
        raise invalid_argument(f"offset is {value}; it must be >= 0")
    return value
