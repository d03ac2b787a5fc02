"""Reads of the share by the process of a service: each object is fetched once for all that wait for it.

The first request for an object leads: the object goes to its file. It then has the time until its socket ends to put a
valid entry into the local cache of the service, where the others look as soon as that has happened.
"""

import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from nnhal_service.peers.cache_share.envelope import MAX_OBJECT_BYTES, declared_bytes
from nnhal_service.peers.cache_share.stores import StoreSource

CHUNK_BYTES = 4 * 2**20
"""Bytes of one request to the store."""
THREADS = 8
"""Objects that are read at once."""
LATE = "it did not answer in time"
"""Failure of a store for which the client does not wait any more."""


@dataclass(slots=True, eq=False)
class ReadRequest:
    """A request for an object.

    Attributes:
        answers: the end of a socket for answers.
        by: monotonic time until which the worker waits.
    """

    name: str
    answers: socket.socket
    by: float


@dataclass(slots=True, eq=False)
class Read:
    """A read in progress.

    Attributes:
        leader: the request whose file the object goes to.
        followers: further requests for the same object.
        is_running: whether a thread writes to the file.
        is_answered: whether the leader has its answer.
        received: bytes of the object so far.
    """

    leader: ReadRequest
    file: int
    limit: int
    followers: list[ReadRequest] = field(default_factory=list)
    is_running: bool = False
    is_answered: bool = False
    received: int = 0


Finish = Callable[[Read, str | None, str], None]
"""Called by a reader with a read, why there is no object or None, and the failure of the store or ""."""


class ReaderThreads:
    """Threads that read objects. A thread that hangs in the store is lost; the process ends without it.

    Args:
        finish: receives the results, in any of the threads.
    """

    def __init__(self, store: StoreSource, finish: Finish) -> None:
        self._store = store
        self._finish = finish
        self._reads: queue.SimpleQueue[Read | None] = queue.SimpleQueue()
        for number in range(THREADS):
            threading.Thread(target=self._run, name=f"nnhal-share-read-{number}", daemon=True).start()

    def start(self, read: Read) -> None:
        """Start a read."""
        self._reads.put(read)

    def close(self) -> None:
        """Have the threads end, without waiting for them."""
        for _ in range(THREADS):
            self._reads.put(None)

    def _run(self) -> None:
        while (read := self._reads.get()) is not None:
            try:
                missing, failure = self._copy(read), ""
            except FileNotFoundError:
                missing, failure = "", ""
            except Exception as error:  # a store may raise anything
                missing, failure = None, describe_error(error)
            self._finish(read, missing, failure)

    def _copy(self, read: Read) -> str | None:
        """Copy an object to the file of its reader. Return why it is not wanted, or None.

        Nothing that the object says is trusted: the limit bounds what is read. One byte more than it should have is
        read, so that the worker sees if it is longer. The range ends there, because some stores fail for a range behind
        the end of an object.
        """
        expected = end = min(CHUNK_BYTES, read.limit + 1)
        while read.received < expected:
            content = self._store().read(read.leader.name, read.received, end)
            os.pwrite(read.file, content, read.received)
            is_short, is_first = read.received + len(content) < end, read.received == 0
            read.received += len(content)
            if is_first:
                expected = declared_bytes(content) or len(content)
            if (
                is_short or expected > MAX_OBJECT_BYTES
            ):  # this is the end; or the head is invalid, which the worker sees
                return None
            if max(expected, read.received) > read.limit:
                return f"the entry in the share is larger than {read.limit} bytes, the limit here"
            if time.monotonic() > read.leader.by:
                raise TimeoutError(LATE)
            end = min(read.received + CHUNK_BYTES, expected) + 1
        return None


def describe_error(error: Exception) -> str:
    """Return the text of an error of a store."""
    text = str(error) or getattr(error, "strerror", None) or ""
    return f"{type(error).__name__}: {text}"[:500] if text else type(error).__name__
