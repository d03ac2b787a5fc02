"""The process that copies the models at a URL: a child of the supervisor, which alone talks to the store."""

import fcntl
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial

from nnhal_service.peers.cache_share.fsspec_store import FsspecStore
from nnhal_service.repository.mirror import Mirror
from nnhal_service.sandbox.profile import store_profile
from nnhal_service.sandbox.restriction import enter_sandbox
from nnhal_service.supervisor.adoption import begin_process
from nnhal_service.supervisor.template import ChildArguments

_LISTING_SHARE = 0.1
"""Largest part of the time for listings."""
_REQUEST_S = 30.0
"""Seconds for a request of a file system that is asynchronous."""


def run_mirror(arguments: ChildArguments) -> None:
    """Copy models until SIGTERM, which may come at any time, or the end of the supervisor."""
    settings, folder = begin_process(arguments)
    url, copies = settings.models_url, settings.models_folder
    assert url is not None and copies is not None
    copies.mkdir(0o700, parents=True, exist_ok=True)
    enter_sandbox(settings, folder, lambda: store_profile(settings, [folder, copies], outgoing=True))
    with open(copies / ".lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another service of this user may copy the same models
        open_store = cache(partial(FsspecStore, url, _REQUEST_S))
        mirror = Mirror(open_store, url, copies, settings.models_bytes, time_limit)
        while True:
            mirror.update()
            time.sleep(max(settings.models_poll_s, mirror.listing_s / _LISTING_SHARE))


def _interrupt(*_: object) -> None:
    raise TimeoutError("it did not answer in time")


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Interrupt the main thread after some seconds: many file systems have no time limits of their own."""
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
