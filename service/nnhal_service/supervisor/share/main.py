"""The process of the cache share: a child of the supervisor, which alone talks to the store."""

import signal
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from nnhal_service.channel import Channel
from nnhal_service.metrics import catalog
from nnhal_service.metrics.pending_counts import PendingCounts
from nnhal_service.peers.cache_share.daemon import ShareDaemon
from nnhal_service.peers.cache_share.locations import directory_of, open_store
from nnhal_service.replaced_files import file_version
from nnhal_service.sandbox.profile import store_profile
from nnhal_service.sandbox.restriction import enter_sandbox
from nnhal_service.supervisor.adoption import begin_process
from nnhal_service.supervisor.share.share_process import FLUSH_S
from nnhal_service.supervisor.template import ChildArguments

_REPORT_S = 1.0
_LOOK_S = 5.0
"""Seconds between two looks at a directory that cannot be used."""


def run_share(arguments: ChildArguments) -> None:
    """Serve the workers until SIGTERM, or the end of the supervisor.

    Args:
        arguments: the descriptor is that of the socket with the requests of workers.
    """
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    settings, folder = begin_process(arguments)
    assert settings.cache_share is not None
    (requests,) = arguments.descriptors
    directory = directory_of(settings.cache_share)
    if directory is not None:
        with suppress(OSError):  # the first use reports it
            directory.mkdir(0o770, parents=True, exist_ok=True)
    reports = _Reports(arguments.channel, directory)
    folders = [folder] if directory is None else [folder, directory]
    enter_sandbox(settings, folder, lambda: store_profile(settings, folders, outgoing=directory is None))
    store = cache(partial(open_store, settings.cache_share, settings.cache_share_timeout_s))
    with socket.socket(fileno=requests) as receiver:
        daemon = ShareDaemon(receiver, store, reports.count, settings.cache_share_bytes, settings.cache_share)
        while not stopping.is_set():
            daemon.step()
            reports.step(daemon)
        daemon.close(FLUSH_S)
        reports.send({})


class _Reports:
    """Counts of the process, and its reports to its supervisor, about once a second. Counting is thread safe.

    Args:
        directory: the directory of the share, if it is one, before the sandbox.
    """

    def __init__(self, channel: Channel, directory: Path | None) -> None:
        self._channel = channel
        self._directory = directory
        self._found = _identify(directory)
        self._report_at = self._look_at = 0.0
        self._counts = PendingCounts()
        self.count = self._counts.count

    def send(self, gauges: Mapping[str, float]) -> None:
        """Send the counts since the last report, and some gauges."""
        self._channel.send({"counts": self._counts.take(), "gauges": gauges})

    def step(self, daemon: ShareDaemon) -> None:
        """Report if it is time."""
        now = time.monotonic()
        if now < self._report_at:
            return
        self._report_at = now + _REPORT_S
        is_open = daemon.breaker.is_open
        waiting = float(daemon.writer.waiting)
        self.send({catalog.SHARE_AVAILABLE.name: float(not is_open), catalog.SHARE_WAITING.name: waiting})
        if is_open and self._directory is not None and now >= self._look_at:
            self._look_at = now + _LOOK_S
            if _identify(self._directory) not in (None, self._found):
                # it has been mounted or created anew, and the sandbox admits only the one that was there at the start
                self._channel.send({"replace": True})
                self._look_at = float("inf")


def _identify(directory: Path | None) -> tuple[int, ...] | None:
    """Return device and inode of a directory, or None if there is none."""
    version = None if directory is None else file_version(directory)
    return version and version[:2]
