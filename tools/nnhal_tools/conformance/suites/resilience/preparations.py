"""Preparations in progress when a process ends (RESIL-01 to -03), and what is left in the cache (RESIL-16 to -18)."""

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

from nnhal.types import ErrorStatus
from nnhal.v1 import device_pb2, types_pb2
from nnhal_tools.conformance.caching.files import CacheFolder
from nnhal_tools.conformance.caching.round_trip import (
    file_cache,
    files_needed,
    prepare_and_save,
    prepare_from_cache,
    stored_cache,
)
from nnhal_tools.conformance.check import CheckFailed, CheckRecorder, Skipped
from nnhal_tools.conformance.device.calls import collect_preparation
from nnhal_tools.conformance.device.results import PreparationOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.resilience.models import LARGE, LONG, SHORT, SIZE, AddChain, require_alive
from nnhal_tools.conformance.resilience.outage import outage
from nnhal_tools.conformance.resilience.session import SessionAtWork, Step, Work
from nnhal_tools.conformance.suites.nnhal.cache import HIT, MISS, NOT_SAVED, SAVED, CacheClient, require_store

SESSIONS = 3

KEPT = 16
"""Number of models that are released at once."""

PREPARE, RETRIEVE, SAVE = "RESIL-01", "RESIL-02", "RESIL-03"
ENTRIES, INTERRUPTED, DAMAGED = "RESIL-16", "RESIL-17", "RESIL-18"


@dataclass
class CachedChain:
    """Model, and the arguments of its entry in the store of the service.

    `saved`: the service has reported it as saved.
    """

    chain: AddChain
    cache: types_pb2.CompilationCache
    saved: bool = False

    @staticmethod
    def random(length: int = SHORT, size: int = SIZE) -> "CachedChain":
        """Return a new model with a new token."""
        return CachedChain(AddChain.random(length, size), stored_cache(secrets.token_bytes(32)))

    def save(self, session: Target) -> PreparationOutcome:
        """Prepare the model into the store.

        Raises:
            ConnectionLost: the call ended with the service.
            Skipped: X6.
        """
        saved = prepare_and_save(session, self.chain.model, self.cache)
        require_alive(saved.launch)
        require_alive(saved.callback)
        if not saved.callbacks or saved.callbacks[0].cache.state != SAVED:
            raise Skipped("X6", f"nothing was saved: {saved.callbacks or saved.launch}")
        self.saved = True
        return saved


def _events_of(
    stream: Iterator[device_pb2.PrepareModelEvent], session: SessionAtWork
) -> Iterator[device_pb2.PrepareModelEvent]:
    """Yield the events of a preparation. The session is at work as soon as one is launched."""
    for event in stream:
        if event.HasField("launched"):
            session.at_work.set()
        yield event


def _finish(id_: str, session: SessionAtWork, stream: Iterator[device_pb2.PrepareModelEvent]) -> bytes:
    """Read the events of a preparation, and return the model.

    Raises:
        ConnectionLost: the preparation ended with the service.
        CheckFailed: it failed otherwise, or there was more than one notify.
    """
    outcome = PreparationOutcome()
    try:
        collect_preparation(_events_of(stream, session), outcome)
    finally:
        if len(outcome.callbacks) > 1:
            raise CheckFailed(id_, "a preparation in progress when a process ends", "one notify", outcome.events)
    require_alive(outcome.launch)
    require_alive(outcome.callback)
    if not outcome.model:
        got = f"{outcome.events}, launch {outcome.launch}, {outcome.callback}"
        raise CheckFailed(id_, "a preparation in progress when a process ends", "a model, or UNAVAILABLE", got)
    return outcome.model


def _execute(id_: str, session: SessionAtWork, model: bytes, chain: AddChain) -> None:
    """Execute a model that was just prepared, and release it."""
    chain.check_execution(id_, "a model prepared before a process ends", session.target, model)
    session.target.release(model)


def _keep(session: SessionAtWork, models: list[bytes], model: bytes) -> None:
    """Keep a model for a while: most calls of the session are preparations, so that one is in progress at the end."""
    models.append(model)
    if len(models) == KEPT:
        session.target.release(*models)
        models.clear()


