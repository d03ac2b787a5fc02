"""A member of a fleet within this process: a device with a cache, and both ends of its share."""

import queue
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from nnhal.errors import HalError
from nnhal.types import CacheOutcome, CacheState
from nnhal.v1 import types_pb2
from nnhal_cache.store import Store
from nnhal_driver.backends import registry
from nnhal_driver.device import Device
from nnhal_driver.device_options import CacheOptions, DeviceOptions
from nnhal_driver.preparation.outcome import Outcome
from nnhal_service.identity.digests import scoped_digest
from nnhal_service.identity.identity import ANONYMOUS, Identity
from nnhal_service.metrics.catalog import Metric
from nnhal_service.model_cache.cache_arguments import CacheArguments, PendingSave
from nnhal_service.peers.cache_share.client import ShareClient
from nnhal_service.peers.cache_share.daemon import ShareDaemon
from nnhal_service.peers.cache_share.stores import StoreSource
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.session import Session
from tests.concurrency import wait_until
from tests.driver.launches import launch_preparation
from tests.service.model_cache.saving_model import model, stored_cache

KEY = bytes(range(32))
LABEL = "the share"
BYTES = 64 * 2**20


def digest_of(number: int) -> bytes:
    """Return what stands for the digest of a model."""
    return bytes([number + 1]) * 32


class Member:
    """A member of a fleet. Workers of one service have one `daemon`.

    Attributes:
        store: the local cache.
        daemon: the loop of the process that reads and writes the share.
        counts: what it has counted, by name of the metric and result.
    """

    def __init__(
        self, root: Path, requests: socket.socket, daemon: ShareDaemon, counts: Counter[str], key: bytes
    ) -> None:
        self.device = Device("test", registry.create(["CpuRef"]), DeviceOptions(cache=CacheOptions(key)))
        self.store = Store(root, BYTES)
        self.daemon = daemon
        self.counts = counts
        self.client = ShareClient(requests, key, 60.0, LABEL)
        self.arguments = CacheArguments(self.store, Limits(), self.client)

    def save(self, number: int, identity: Identity = ANONYMOUS, token: int | None = None) -> CacheOutcome:
        """Prepare and save a model, by default under a token of its own."""
        outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        cache = stored_cache(number if token is None else token)
        target = PendingSave(self.arguments, self.device, Session("test", identity))
        digest = scoped_digest(identity, digest_of(number))
        launch_preparation(
            self.device, model(number), target.committing(outcomes.put), cache=target.open(cache), digest=digest
        )
        return outcomes.get(timeout=60).cache

    def save_to_share(self, number: int, identity: Identity = ANONYMOUS, token: int | None = None) -> None:
        """Save a model, and wait until it has been written to the share, or is there already."""
        before = self.written
        assert self.save(number, identity, token).state == CacheState.SAVED
        assert wait_until(lambda: self.written > before), self.counts

    @property
    def written(self) -> int:
        """Number of writes that have succeeded."""
        return sum(self.counts[f"nnhal_cache_share_writes {result}"] for result in ("written", "replaced", "exists"))

    def reads(self, result: str) -> int:
        """Return the number of reads with a result."""
        return self.counts[f"nnhal_cache_share_reads {result}"]

    def load(self, number: int, identity: Identity = ANONYMOUS, digest: bytes = b"") -> Outcome:
        """Prepare a model from the cache, as DeviceServicer does."""
        outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        cache = types_pb2.CompilationCache()
        cache.CopyFrom(stored_cache(number))
        cache.model_digest = digest
        session = Session("test", identity)
        # the outcome has the error of a launch
        with suppress(HalError), self.arguments.open_for_loading(self.device, session, cache) as source:
            self.device.prepare_model_from_cache(outcomes.put, source.files)
        return outcomes.get(timeout=60)


@contextmanager
def running_members(
    root: Path, store: StoreSource, count: int = 1, *, key: bytes = KEY, max_bytes: int = 0
) -> Iterator[Sequence[Member]]:
    """Yield members that share a daemon, as the workers of one service do. They have one cache, too."""
    counts: Counter[str] = Counter()

    def count_one(metric: Metric, *labels: str, amount: float = 1) -> None:
        counts[" ".join((metric.name, *labels))] += int(amount)

    requests, received = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stopping = threading.Event()
    with requests, received:
        daemon = ShareDaemon(received, store, count_one, max_bytes, LABEL)

        def run() -> None:
            while not stopping.is_set():
                daemon.step()

        thread = threading.Thread(target=run)
        thread.start()
        members = [Member(root, requests, daemon, counts, key) for _ in range(count)]
        try:
            yield members
        finally:
            stopping.set()
            thread.join()
            daemon.close(60)
            for member in members:
                member.device.close()


@contextmanager
def running_member(root: Path, store: StoreSource, *, key: bytes = KEY) -> Iterator[Member]:
    """Yield a service with one worker."""
    with running_members(root, store, key=key) as (member,):
        yield member
