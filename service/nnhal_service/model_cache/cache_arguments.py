"""Cache arguments of preparations: turns both forms of the contract into the open files that a driver takes.

In the form STORED, the service's own store has the files, by identity and token. In the form FILES, the client does.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from nnhal.errors import HalError, invalid_argument
from nnhal.rules.cache_token import check_token
from nnhal.types import OMITTED, CacheOutcome, CacheState
from nnhal.v1 import types_pb2
from nnhal_cache.errors import CacheError, TooLargeError
from nnhal_cache.files import NamedFiles
from nnhal_cache.store import PendingEntry, Store
from nnhal_driver.device import Device
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.model_cache.files import CacheFiles, MissingFiles
from nnhal_driver.preparation.outcome import Outcome, PreparationCallback
from nnhal_driver.scheduling.deadline import now_ns
from nnhal_service.identity.digests import scoped_digest
from nnhal_service.log import event
from nnhal_service.model_cache.cache_file import CacheFile, open_cache_files
from nnhal_service.model_cache.seen_entries import SeenEntries
from nnhal_service.peers.cache_share.client import NO_ENTRY, ShareClient, WantedEntry, backends_text
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.session import Session

Message = types_pb2.CompilationCache

ROLLED_BACK = "an older entry was put back in place of a newer one"
"""Reason of a miss."""


class PendingSave:
    """The files that one preparation saves to, open from its launch until its outcome is known.

    Args:
        name: name of the model for lists of entries, with its version if it is one of the repository.
    """

    def __init__(self, arguments: "CacheArguments", device: Device, session: Session, name: str = "") -> None:
        self._arguments = arguments
        self._device = device
        self._session = session
        self._name = name
        self._token = b""
        self._open_files = ExitStack()
        self._pending: PendingEntry | None = None
        self._error = ""

    def open(self, message: Message | None) -> CacheFiles | None:
        """Open the files that a message names. None without a message, or if an error is reported with the outcome."""
        if message is None:
            return None
        try:
            return self._open(message)
        except (CacheError, HalError) as error:
            self._error = error.reason if isinstance(error, HalError) else str(error)
            return None

    def _open(self, message: Message) -> CacheFiles:
        _check_form(message)
        session, store = self._session, self._arguments.store
        if message.form == types_pb2.CACHE_FORM_STORED:
            check_token(message.token)
            self._token = message.token
            self._pending = self._open_files.enter_context(store.write(str(session.identity), message.token))
            fds = [self._pending.model_fd], [self._pending.data_fd]
            digest = scoped_digest(session.identity, message.model_digest)
            return CacheFiles(message.token, *fds, digest=digest, check_size=store.require_fits)
        files = self._open_files.enter_context(open_cache_files(session, message))
        named = _named_files(session, message)
        check_size = partial(_require_cache_bytes, NamedFiles(store), self._arguments.limits, session, named)
        return replace(files, check_size=check_size) if named else files

    def committing(self, callback: PreparationCallback) -> PreparationCallback:
        """Return a callback that first commits the saved files to the store, and closes them."""

        def commit(outcome: Outcome) -> None:
            try:
                outcome = self._commit(outcome)
            except (OSError, MemoryError) as error:
                outcome = outcome.with_cache(CacheOutcome(CacheState.NOT_SAVED, f"the entry cannot be stored: {error}"))
            callback(outcome)

        return commit

    def _commit(self, outcome: Outcome) -> Outcome:
        with self._open_files:
            if outcome.prepared_model is None:
                return outcome
            if self._error:
                return outcome.with_cache(CacheOutcome(CacheState.NOT_SAVED, self._error))
            if self._pending is not None and outcome.cache.state == CacheState.SAVED:
                try:
                    self._commit_entry(self._pending, outcome.prepared_model)
                except CacheError as error:
                    return outcome.with_cache(CacheOutcome(CacheState.NOT_SAVED, str(error)))
        return outcome

    def _commit_entry(self, pending: PendingEntry, prepared: PreparedModel) -> None:
        """Publish the saved files as an entry of the store, and offer it to the share."""
        identity, arguments = str(self._session.identity), self._arguments
        pending.commit(backends_text(self._device), self._session.account.rules.cache_bytes, name=self._name)
        arguments.seen.saved(identity, self._token, pending.model_fd)
        if arguments.share is not None:
            arguments.share.offer(self._device, identity, self._token, pending, prepared)


@dataclass(frozen=True, slots=True)
class LoadSource:
    """The files that a preparation from the cache loads.

    Attributes:
        on_damaged: called with the reason if the files are damaged.
        generation: of the entry in the store; "" if there is no entry; None for files of the client.
    """

    files: CacheFiles | MissingFiles
    on_damaged: Callable[[str], None] = lambda reason: None
    generation: str | None = ""

    def reporting_damage(self, callback: PreparationCallback) -> PreparationCallback:
        """Return a callback that first reports damaged files."""

        def report(outcome: Outcome) -> None:
            try:
                if outcome.damaged:
                    self.on_damaged(outcome.cache.reason)
            finally:
                callback(outcome)

        return report


class CacheArguments:
    """Opens the files that the cache arguments of preparations name.

    Args:
        share: fetches entries that the local cache does not have, and is offered those that are saved; or None.

    Attributes:
        seen: the entries that were saved or loaded.
    """

    def __init__(self, store: Store, limits: Limits, share: ShareClient | None = None) -> None:
        self.store = store
        self.limits = limits
        self.share = share
        self.seen = SeenEntries()

    @contextmanager
    def open_for_loading(
        self,
        device: Device,
        session: Session,
        message: Message,
        deadline_ns: int = OMITTED,
        *,
        used: bool = True,
        name: str = "",
    ) -> Iterator[LoadSource]:
        """Yield the files that a message names, open within the context.

        The share may be asked until `deadline_ns`, an instant of CLOCK_BOOTTIME or OMITTED. `used` tells whether this
        counts as a use of the entry. `name`: see `PendingSave`.

        Raises:
            HalError: INVALID_ARGUMENT: the form, the token, or a handle.
        """
        _check_form(message)
        if message.form == types_pb2.CACHE_FORM_FILES:
            with open_cache_files(session, message) as files:
                yield LoadSource(files, generation=None)
            return
        check_token(message.token)
        try:
            reason = self._fetch(device, session, message, deadline_ns, name)
            entry = self.store.open_entry(str(session.identity), message.token, used=used)
        except CacheError as error:
            yield LoadSource(MissingFiles(str(error)))
            return
        if entry is None:
            yield LoadSource(MissingFiles(reason or NO_ENTRY))
            return
        with entry:
            if self.seen.is_rolled_back(str(session.identity), message.token, entry.model_fd):
                self._quarantine(str(session.identity), message.token, entry.generation, ROLLED_BACK)
                yield LoadSource(MissingFiles(ROLLED_BACK))
                return
            fds = [entry.model_fd], [entry.data_fd]
            digest = scoped_digest(session.identity, message.model_digest)
            files = CacheFiles(message.token, *fds, read_only=True, digest=digest)
            on_damaged = partial(self._quarantine, str(session.identity), message.token, entry.generation)
            yield LoadSource(files, on_damaged, entry.generation)

    def _fetch(self, device: Device, session: Session, message: Message, deadline_ns: int, name: str) -> str:
        """Fetch an entry from the share, unless there is one here. Return why that was not possible, or ""."""
        identity = str(session.identity)
        if self.share is None or self.store.has_entry(identity, message.token):
            return ""
        left_s = None if deadline_ns == OMITTED else (deadline_ns - now_ns()) / 1e9
        digest, quota = scoped_digest(session.identity, message.model_digest), session.account.rules.cache_bytes

        def object_to(model_fd: int) -> str:
            return ROLLED_BACK if self.seen.is_rolled_back(identity, message.token, model_fd) else ""

        wanted = WantedEntry(device, identity, message.token, digest, quota, object_to, left_s, name)
        return self.share.fetch(self.store, wanted)

    def check(self, device: Device, session: Session, message: Message) -> CacheOutcome:
        """Return whether a model would be loaded from the files that a message names, and if not why not.

        Raises:
            HalError: INVALID_ARGUMENT, as of PrepareModelFromCache.
        """
        with self.open_for_loading(device, session, message, used=False) as source:
            return device.check_cache(source.files)

    def _quarantine(self, identity: str, token: bytes, generation: str, reason: str) -> None:
        try:
            self.store.quarantine(identity, token, reason, generation)
        except CacheError as error:
            event("cache-unusable", logging.WARNING, reason=error)


def _named_files(session: Session, message: Message) -> list[CacheFile]:
    """Return the files of the cache directory in a message of the form FILES."""
    files = [session.get(handle, CacheFile) for handle in (*message.model_cache[:1], *message.data_cache[:1])]
    return [file for file in files if file.named]


def _require_cache_bytes(
    named: NamedFiles, limits: Limits, session: Session, replaced: Sequence[CacheFile], size: int
) -> None:
    """Check the total size of an identity's named files before a driver replaces the content of some."""
    used = named.total_bytes(str(session.identity)) - sum(file.size for file in replaced) + size
    quota = session.account.rules.cache_bytes
    most = limits["cache_file_bytes"] if quota is None else min(limits["cache_file_bytes"], quota)
    if used > most:
        raise TooLargeError(f"cache files would have {used} bytes; the limit is {most} (cache_file_bytes)")


def _check_form(message: Message) -> None:
    if message.form not in (types_pb2.CACHE_FORM_FILES, types_pb2.CACHE_FORM_STORED):
        raise invalid_argument(f"unknown form {message.form} of a compilation cache; expected FILES or STORED")
