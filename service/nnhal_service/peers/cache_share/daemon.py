"""The process of a service that reads and writes its share: its loop, which hands the work to threads.

It moves bytes, and has no key: workers check what they get.
"""

import base64
import logging
import os
import queue
import select
import socket
import time
from contextlib import suppress

from nnhal.lru import LruDict
from nnhal_service.log import event
from nnhal_service.metrics import catalog
from nnhal_service.packets import Message, receive, send
from nnhal_service.peers.cache_share.breaker import CircuitBreaker
from nnhal_service.peers.cache_share.client import NO_ENTRY, UNAVAILABLE
from nnhal_service.peers.cache_share.envelope import NAME
from nnhal_service.peers.cache_share.reads import LATE, Read, ReaderThreads, ReadRequest
from nnhal_service.peers.cache_share.stores import StoreSource
from nnhal_service.peers.cache_share.writes import Count, Write, Writer

MAX_READS = 256
"""Reads in progress and waiting. Further ones are refused."""
LEASE_S = 60.0
"""Seconds for which a worker may check an object while others wait for it."""
_MAX_REFUSED = 4096
"""Names of invalid objects that are remembered."""
_TICK_S = 0.2


class ShareDaemon:
    """Loop of the process. It alone uses the state of this object. Close it when done.

    Args:
        requests: the socket with the requests of workers.
        max_bytes: bytes that all objects may have; 0 if something else limits the store.
        label: name of the share, for the log.
    """

    def __init__(self, requests: socket.socket, store: StoreSource, count: Count, max_bytes: int, label: str) -> None:
        self._requests = requests
        self._count = count
        self._label = label
        self.breaker = CircuitBreaker(self._report)
        self.writer = Writer(store, self.breaker, count, max_bytes)
        self._wake, self._waker = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._finished: queue.SimpleQueue[tuple[Read, str | None, str]] = queue.SimpleQueue()
        self._readers = ReaderThreads(store, self._finish)
        self._reads: dict[str, Read] = {}
        self._refused: LruDict[str, None] = LruDict(_MAX_REFUSED)

    def _report(self, reason: str) -> None:
        if reason:
            event("share-unavailable", logging.WARNING, share=self._label, reason=reason)
        else:
            event("share-available", share=self._label)

    def step(self) -> None:
        """Wait for something to happen, for a short time, and handle it."""
        poll = select.poll()
        poll.register(self._wake.fileno(), select.POLLIN)
        if len(self._reads) < MAX_READS:
            poll.register(self._requests, select.POLLIN)
        leading = {read.leader.answers.fileno(): read for read in self._reads.values() if read.is_answered}
        for descriptor in leading:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(_TICK_S * 1e3):
            if descriptor == self._wake.fileno():
                self._wake.recv(1)
            elif descriptor in leading:
                self._end(leading[descriptor])
        while len(self._reads) < MAX_READS and (received := receive(self._requests)) is not None:
            self._handle(*received)
        with suppress(queue.Empty):
            while True:
                self._answer(*self._finished.get_nowait())
        self._expire()

    def _handle(self, message: Message, descriptors: list[int]) -> None:
        """Handle a request."""
        name = message.get("read") or message.get("write")
        if not isinstance(name, str) or not NAME.fullmatch(name) or len(descriptors) != 2:
            for descriptor in descriptors:
                os.close(descriptor)
        elif "read" in message:
            self._read(ReadRequest(name, socket.socket(fileno=descriptors[0]), message["by"]), descriptors[1], message)
        else:
            is_replaced = self._refused.pop(name, self) is None
            self.writer.add(Write(name, base64.b64decode(message["head"]), tuple(descriptors), is_replaced))

    def _read(self, request: ReadRequest, file: int, message: Message) -> None:
        if (read := self._reads.get(request.name)) is not None:
            os.close(file)
            read.followers.append(request)
            return
        read = Read(request, file, message["limit"])
        self._reads[request.name] = read
        if reason := self.breaker.refusal():
            self._count(catalog.SHARE_READS, "skipped")
            self._close(read, UNAVAILABLE.format(reason))
        else:
            read.is_running = True
            self._readers.start(read)

    def _finish(self, read: Read, missing: str | None, failure: str) -> None:
        """Hand a result to the loop. Readers call this."""
        self._finished.put((read, missing, failure))
        with suppress(OSError):  # full: it wakes up anyway; closed: it has ended
            self._waker.send(b".", socket.MSG_DONTWAIT)

    def _answer(self, read: Read, missing: str | None, failure: str) -> None:
        """Answer the requests for an object."""
        read.is_running = False
        if self._reads.get(read.leader.name) is not read:  # answered at its deadline
            os.close(read.file)
            return
        if failure:
            self.breaker.fail(failure)
            self._count(catalog.SHARE_READS, "error")
            self._close(read, UNAVAILABLE.format(failure))
            return
        self.breaker.succeed()
        if missing is not None:
            self._count(catalog.SHARE_READS, "too_large" if missing else "absent")
            self._close(read, missing or NO_ENTRY)
            return
        self._count(catalog.SHARE_READ_BYTES, amount=read.received)
        read.is_answered = True
        read.leader.by = time.monotonic() + LEASE_S
        send(read.leader.answers, {"found": read.received})

    def _end(self, read: Read) -> None:
        """Handle what a worker says of an object that it has got, or its end."""
        received = receive(read.leader.answers)
        if received is None:
            self._count(catalog.SHARE_READS, "abandoned")
            self._close(read, "")
            return
        reason, name = received[0]["refused"], read.leader.name
        if reason:
            self._count(catalog.SHARE_READS, "refused")
            event("share-entry-refused", logging.WARNING, share=self._label, entry=name, reason=reason)
            self._refused.put(name, None)
        else:
            self._count(catalog.SHARE_READS, "hit")
            self.writer.add(Write(name, b"", (os.dup(read.file),), is_refresh=True))
        self._close(read, reason and f"the entry in the share was refused: {reason}")

    def _close(self, read: Read, missing: str) -> None:
        """End a read. Those that wait learn why there is no entry; or "", if one may be in the local cache now."""
        del self._reads[read.leader.name]
        waiting = read.followers if read.is_answered else [read.leader, *read.followers]
        for request in waiting:
            send(request.answers, {"missing": missing})
        for request in (read.leader, *read.followers):
            request.answers.close()
        if not read.is_running:  # otherwise a thread still writes to it
            os.close(read.file)

    def _expire(self) -> None:
        """Answer those that do not wait any longer: the store is too slow for them."""
        now = time.monotonic()
        for read in list(self._reads.values()):
            if now <= read.leader.by:
                continue
            if not read.is_answered:
                self.breaker.fail(LATE)
                self._count(catalog.SHARE_READS, "timeout")
            self._close(read, UNAVAILABLE.format(LATE))

    def close(self, flush_s: float) -> None:
        """End all reads, and write what waits for some seconds at most."""
        for read in list(self._reads.values()):
            self._close(read, UNAVAILABLE.format("the service stops"))
        self._readers.close()
        if dropped := self.writer.close(flush_s):
            event("share-writes-dropped", logging.WARNING, share=self._label, entries=dropped)
        self._wake.close()
        self._waker.close()
