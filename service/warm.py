"""Models that are prepared before anybody asks for them: the most used entries of the store, `nnhal serve --warm N`.

What is held here stands for one generation of an entry. An entry that was replaced, cleared or set aside meanwhile has
another generation, or none: then what is held of it is let go, and never given out.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import TypeAlias

from cache.errors import CacheError
from cache.layout import digest
from cache.store import EntryInfo, Store
from driver.caching.files import CacheFiles
from driver.device import Device, Outcome
from driver.prepared_model import PreparedModel
from nnhal.errors import HalError
from service.log import event

_Key: TypeAlias = tuple[Device, str, bytes]
"""Device, owner and token."""


class WarmModels:
    """Prepared models, made in the background by a thread of its own. Close it when done.

    An entry does not say for which device it was saved: each device has its own model of it.

    Args:
        devices: prepare them.
        count: how many of each device; 0: none, and no thread.
    """

    def __init__(self, store: Store, devices: Sequence[Device], count: int) -> None:
        self._store = store
        self._devices = devices
        self._count = count
        self._lock = threading.Lock()
        self._models: dict[_Key, tuple[str, PreparedModel]] = {}
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self, ready: Callable[[], None]) -> None:
        """Begins. `ready` is called once: when all are prepared or have failed to be; with none to prepare, now."""
        if not self._count:
            ready()
            return
        self._thread = threading.Thread(target=self._work, args=(ready,), name="nnhal-warm", daemon=True)
        self._thread.start()

    def get(self, device: Device, identity: str, token: bytes, generation: str | None) -> PreparedModel | None:
        """What was made of an entry; None: nothing.

        Args:
            generation: of the entry as the store has it now; "": it has none; None: it is no entry of the store.
        """
        if generation is None:
            return None
        key = device, digest(identity), token
        with self._lock:
            made_of, model = self._models.get(key, ("", None))
            if made_of != generation:
                self._models.pop(key, None)
                return None
        return model

    def close(self) -> None:
        """Ends the work, after the preparation on its way, and lets all models go."""
        self._closed = True
        if self._thread is not None:
            self._thread.join()
        self._models.clear()

    def _work(self, ready: Callable[[], None]) -> None:
        started = time.perf_counter()
        try:
            for entry in self._most_used():
                for device in self._devices:
                    if self._closed:
                        return
                    self._prepare(entry, device)
            event("warm", models=len(self._models), ms=(time.perf_counter() - started) * 1e3)
        except CacheError as error:
            event("cache-unusable", reason=error)
        finally:
            ready()

    def _most_used(self) -> list[EntryInfo]:
        entries = self._store.list()  # the most recently used first; sorting keeps this order among equals
        return sorted(entries, key=lambda entry: entry.hits, reverse=True)[: self._count]

    def _prepare(self, entry: EntryInfo, device: Device) -> None:
        outcome = self._outcome(entry, device)
        if outcome.prepared_model is None:
            # damaged ones are set aside when a client asks for them
            token = entry.token.hex()[:16]
            event("not-warm", logging.WARNING, device=device.name, token=token, reason=outcome.reason)
            return
        with self._lock:
            self._models[device, entry.owner, entry.token] = (entry.generation, outcome.prepared_model)

    def _outcome(self, entry: EntryInfo, device: Device) -> Outcome:
        outcomes: SimpleQueue[Outcome] = SimpleQueue()
        files = self._store.unused(entry)
        if files is None:
            return Outcome.miss("the entry has been replaced or removed")
        with files:
            given = CacheFiles(entry.token, [files.model_fd], [files.data_fd], read_only=True)
            try:
                device.prepare_model_from_cache(outcomes.put, given)
            except HalError as error:
                return Outcome.of(error)
        return outcomes.get()
