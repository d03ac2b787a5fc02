"""Cache: the store's entries of a client, and cache files that it keeps itself, as the HAL hands them to a driver."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict

import grpc

from cache.errors import CacheError, FullError, TooLargeError
from cache.files import BadNameError, NamedFiles, TooManyFilesError
from cache.key import make_key, read_key
from cache.store import Store
from nnhal import wire
from nnhal.errors import HalError, general_failure, invalid_argument
from nnhal.types import ErrorStatus
from nnhal.v1 import cache_pb2, cache_pb2_grpc
from service.cache_file import MODE_NAMES, CacheFile, access_of, unknown
from service.devices import Devices
from service.kept_models import KeptModels
from service.limits import Limits, exceeded
from service.log import event
from service.rpc import answering
from service.sessions import Session, Sessions
from service.settings import Settings

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
"""Of what the system says; all else is a GENERAL_FAILURE."""


def open_key(settings: Settings) -> bytes | None:
    """The key for cache files; None, and a line in the log, where there is none: the device then makes one for itself.

    Raises:
        ValueError: the key file that the operator names cannot be used.
    """
    if settings.cache_key_file is not None:
        try:
            return read_key(settings.cache_key_file)
        except CacheError as error:
            raise ValueError(str(error)) from error
    if not settings.cache_bytes:
        return None
    try:
        return make_key(settings.cache_dir)
    except CacheError as error:
        event("cache-unusable", reason=error)
        return None


@contextmanager
def explained() -> Iterator[None]:
    """Turns what is wrong with the cache directory, or a file of a client, into the HAL's terms."""
    try:
        yield
    except BadNameError as error:
        raise invalid_argument(str(error)) from error
    except TooManyFilesError as error:
        raise exceeded("cache_files", str(error)) from error
    except (FullError, TooLargeError) as error:
        raise HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, str(error)) from error
    except CacheError as error:
        raise general_failure(str(error)) from error
    except OSError as error:
        status = _STATUS.get(error.errno or 0, ErrorStatus.GENERAL_FAILURE)
        raise HalError(status, f"the cache file cannot be used: {error.strerror}") from error