def _several(name: str, work: Work) -> dict[str, Work]:
    return {f"{name} {number}": work for number in range(1, SESSIONS + 1)}


# ---- Without a cache --------------------------------------------------------------------------------------


@check(PREPARE, exclusive=True)
def preparing(target: Target, recorder: CheckRecorder) -> None:
    """Kill after a preparation was launched: it ends with an error or a model, and never with two notifies."""
    with outage(target, recorder, PREPARE, _several("preparation", _preparing)) as service:
        _expect_preparable(PREPARE, service.fresh)


@contextmanager
def _preparing(session: SessionAtWork) -> Iterator[Step]:
    def step() -> None:
        chain = AddChain.random(LONG)
        _execute(PREPARE, session, _finish(PREPARE, session, _launch(session, chain)), chain)

    yield step


def _launch(
    session: SessionAtWork, chain: AddChain, cache: types_pb2.CompilationCache | None = None
) -> Iterator[device_pb2.PrepareModelEvent]:
    """Launch a preparation, and return its events."""
    return session.target.launch_preparation(chain.model, cache=cache)


def _expect_preparable(id_: str, fresh: Target) -> None:
    """Check that the service that is back prepares and executes a model."""
    chain = AddChain.random()
    chain.check_execution(id_, "a model prepared after the end of a process", fresh, chain.prepared(fresh))


# ---- With the store of the service ------------------------------------------------------------------------


@contextmanager
def _cleared(target: Target) -> Iterator[list[CachedChain]]:
    """Yield a list of entries, which are cleared at the end."""
    entries: list[CachedChain] = []
    try:
        yield entries
    finally:
        with target.new_session() as session:
            CacheClient(session).clear(*(entry.cache.token for entry in entries))


@check(RETRIEVE, exclusive=True)
def retrieving(target: Target, recorder: CheckRecorder) -> None:
    """Kill while models come from the cache: each preparation ends as in RESIL-01, and the entries stay as they are."""
    require_store(target)
    with _cleared(target) as entries:

        @contextmanager
        def work(session: SessionAtWork) -> Iterator[Step]:
            entry = CachedChain.random(LONG)
            entries.append(entry)
            entry.save(session.target)
            models: list[bytes] = []

            def step() -> None:
                stream = session.target.start("Device.PrepareModelFromCache", cache=entry.cache)
                _keep(session, models, _finish(RETRIEVE, session, stream))

            yield step

        with outage(target, recorder, RETRIEVE, _several("retrieval", work)) as service:
            _expect_sound(recorder, service.fresh, entries)


@check(SAVE, exclusive=True)
def saving(target: Target, recorder: CheckRecorder) -> None:
    """Kill while models are saved in the store: preparations end as in RESIL-01.

    A model that was reported as saved, and one whose saving was interrupted, is a HIT with right outputs, or a MISS
    with a reason. What is missing can be saved again. No entry is damaged.
    """
    require_store(target)
    with _cleared(target) as entries:

        @contextmanager
        def work(session: SessionAtWork) -> Iterator[Step]:
            models: list[bytes] = []

            def step() -> None:
                entry = CachedChain.random(size=LARGE)
                entries.append(entry)
                model = _finish(SAVE, session, _launch(session, entry.chain, entry.cache))
                entry.saved = True
                _keep(session, models, model)

            yield step

        with outage(target, recorder, SAVE, _several("saving", work)) as service:
            _expect_sound(recorder, service.fresh, entries)


@check(SAVE, "in files", exclusive=True)
def saving_in_files(target: Target, recorder: CheckRecorder) -> None:
    """Kill while models are saved in files of clients, each over the one before: as in the store."""
    require_store(target)
    names: Sequence[Sequence[str]] = [
        [f"{kind}-{number}" for number in range(count)]
        for kind, count in zip(("model", "data"), files_needed(target, recorder), strict=True)
    ]
    entries: dict[SessionAtWork, tuple[CacheFolder, CachedChain]] = {}

    @contextmanager
    def work(session: SessionAtWork) -> Iterator[Step]:
        folder, models = CacheFolder(session.target), list[bytes]()

        def step() -> None:
            entry = CachedChain.random(size=LARGE)
            with folder.open_files(names[0], names[1]) as files:
                entries[session] = folder, entry
                cache = file_cache(entry.cache.token, files)
                model = _finish(SAVE, session, _launch(session, entry.chain, cache))
                entry.saved = True
                _keep(session, models, model)

        yield step

    with outage(target, recorder, SAVE, _several("saving in files", work)) as service:
        for folder, entry in entries.values():
            with folder.for_session(service.fresh) as reopened:
                opened = partial(_opened, reopened, names, entry)
                _expect_sound_entry(recorder, service.fresh, entry, "files", opened)


