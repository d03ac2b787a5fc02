"""Warm starts from the compilation cache: tokens of models, and the requests that use them. Makes no calls.

Without a given token, one is derived as in the Android runtime: from the model, the device's name and version,
preference and priority.
"""

import hashlib
import logging
import os
import struct
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from weakref import WeakKeyDictionary

from nnhal import wire
from nnhal.client.core.arguments import nanoseconds, optional_nanoseconds, type_error
from nnhal.client.core.memory import contiguous_bytes, digest, move_large_values
from nnhal.client.core.prepared_model import constants_changed
from nnhal.errors import DeadObjectError, HalError, SessionLostError
from nnhal.model_digest import NO_POOL_DIGEST, combined_digest, graph_digest
from nnhal.rules.cache_token import check_token
from nnhal.types import ErrorStatus, Memory, Model
from nnhal.v1 import device_pb2, types_pb2

_log = logging.getLogger(__name__)

DEADLINE_MISSED = (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT)


_graph_digests: WeakKeyDictionary[Model, bytes] = WeakKeyDictionary()
"""Digests of the graphs of models. A graph never changes, but the bytes of its constants may."""


def model_digest(model: Model) -> bytes:
    """Return the digest of everything of a model that travels: its graph and its constants, without its names."""
    sent = move_large_values(model)
    graph = _graph_digests.get(model)
    if graph is None:
        graph = _graph_digests[model] = graph_digest(wire.model_message(replace(sent, operand_values=b"", pools=())))
    pools = (digest(contiguous_bytes(p)) if isinstance(p, Memory) else NO_POOL_DIGEST for p in sent.pools)
    return combined_digest(graph, sent.operand_values, pools)


def derived_token(digest: bytes, device: str, version: str, preference: int, priority: int) -> bytes:
    """Return the token of a model on a device."""
    sha256 = hashlib.sha256(digest + struct.pack("<qq", preference, priority))
    for text in (device.encode(), version.encode()):
        sha256.update(struct.pack("<q", len(text)) + text)
    return sha256.digest()


def stored_entry(token: bytes, digest: bytes) -> types_pb2.CompilationCache:
    """Return the cache argument for an entry in the store of the service.

    `digest` is that of the only model that the entry may hold; b"" for any model.
    """
    return types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=token, model_digest=digest)


@dataclass(frozen=True)
class ClientCacheFolder:
    """Cache files of one model. Errors of the file system are logged: a preparation goes on without the cache.

    Attributes:
        token: token of the model, which names its files.
    """

    path: Path
    token: bytes

    def _file(self, number: int) -> Path:
        return self.path / f"{self.token.hex()}-{number}"

    def read(self, count: int) -> list[bytes] | None:
        """Return the contents of the files, or None if one of them is missing."""
        try:
            return [self._file(number).read_bytes() for number in range(count)]
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.warning("the compilation cache in %s cannot be read: %s", self.path, error)
            return None

    def write(self, contents: Sequence[bytes]) -> None:
        """Replace the files. Each is replaced as a whole, and the service rejects files of different models."""
        try:
            for number, content in enumerate(contents):
                with tempfile.NamedTemporaryFile(dir=self.path, prefix=".", delete=False) as temporary:
                    temporary.write(content)
                os.replace(temporary.name, self._file(number))
        except OSError as error:
            _log.warning("the compilation cache in %s cannot be written: %s", self.path, error)


@dataclass(frozen=True, eq=False)
class PreparationSpec:
    """Arguments of a preparation, to be repeated after a restart of the service.

    Keeps the model, because the entry in the cache may be gone by then.

    Attributes:
        token: token given by the client; b"" if it is derived.
        digest: digest of the model; b"" if the preparation does not use the cache.
        uses_cache: whether the model is loaded from the cache, and saved there.
        folder: place of cache files at the client; None for the cache of the service.
    """

    model: Model
    device: str
    preference: int
    priority: int
    token: bytes
    digest: bytes
    uses_cache: bool
    folder: ClientCacheFolder | None = None

    @staticmethod
    def of(
        model: Model, device: str, preference: int, priority: int, token: bytes | None, *, uses_cache: bool = True
    ) -> "PreparationSpec":
        """Return the spec of a preparation. For the cache, a token is derived from the model unless it is given.

        Raises:
            HalError: INVALID_ARGUMENT: the length of the token.
            TypeError: the token is not bytes.
        """
        if token is not None:
            if not isinstance(token, bytes | bytearray | memoryview):
                raise type_error("token", token, "bytes")
            check_token(token)
        digest = model_digest(model) if uses_cache else b""
        return PreparationSpec(model, device, preference, priority, bytes(token or b""), digest, uses_cache)

    def token_for(self, version: str) -> bytes:
        """Return the token on a device of some version. A given token does not depend on the version."""
        return self.token or derived_token(self.digest, self.device, version, self.preference, self.priority)

    def load_request(
        self, session: bytes, cache: types_pb2.CompilationCache, deadline: "SharedDeadline"
    ) -> device_pb2.PrepareModelFromCacheRequest:
        """Return the request that prepares the model from the cache."""
        deadline_ns = optional_nanoseconds(deadline.remaining)
        return device_pb2.PrepareModelFromCacheRequest(
            session=session, device=self.device, deadline_ns=deadline_ns, cache=cache, model_name=self.model.name
        )

    def prepare_request(
        self,
        session: bytes,
        model: types_pb2.Model,
        cache: types_pb2.CompilationCache | None,
        deadline: "SharedDeadline",
    ) -> device_pb2.PrepareModelRequest:
        """Return the request that prepares the model, and saves it in the cache if there is one."""
        return device_pb2.PrepareModelRequest(
            session=session,
            device=self.device,
            model=model,
            preference=self.preference,  # type: ignore[arg-type]
            priority=self.priority,  # type: ignore[arg-type]
            deadline_ns=optional_nanoseconds(deadline.remaining),
            cache=cache,
            model_name=self.model.name,
        )

    def check_model_unchanged(self) -> None:
        """Check that the model's constants are those that were prepared.

        Raises:
            SessionLostError: they have changed.
        """
        if model_digest(self.model) != self.digest:
            raise constants_changed()

    def is_other_model(self, loaded: device_pb2.Notify) -> bool:
        """Return whether the service has prepared another model from the cache, which must not be used.

        The service compares the digests itself. A service that does not know digests reports none, and is trusted.
        """
        digest = loaded.model_digest
        if int(loaded.status) != ErrorStatus.NONE or not digest or digest == self.digest:
            return False
        loaded.cache.reason = "the service has prepared another model from this entry"
        _log.warning("%s; the model is prepared again", loaded.cache.reason)
        return True


class SharedDeadline:
    """Deadline that several calls share."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + nanoseconds(seconds) / 1e9

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline, at least 0; None if there is no deadline."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def at_most(self, seconds: float) -> float:
        """Return the seconds until the deadline, but no more than `seconds`."""
        remaining = self.remaining
        return seconds if remaining is None else min(seconds, remaining)


NO_DEADLINE = SharedDeadline(None)


def is_session_lost(error: HalError) -> bool:
    """Return whether an error means that the session or the service is gone."""
    return isinstance(error, DeadObjectError | SessionLostError)
