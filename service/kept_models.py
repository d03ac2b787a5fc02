"""The cache arguments of preparations: both forms of the contract as the open files that a driver takes.

Stored: the service's own store has the files, under the client's identity and the token. Files: the client's.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from cache.errors import CacheError
from cache.store import PendingEntry, Store
from driver.caching.files import CacheFiles, Missing, check_token
from driver.device import Callback, Device, Outcome
from nnhal.errors import HalError, invalid_argument
from nnhal.types import CacheOutcome, CacheState
from nnhal.v1 import types_pb2
from service.cache_file import cache_files
from service.log import event
from service.sessions import Session

Message = types_pb2.CompilationCache


class Saving:
    """Where one preparation saves to: open from before its launch until its outcome is known.

    Attributes:
        files: for the driver; None where nothing can be saved, or nobody asked for it.
    """

    def __init__(self, device: Device) -> None:
        self.files: CacheFiles | None = None
        self._backends = " ".join(f"{backend.id} {backend.version}" for backend in device.backends)
        self._opened = ExitStack()
        self._pending: PendingEntry | None = None
        self._refusal = ""

    def open(self, store: Store, session: Session, message: Message) -> None:
        """Opens what the message names. What is wrong with it is told when the preparation has ended."""
        try:
            _check_form(message)
            if message.form == types_pb2.CACHE_FORM_STORED:
                check_token(message.token)
                self._pending = self._opened.enter_context(store.write(session.identity, message.token))
                self.files = CacheFiles(message.token, [self._pending.model_fd], [self._pending.data_fd])
            else:
                self.files = self._opened.enter_context(cache_files(session, message))
        except (CacheError, HalError) as error:
            self._refusal = error.reason if isinstance(error, HalError) else str(error)

    def settled(self, callback: Callback) -> Callback:
        """A callback that first makes an entry of what was saved, and lets the files go."""
        return lambda outcome: callback(self._settle(outcome))

    def abandon(self) -> None:
        """Lets the files go; what has not become an entry is none."""
        self._opened.close()

    def _settle(self, outcome: Outcome) -> Outcome:
        with self._opened:
            if outcome.prepared_model is None:
                return outcome
            if self._refusal:
                return outcome.with_cache(CacheOutcome(CacheState.NOT_SAVED, self._refusal))
            if self._pending is not None and outcome.cache.state == CacheState.SAVED:
                try:
                    self._pending.commit(self._backends)
                except CacheError as error:
                    return outcome.with_cache(CacheOutcome(CacheState.NOT_SAVED, str(error)))
        return outcome


@dataclass(frozen=True, slots=True)
class Found:
    """What a preparation from the cache is made of.

    Attributes:
        files: for the driver.
        spoilt: is told the reason if they turn out to be damaged.
        generation: of the store's entry; "": it has none; None: the files are the client's.
    """

    files: CacheFiles | Missing
    spoilt: Callable[[str], None] = lambda reason: None
    generation: str | None = ""

    def settled(self, callback: Callback) -> Callback:
        """A callback that first has damaged files set aside."""

        def settle(outcome: Outcome) -> None:
            if outcome.damaged:
                self.spoilt(outcome.cache.reason)
            callback(outcome)

        return settle


class KeptModels:
    """Finds the files of prepared models that are to be saved, or were."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def saving(self, device: Device, session: Session, message: Message | None) -> Saving:
        """Where a preparation is to save; without a message nowhere."""
        saving = Saving(device)
        if message is not None:
            saving.open(self._store, session, message)
        return saving

    @contextmanager
    def found(self, session: Session, message: Message, *, used: bool = True) -> Iterator[Found]:
        """The files that a message names, open within the context.

        Args:
            used: counts as a use of the entry.

        Raises:
            HalError: INVALID_ARGUMENT: the form, the token, or a handle.
        """
        _check_form(message)
        if message.form == types_pb2.CACHE_FORM_FILES:
            with cache_files(session, message) as files:
                yield Found(files, generation=None)
            return
        check_token(message.token)
        try:
            entry = self._store.entry(session.identity, message.token, used=used)
        except CacheError as error:
            yield Found(Missing(str(error)))
            return
        if entry is None:
            yield Found(Missing("there is no entry for this token"))
            return
        with entry:
            files = CacheFiles(message.token, [entry.model_fd], [entry.data_fd], read_only=True)
            spoilt = partial(self._set_aside, session.identity, message.token, entry.generation)
            yield Found(files, spoilt, entry.generation)

    def check(self, device: Device, session: Session, message: Message) -> CacheOutcome:
        """Whether a model would be prepared from what a message names, and if not why not.

        Raises:
            HalError: INVALID_ARGUMENT, as of PrepareModelFromCache.
        """
        with self.found(session, message, used=False) as found:
            return device.check_cache(found.files)

    def _set_aside(self, identity: str, token: bytes, generation: str, reason: str) -> None:
        try:
            self._store.set_aside(identity, token, reason, generation)
        except CacheError as error:
            event("cache-unusable", reason=error)


def _check_form(message: Message) -> None:
    if message.form not in (types_pb2.CACHE_FORM_FILES, types_pb2.CACHE_FORM_STORED):
        raise invalid_argument(f"the form {message.form} of a compilation cache is not known")