@contextmanager
def _opened(folder: CacheFolder, names: Sequence[Sequence[str]], entry: CachedChain) -> Iterator[None]:
    """Open the files of an entry."""
    with folder.open_files(names[0], names[1]) as files:
        entry.cache.CopyFrom(file_cache(entry.cache.token, files))
        yield


def _save_again(recorder: CheckRecorder, id_: str, fresh: Target, entry: CachedChain) -> bool:
    """Prepare and save a model after a miss. Return False if it is not saved for a reason.

    A service may suspect a model that was in progress when a process ended, and not save it for a while.
    """
    saved = prepare_and_save(fresh, entry.chain.model, entry.cache)
    cache = saved.callbacks[0].cache if saved.callbacks else device_pb2.CacheOutcome()
    done = cache.state == SAVED or (cache.state == NOT_SAVED and bool(cache.reason))
    stimulus, got = "prepareModel with a cache after a miss", f"{saved.callback}, {cache}"
    recorder.expect(bool(saved.model) and done, stimulus, "SAVED, or NOT_SAVED with a reason", got, check=id_)
    entry.chain.check_execution(id_, "a model prepared after a miss", fresh, saved.model)
    return cache.state == SAVED


def _expect_sound(recorder: CheckRecorder, fresh: Target, entries: Sequence[CachedChain]) -> None:
    """Check each entry, and that none was damaged."""
    client = CacheClient(fresh)
    damaged = client.damaged_count()
    for entry in entries:
        situation = "a model saved" if entry.saved else "a model whose saving was interrupted"
        _expect_sound_entry(recorder, fresh, entry, situation)
    count = client.damaged_count() - damaged
    recorder.expect(count == 0, "entries that were in use when a process ended", "none damaged", count, check=DAMAGED)


def _expect_sound_entry(
    recorder: CheckRecorder,
    fresh: Target,
    entry: CachedChain,
    situation: str,
    opened: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> None:
    """Check that an entry is a HIT with right outputs, or a MISS with a reason, and that it can be saved again.

    `opened`: opens the files of the entry, for each preparation.
    """
    id_ = ENTRIES if entry.saved else INTERRUPTED
    with opened():
        if _is_hit(recorder, id_, fresh, entry, situation):
            return
    with opened():
        if not _save_again(recorder, id_, fresh, entry):
            return
    situation += ", and saved again"
    with opened():
        again = _is_hit(recorder, id_, fresh, entry, situation)
        recorder.expect(again, f"prepareModelFromCache of {situation}", "HIT", "MISS", check=id_)


def _is_hit(recorder: CheckRecorder, id_: str, fresh: Target, entry: CachedChain, situation: str) -> bool:
    """Return whether an entry is a HIT, whose outputs must be right. A miss must have a reason."""
    recorder.mark(id_)
    retrieved = prepare_from_cache(fresh, entry.cache)
    stimulus = f"prepareModelFromCache of {situation} before the end of a process"
    cache = retrieved.callbacks[0].cache if retrieved.callbacks else device_pb2.CacheOutcome()
    if retrieved.model:
        recorder.expect(cache.state == HIT, stimulus, "HIT", cache, check=id_)
        entry.chain.check_execution(id_, stimulus, fresh, retrieved.model)
        fresh.release(retrieved.model)
        return True
    missed = retrieved.callback.status == ErrorStatus.GENERAL_FAILURE and cache.state == MISS and bool(cache.reason)
    recorder.expect(missed, stimulus, "HIT, or a MISS with a reason", f"{retrieved.callback}, {cache}", check=id_)
    return False
