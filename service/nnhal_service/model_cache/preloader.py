"""Preloader: prepares the most used entries of the store at start (`nnhal serve --warm N`).

A preloaded model belongs to one generation of an entry. An entry that has been replaced, cleared or quarantined has
another generation, or none. Its model is then released, and never returned.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeAlias

from nnhal.errors import HalError
from nnhal_cache.entry import EntryInfo
from nnhal_cache.errors import CacheError
from nnhal_cache.layout import identity_digest
from nnhal_cache.store import Store
from nnhal_driver.device import Device
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.model_cache.files import CacheFiles
from nnhal_driver.preparation.outcome import Outcome
from nnhal_service.log import event

_Key: TypeAlias = tuple[Device, str, bytes]
"""Device, digest of the owner's identity, and token."""


class ModelPreloader:
    """Prepares models in the background, on a thread of its own. Close it when done.

    An entry does not say for which device it was saved, so each device prepares a model of its own.

    Args:
        count: number of entries to prepare on each device; 0 starts no thread.
    """

    def __init__(self, store: Store, devices: Sequence[Device], count: int) -> None:
        self._store = store
        self._devices = devices
        self._count = count
        self._lock = threading.Lock()
        self._models: dict[_Key, tuple[str, PreparedModel]] = {}
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self, on_ready: Callable[[], None]) -> None:
        """Start to prepare models. `on_ready` is called when all are prepared or have failed; else at once."""
        if not self._count:
            on_ready()
            return
        self._thread = threading.Thread(target=self._work, args=(on_ready,), name="nnhal-warm", daemon=True)
        self._thread.start()

    def get(self, device: Device, identity: str, token: bytes, generation: str | None) -> PreparedModel | None:
        """Return the preloaded model of the current generation of an entry; None if there is none.

        The generation is "" if there is no entry, and None for files of the client.
        """
        if generation is None:
            return None
        key = device, identity_digest(identity), token
        with self._lock:
            preloaded_generation, model = self._models.get(key, ("", None))
            if preloaded_generation != generation:
                self._models.pop(key, None)
                return None
        return model

    def close(self) -> None:
        """Stop after the preparation in progress, and release all models."""
        self._closed = True
        if self._thread is not None:
            self._thread.join()
        self._models.clear()

    def _work(self, on_ready: Callable[[], None]) -> None:
        started = time.perf_counter()
        try:
            for entry in self._most_used():
                for device in self._devices:
                    if self._closed:
                        return
                    self._preload(entry, device)
            event("warm", models=len(self._models), ms=(time.perf_counter() - started) * 1e3)
        except CacheError as error:
            event("cache-unusable", logging.WARNING, reason=error)
        finally:
            on_ready()

    def _most_used(self) -> list[EntryInfo]:
        entries = self._store.list()  # most recently used first; the sort is stable
        return sorted(entries, key=lambda entry: entry.hits, reverse=True)[: self._count]

    def _preload(self, entry: EntryInfo, device: Device) -> None:
        outcome = self._prepare(entry, device)
        if outcome.prepared_model is None:
            # a damaged entry is quarantined when a client asks for it
            token = entry.token.hex()[:16]
            event("not-warm", logging.WARNING, device=device.name, token=token, reason=outcome.reason)
            return
        with self._lock:
            self._models[device, entry.owner, entry.token] = (entry.generation, outcome.prepared_model)

    def _prepare(self, entry: EntryInfo, device: Device) -> Outcome:
        outcomes: SimpleQueue[Outcome] = SimpleQueue()
        opened = self._store.open_listed(entry)
        if opened is None:
            return Outcome.cache_miss("the entry has been replaced or removed")
        with opened:
            files = CacheFiles(entry.token, [opened.model_fd], [opened.data_fd], read_only=True)
            try:
                device.prepare_model_from_cache(outcomes.put, files)
            except HalError as error:
                return Outcome.from_error(error)
        return outcomes.get()
