"""The share as workers use it: an entry that the local cache does not have is fetched, and a saved one is offered.

A worker has the key and trusts nothing else: it checks what it gets before that enters its cache. A process of the
service moves the bytes (`daemon.py`), so that workers need no network, and a store that hangs harms none of them.
"""

import base64
import os
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO

from nnhal.types import CacheState
from nnhal_cache.errors import CacheError
from nnhal_cache.store import PendingEntry, Store
from nnhal_driver.device import Device
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.model_cache.files import CacheFiles
from nnhal_service.channel import wait_readable
from nnhal_service.packets import Message, receive, send
from nnhal_service.peers.cache_share.breaker import CircuitBreaker
from nnhal_service.peers.cache_share.envelope import MAX_OBJECT_BYTES, EntrySealer, RefusedEntryError

NO_ENTRY = "there is no entry for this token"
UNAVAILABLE = NO_ENTRY + ", and the share is unavailable: {}"
REFUSED = "the entry in the share was refused: {}"
"""Reasons of misses."""
NO_ANSWER = "its process does not answer"

_GRACE_S = 1.0
"""Seconds after the timeout at which the process should have said that the store is too slow."""


@dataclass(frozen=True, slots=True)
class WantedEntry:
    """An entry that the local cache does not have.

    Attributes:
        token: 32 bytes.
        digest: digest of the only model that is accepted; b"" accepts any model.
        quota: bytes that all local entries of the identity may have, or None.
        object_to: returns why a model cache, given its descriptor, must not be used, or "".
        left_s: seconds that the caller waits; None for as long as the share may take.
        name: name and version of a model of the repository, for lists of entries.
    """

    device: Device
    identity: str
    token: bytes
    digest: bytes = b""
    quota: int | None = None
    object_to: Callable[[int], str] = lambda model_fd: ""
    left_s: float | None = None
    name: str = ""


class ShareClient:
    """The share of one worker. Thread safe.

    Args:
        requests: the socket to the process that reads and writes the share.
        timeout_s: seconds that a preparation may wait for the share.
        label: the name of the share for operators.
    """

    def __init__(self, requests: socket.socket, key: bytes, timeout_s: float, label: str) -> None:
        self._requests = requests
        self._sealer = EntrySealer(key)
        self._timeout_s = timeout_s
        self._label = label
        # whether the process answers; whether the store does is up to the process
        self._breaker = CircuitBreaker(lambda reason: None)

    def fetch(self, store: Store, wanted: WantedEntry) -> str:
        """Fetch an entry into the local cache. Return why that was not possible, or ""."""
        if reason := self._breaker.refusal():
            return UNAVAILABLE.format(reason)
        try:
            store.layout.create()
            with tempfile.TemporaryFile(dir=store.layout.generations) as file:
                return self._fetch(store, wanted, file)
        except CacheError as error:
            return str(error)
        except OSError as error:
            return UNAVAILABLE.format(error.strerror or error)

    def _fetch(self, store: Store, wanted: WantedEntry, file: IO[bytes]) -> str:
        name = self._sealer.name(wanted.device.build_environment, wanted.identity, wanted.token)
        by = time.monotonic() + self._timeout_s
        quota = store.max_bytes if wanted.quota is None else wanted.quota
        own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with own:
            with other:
                message = {"read": name, "by": by, "limit": min(store.max_bytes, quota, MAX_OBJECT_BYTES)}
                if not send(self._requests, message, [other.fileno(), file.fileno()]):
                    self._breaker.fail("its process does not take requests")
                    return UNAVAILABLE.format("its process does not take requests")
            answer = self._wait(own, wanted.left_s)
            if answer.get("found") is None:
                missing = answer["missing"]
                return "" if missing == "" and store.has_entry(wanted.identity, wanted.token) else missing or NO_ENTRY
            refusal = ""
            try:
                self._adopt(store, wanted, name, file.fileno())
            except RefusedEntryError as error:
                refusal = str(error)
            finally:
                send(own, {"refused": refusal})
        return REFUSED.format(refusal) if refusal else ""

    def _wait(self, own: socket.socket, left_s: float | None) -> Message:
        """Return the answer; that the share is unavailable if there is none in time."""
        longest_s = self._timeout_s + _GRACE_S
        if not wait_readable(own, max(0.0, longest_s if left_s is None else min(left_s, longest_s))):
            if left_s is not None and left_s < longest_s:
                return {"missing": UNAVAILABLE.format("there was no time left to ask it")}
            self._breaker.fail(NO_ANSWER)
            return {"missing": UNAVAILABLE.format(NO_ANSWER)}
        received = receive(own)
        if received is None:
            return {"missing": UNAVAILABLE.format("its process has ended")}
        self._breaker.succeed()
        return received[0]

    def _adopt(self, store: Store, wanted: WantedEntry, name: str, file: int) -> None:
        """Save an entry in the local cache, after checking all of it."""
        entry = self._sealer.open(name, file)
        store.require_fits(entry.model[1] + entry.data[1])
        with store.write(wanted.identity, wanted.token) as pending:
            _copy(file, entry.model, pending.model_fd)
            _copy(file, entry.data, pending.data_fd)
            files = CacheFiles(wanted.token, [pending.model_fd], [pending.data_fd], digest=wanted.digest)
            outcome = wanted.device.check_cache(files)
            if outcome.state != CacheState.HIT:
                raise RefusedEntryError(outcome.reason)
            if objection := wanted.object_to(pending.model_fd):
                raise RefusedEntryError(objection)
            origin = f"{self._label}, saved by {entry.host}"
            pending.commit(backends_text(wanted.device), wanted.quota, origin, wanted.name)

    def offer(self, device: Device, identity: str, token: bytes, pending: PendingEntry, model: PreparedModel) -> None:
        """Have a saved entry written to the share, some time. What cannot be written is only counted."""
        name = self._sealer.name(device.build_environment, identity, token)
        model_id = self._sealer.model_id(model.digest, model.priority)
        head = self._sealer.pack(name, model_id, pending.model_fd, pending.data_fd)
        message = {"write": name, "head": base64.b64encode(head).decode()}
        send(self._requests, message, [pending.model_fd, pending.data_fd])


def backends_text(device: Device) -> str:
    """Return the backends of a device, for lists of entries."""
    return " ".join(f"{backend.id} {backend.version}" for backend in device.backends)


def _copy(source: int, region: tuple[int, int], target: int) -> None:
    """Copy a region of a file to the end of another one."""
    offset, left = region
    while left:
        copied = os.sendfile(target, source, offset, left)
        if not copied:
            raise RefusedEntryError("it is truncated")
        offset, left = offset + copied, left - copied