class CacheServicer(cache_pb2_grpc.CacheServicer):
    """The RPCs."""

    def __init__(self, sessions: Sessions, limits: Limits, store: Store, devices: Devices, kept: KeptModels) -> None:
        self._devices = devices
        self._kept = kept
        self._sessions = sessions
        self._limits = limits
        self._store = store
        self._files = NamedFiles(store)
        self._turn = threading.Lock()

    @answering
    def Open(
        self, request: cache_pb2.OpenCacheFileRequest, context: grpc.ServicerContext
    ) -> cache_pb2.OpenCacheFileResponse:
        """Opens a file of the client."""
        session = self._sessions.get(request.session)
        offset = _offset(request.offset)
        with explained():
            file = CacheFile(self._open(session, request), named=request.HasField("name"))
            try:
                file.seek(offset)
                size, handle = file.size, session.add(file, "open_cache_files")
            except BaseException:
                file.close()
                raise
        return cache_pb2.OpenCacheFileResponse(file=handle, size=size)

    def _open(self, session: Session, request: cache_pb2.OpenCacheFileRequest) -> int:
        """A descriptor of the file that is meant."""
        match request.WhichOneof("file"):
            case "name":
                if request.mode not in _ACCESS:
                    raise invalid_argument(f"access mode {request.mode} is none")
                access, limit = _ACCESS[request.mode], self._limits["cache_files"]
                return self._files.open(session.identity, request.name, access, limit)
            case "shared":
                return _matching(session.shared.descriptor(request.shared), _ACCESS.get(request.mode))
            case _:
                raise invalid_argument("name or shared must be set")

    @answering
    def Read(
        self, request: cache_pb2.ReadCacheFileRequest, context: grpc.ServicerContext
    ) -> cache_pb2.ReadCacheFileResponse:
        """Reads at the offset."""
        file = self._sessions.get(request.session).get(request.file, CacheFile)
        if not 0 <= request.length <= READ_BYTES:
            raise invalid_argument(f"length is {request.length}; it must be 0 to {READ_BYTES}")
        with explained():
            return cache_pb2.ReadCacheFileResponse(data=file.read(request.length))

    @answering
    def Write(
        self, request: cache_pb2.WriteCacheFileRequest, context: grpc.ServicerContext
    ) -> cache_pb2.WriteCacheFileResponse:
        """Writes at the offset."""
        session = self._sessions.get(request.session)
        file = session.get(request.file, CacheFile)
        with self._growing(session, file, lambda: file.growth(len(request.data))):
            file.write(request.data)
        return cache_pb2.WriteCacheFileResponse()

    @answering
    def Seek(
        self, request: cache_pb2.SeekCacheFileRequest, context: grpc.ServicerContext
    ) -> cache_pb2.SeekCacheFileResponse:
        """Moves the offset."""
        file = self._sessions.get(request.session).get(request.file, CacheFile)
        with explained():
            file.seek(_offset(request.offset))
        return cache_pb2.SeekCacheFileResponse()

    @answering
    def Truncate(
        self, request: cache_pb2.TruncateCacheFileRequest, context: grpc.ServicerContext
    ) -> cache_pb2.TruncateCacheFileResponse:
        """Sets the size."""
        session = self._sessions.get(request.session)
        file = session.get(request.file, CacheFile)
        if request.size < 0:
            raise invalid_argument(f"size is {request.size}; it must be >= 0")
        with self._growing(session, file, lambda: request.size - file.size):
            file.truncate(request.size)
        return cache_pb2.TruncateCacheFileResponse()

    @answering
    def Delete(
        self, request: cache_pb2.DeleteCacheFileRequest, context: grpc.ServicerContext
    ) -> cache_pb2.DeleteCacheFileResponse:
        """Removes a named file; who has it open keeps it."""
        session = self._sessions.get(request.session)
        with explained():
            if not self._files.delete(session.identity, request.name):
                raise unknown(f"there is no cache file {request.name!r}")
        return cache_pb2.DeleteCacheFileResponse()

    @answering
    def Check(
        self, request: cache_pb2.CheckCacheRequest, context: grpc.ServicerContext
    ) -> cache_pb2.CheckCacheResponse:
        """Looks at what PrepareModelFromCache would be made of."""
        session = self._sessions.get(request.session)
        outcome = self._kept.check(self._devices.get(request.device), session, request.cache)
        return cache_pb2.CheckCacheResponse(outcome=wire.cache_outcome_message(outcome))

    @answering
    def List(self, request: cache_pb2.ListCacheRequest, context: grpc.ServicerContext) -> cache_pb2.ListCacheResponse:
        """Entries of the store, the most recently used first."""
        session = self._sessions.get(request.session)
        with explained():
            entries = self._store.list(session.identity)
        counters = self._store.counters(session.identity)
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

    @answering
    def Clear(
        self, request: cache_pb2.ClearCacheRequest, context: grpc.ServicerContext
    ) -> cache_pb2.ClearCacheResponse:
        """Removes entries of the store."""
        session = self._sessions.get(request.session)
        with explained():
            return cache_pb2.ClearCacheResponse(removed=self._store.clear(session.identity, request.tokens))

    @contextmanager
    def _growing(self, session: Session, file: CacheFile, growth: Callable[[], int]) -> Iterator[None]:
        """Lets named files grow one at a time, and refuses what would make those of an identity too large together.

        Args:
            growth: how many bytes it will be, when nobody else makes one grow.
        """
        with explained(), self._turn if file.named else nullcontext():
            if file.named and (more := growth()) > 0:
                if file.deleted:  # nobody would see how large it is
                    raise invalid_argument("the cache file has been deleted and cannot grow")
                used = self._files.used(session.identity)
                self._limits.hold("cache_file_bytes", used + more, "cache files would have")
            yield


def _matching(descriptor: int, access: int | None) -> int:
    """A shared descriptor, if its access mode is the one that is wanted; None: any will do."""
    actual = access_of(descriptor)
    if access not in (None, actual):
        os.close(descriptor)
        raise invalid_argument(f"the descriptor that was shared is open for {MODE_NAMES.get(actual, 'neither')}")
    return descriptor


def _offset(value: int) -> int:
    if value < 0:
        raise invalid_argument(f"offset is {value}; it must be >= 0")
    return value
