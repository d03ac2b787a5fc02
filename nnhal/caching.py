"""Warm starts from the client's side: what a model's token is made of, and the requests that use it. It sends nothing.

A token that nobody gave is derived as the Android runtime does: from the model, the device's name and version,
preference and priority.
"""

import hashlib
import struct
import time
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

from nnhal import pools, wire
from nnhal.enums import CacheState, ErrorStatus
from nnhal.errors import DeadObjectError, HalError, SessionLostError, invalid_argument
from nnhal.prepared import Names, names_of, nanoseconds, prepare_request
from nnhal.types import CACHE_TOKEN_BYTES, Memory, Model
from nnhal.v1 import cache_pb2, device_pb2, types_pb2

_NO_POOL = bytes(hashlib.sha256().digest_size)
_TOO_LATE = (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT)


_graphs: WeakKeyDictionary[Model, bytes] = WeakKeyDictionary()
"""Digests of the graphs of models: a graph never changes, what constants hold may."""


def model_digest(model: Model) -> bytes:
    """SHA-256 over all of a model that travels: its graph and the bytes of its constants, not its names."""
    graph = _graphs.get(model)
    if graph is None:
        graph = _graphs[model] = _graph_digest(model)
    found = hashlib.sha256(graph + hashlib.sha256(model.operand_values).digest())
    for pool in model.pools:
        found.update(pools.digest(pools.contents(pool)) if isinstance(pool, Memory) else _NO_POOL)
    return found.digest()


def _graph_digest(model: Model) -> bytes:
    message = wire.model_message(replace(model, operand_values=b"", pools=()), wire.inline_memory)
    return hashlib.sha256(message.SerializeToString(deterministic=True)).digest()


def derived_token(digest: bytes, device: str, version: str, preference: int, priority: int) -> bytes:
    """The token of a model on a device.

    Args:
        digest: see `model_digest`.
        version: of driver and backends.
    """
    found = hashlib.sha256(digest + struct.pack("<qq", preference, priority))
    for text in (device.encode(), version.encode()):
        found.update(struct.pack("<q", len(text)) + text)
    return found.digest()


def check_token(token: bytes) -> None:
    """Refuses a token of another length than 32 bytes.

    Raises:
        HalError: INVALID_ARGUMENT.
    """
    if len(token) != CACHE_TOKEN_BYTES:
        raise invalid_argument(f"the cache token has {len(token)} bytes, must have {CACHE_TOKEN_BYTES}")


def stored(token: bytes) -> types_pb2.CompilationCache:
    """The entry of a token, in the store of the service."""
    return types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=token)


def check_request(session: bytes, device: str, token: bytes) -> cache_pb2.CheckCacheRequest:
    """Asks whether a token would load."""
    return cache_pb2.CheckCacheRequest(session=session, device=device, cache=stored(token))


@dataclass(frozen=True, eq=False)
class Recipe:
    """How to prepare a model, now and again after the service was restarted.

    It keeps the model: without it, an entry that is gone could not be made again.

    Attributes:
        device: name, as the client gave it.
        token: given by hand; b"": it is derived.
        digest: of the model; b"" where the token is given.
    """

    model: Model
    device: str
    preference: int
    priority: int
    token: bytes
    digest: bytes

    @staticmethod
    def of(model: Model, device: str, preference: int, priority: int, token: bytes | None) -> "Recipe":
        """A recipe.

        Args:
            token: None: derived from the model.

        Raises:
            HalError: INVALID_ARGUMENT: the length of the token.
        """
        if token is None:
            return Recipe(model, device, preference, priority, b"", model_digest(model))
        check_token(token)
        return Recipe(model, device, preference, priority, bytes(token), b"")

    @property
    def names(self) -> Names:
        """Names of inputs and outputs, which do not travel."""
        return names_of(self.model)

    def token_on(self, version: str) -> bytes:
        """The token on a device of this version, which means nothing where the token was given."""
        return self.token or derived_token(self.digest, self.device, version, self.preference, self.priority)

    def from_cache(self, session: bytes, token: bytes, until: "Until") -> device_pb2.PrepareModelFromCacheRequest:
        """Asks for the model by its token alone."""
        return device_pb2.PrepareModelFromCacheRequest(
            session=session, device=self.device, deadline_ns=nanoseconds(until.left), cache=stored(token)
        )

    def compiling(
        self, session: bytes, token: bytes, model: types_pb2.Model, until: "Until"
    ) -> device_pb2.PrepareModelRequest:
        """Asks to prepare the model, and to save it."""
        request = prepare_request(session, self.device, model, self.preference, self.priority, until.left)
        request.cache.CopyFrom(stored(token))
        return request

    def check_unchanged(self) -> None:
        """Refuses to go on with a model whose constants have been written to since its token was derived.

        Raises:
            SessionLostError: they have.
        """
        if self.digest and model_digest(self.model) != self.digest:
            reason = "the session has ended, and the model's constants have changed since; prepare it again"
            raise SessionLostError(ErrorStatus.DEVICE_UNAVAILABLE, reason)


def must_compile(notify: device_pb2.Notify) -> bool:
    """Whether a preparation from the cache failed in a way that another one, from the model, may not."""
    status = int(notify.status)
    return status != ErrorStatus.NONE and status not in _TOO_LATE


def compiled(notify: device_pb2.Notify, missed: device_pb2.Notify) -> device_pb2.Notify:
    """The notify of a model that was compiled and saved because it was not in the cache: tells also why not."""
    if int(notify.cache.state) == CacheState.SAVED:
        notify.cache.reason = missed.cache.reason or missed.reason
    return notify


class Until:
    """A deadline that several calls share."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float | None:
        """Seconds, at least 0; None: any number."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def at_most(self, seconds: float) -> float:
        """What is left of so many seconds."""
        left = self.left
        return seconds if left is None else min(seconds, left)


def is_lost(error: HalError) -> bool:
    """Whether an error says that the session, or the service, has gone."""
    return isinstance(error, DeadObjectError | SessionLostError)
