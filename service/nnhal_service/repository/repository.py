"""Repository of models: the names that clients use, and the models in memory for them.

A thread looks for changes of the folder. It loads the models that are warm or in use, and imports the others, to tell
whether they are valid. A model that cannot be loaded leaves the one in place that clients have. `get` takes no lock for
a model in memory.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from nnhal.errors import HalError
from nnhal.types import ErrorKind, ErrorStatus, NamedModelState
from nnhal_driver.execution.batching import BatchedModel
from nnhal_service.log import event
from nnhal_service.metrics import catalog
from nnhal_service.metrics.snapshot import Snapshot
from nnhal_service.repository.model_folder import ALL_VERSIONS
from nnhal_service.repository.model_loader import ModelLoader, ModelLoadError, VersionFiles
from nnhal_service.repository.named_model import NamedModel, NamedVersion
from nnhal_service.repository.served_model import ServedModel
from nnhal_service.repository.shared_choices import SharedChoices
from nnhal_service.sessions.session import stopping

_LOADING_THREADS = 2
_ATTEMPTS = 5
"""Number of times that a request looks for another version because a file has vanished."""


class IndexEntry(NamedTuple):
    """A version in the list of models. `reason`: why its current files are not loaded, or not copied, or ""."""

    name: str
    version: int
    state: NamedModelState
    reason: str


class UnavailableModelError(HalError):
    """A model that exists, but that cannot be used now."""

    def __init__(self, reason: str) -> None:
        super().__init__(ErrorStatus.DEVICE_UNAVAILABLE, reason)


class Repository:
    """Models of one worker. Thread safe. Start it, and close it when done.

    Args:
        poll_s: seconds between two looks at the folder. A file that has changed since the last one may be incomplete.
        loads_ahead: whether models are loaded and checked before a client uses them.

    Attributes:
        loader: loads its models.
        changes: number of times that a model came into memory or left it.
    """

    def __init__(self, loader: ModelLoader, choices: SharedChoices, poll_s: float, *, loads_ahead: bool = True) -> None:
        self.loader = loader
        self._loads_ahead = loads_ahead
        self._choices = choices
        self._poll_s = poll_s
        self._models: dict[str, NamedModel] = {}
        self._served: Mapping[tuple[str, int | None], ServedModel] = {}
        self.changes = 0
        self._lock = threading.RLock()
        self._scanning = threading.Lock()
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(_LOADING_THREADS, "nnhal-models")
        self._thread: threading.Thread | None = None

    def start(self, on_ready: Callable[[], None]) -> None:
        """Look at the folder, and go on in the background. `on_ready` is called when the warm models are loaded."""
        self._try_scan(is_first=True)
        self._thread = threading.Thread(target=self._work, args=(on_ready,), name="nnhal-repository", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the threads, and release all models."""
        self._closing.set()
        self._pool.shutdown(cancel_futures=True)
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._models.clear()
            self._served = {}

    # ---- Use --------------------------------------------------------------------------------------------

    def get(self, name: str, version: int | None = None, timeout_s: float | None = None) -> ServedModel:
        """Return a model, which is loaded if it is not in memory. Without a version, it is the newest good one.

        Raises:
            HalError: INVALID_ARGUMENT of kind UNKNOWN_HANDLE: there is no such model; UnavailableModelError;
                MISSED_DEADLINE_TRANSIENT: it was not loaded in time.
        """
        return self._served.get((name, version)) or self._load_any(name, version, timeout_s)

    def is_served(self, name: str, version: int | None, served: ServedModel) -> bool:
        """Return whether a model in memory is the one that clients get by a name and version."""
        return self._served.get((name, version)) is served

    def _load_any(self, name: str, number: int | None, timeout_s: float | None) -> ServedModel:
        reasons: list[str] = []
        for _ in range(_ATTEMPTS):
            reasons.clear()
            for version in self._candidates(name, number):
                version.is_pinned = version.is_pinned or number is not None
                try:
                    return _result(self._begin_load(version), name, timeout_s)
                except ModelLoadError as error:
                    reasons.append(f"version {version.source.version}: {error}")
                    if error.has_vanished:  # another version may have taken its place
                        self._try_scan()
                        break
            else:
                break
        raise UnavailableModelError(f"model {name!r} cannot be used: {'; '.join(reasons) or 'it has no version'}")

    def _candidates(self, name: str, number: int | None) -> list[NamedVersion]:
        """Return the versions that may serve a request, the best first."""
        with self._lock:
            model = self._require(name)
            if model.choice.is_unloaded:
                raise UnavailableModelError(f"model {name!r} is unloaded")
            if model.problem:
                raise UnavailableModelError(f"model {name!r} cannot be used: {model.problem}")
            if number is None:
                return list(model.newest_first())
            version = model.versions.get(number)
            if version is None:
                raise unknown_model(name, f"has no version {number}; it has {', '.join(map(str, model.versions))}")
            return [version]

    def _require(self, name: str) -> NamedModel:
        model = self._models.get(name)
        if model is None:
            raise unknown_model(name, "is not found")
        return model

    def is_ready(self, name: str, version: int | None = None) -> bool:
        """Return whether there is such a model, and it is in memory, or can be loaded as far as is known."""
        try:
            return any(each.is_usable for each in self._candidates(name, version))
        except HalError:
            return False

    def versions(self, name: str) -> list[int]:
        """Return the versions of a model.

        Raises:
            HalError: INVALID_ARGUMENT of kind UNKNOWN_HANDLE: there is no such model.
        """
        with self._lock:
            return sorted(self._require(name).versions)

    def index(self) -> list[IndexEntry]:
        """Return all versions of all models, in the order of their names."""
        with self._lock:
            return [entry for name in sorted(self._models) for entry in _entries(self._models[name])]

    def collect(self, snapshot: Snapshot) -> None:
        """Add the versions by state to a snapshot, and the batches of those in memory."""
        for entry in self.index():
            snapshot.add(catalog.NAMED_MODELS, 1, entry.name, str(entry.version), entry.state.name.lower())
        for (name, number), served in self._served.items():
            if number is not None and isinstance(served.prepared, BatchedModel):
                batcher = served.prepared.batcher
                snapshot.add(catalog.BATCHES, batcher.batches, name, str(number))
                snapshot.add(catalog.BATCHED, batcher.joined, name, str(number))

    def load(self, name: str, timeout_s: float | None = None) -> None:
        """Load the current files of a model now, in this worker at once and in the others soon.

        Raises:
            HalError: as for `get`. The model that was there before goes on.
        """
        try:
            self._scan()
        except OSError as error:
            raise UnavailableModelError(f"the folder of models cannot be read: {error.strerror}") from None
        with self._lock:
            self._require(name)
        self._choices.set(name, is_unloaded=False)
        self._carry_out_choices()
        try:
            _result(self._begin_load(self._candidates(name, None)[0]), name, timeout_s)
        except ModelLoadError as error:
            raise UnavailableModelError(f"model {name!r} cannot be loaded: {error}") from error

    def unload(self, name: str) -> None:
        """Serve a model no longer, in this worker at once and in the others soon, until it is loaded.

        Raises:
            HalError: INVALID_ARGUMENT of kind UNKNOWN_HANDLE: there is no such model.
        """
        with self._lock:
            self._require(name)
        self._choices.set(name, is_unloaded=True)
        self._carry_out_choices()

    # ---- Changes ----------------------------------------------------------------------------------------

    def _work(self, on_ready: Callable[[], None]) -> None:
        try:
            self._load_changed()
        finally:
            on_ready()
        while not self._closing.wait(self._poll_s):
            self.check()

    def check(self) -> None:
        """Look at the folder, and load what has changed and is in use. Return when that is done."""
        self._try_scan()
        self._carry_out_choices()
        self._load_changed()

    def _try_scan(self, *, is_first: bool = False) -> None:
        try:
            self._scan(is_first=is_first)
        except OSError as error:  # perhaps a network that is away: the models in memory go on
            event("models-unreadable", logging.WARNING, folder=self.loader.folder.root, reason=error.strerror)

    def _scan(self, *, is_first: bool = False) -> None:
        with self._scanning:
            found = self.loader.folder.scan()
            with self._lock:
                for name in self._models.keys() - found.keys():
                    del self._models[name]
                    event("model-removed", model=name)
                for name, files in found.items():
                    model = self._models.setdefault(name, NamedModel(name))
                    model.update(files, is_first=is_first)
                    if self._loads_ahead and files.config != model.config:
                        model.config, model.is_warm = files.config, self.loader.is_warm(files.config)
                self._publish()

    def _carry_out_choices(self) -> None:
        with self._lock:
            for name, choice in self._choices.read().items():
                model = self._models.get(name)
                if model is not None and model.choice != choice:
                    model.carry_out(choice)
                    if choice.is_unloaded:
                        event("model-unloaded", model=name)
            self._publish()

    def _load_changed(self) -> None:
        """Load and check what has changed, and wait for it."""
        with self._lock:
            models = [model for model in self._models.values() if not model.problem and not model.choice.is_unloaded]
            wanted = [version for model in models for version in model.wanted()]
        for loading in [self._begin_load(version) for version in wanted]:
            with suppress(ModelLoadError, CancelledError):
                loading.result()
        for version in [version for model in models for version in model.unchecked()] if self._loads_ahead else ():
            if not self._closing.is_set():
                self._check_version(version)

    def _check_version(self, version: NamedVersion) -> None:
        """Find out whether a version that no client uses could be loaded."""
        source = version.source
        try:
            self.loader.check(source)
        except ModelLoadError as error:
            self._note_failure(version, source, error)
        with self._lock:
            version.is_checked = version.is_checked or version.source == source

    def _begin_load(self, version: NamedVersion) -> "Future[ServedModel]":
        """Return the load of a version, which has ended if its files are in memory, or have failed before.

        Files that are not settled, or have failed, do not replace a model in memory.
        """
        with self._lock:
            if version.loading is not None:
                return version.loading
            served = version.served
            if served is not None and (version.is_current or version.failure or not version.is_settled):
                return _done(served)
            if version.failure:
                return _failed(ModelLoadError(version.failure))
            version.loading = self._pool.submit(self._load, version, version.source)
            return version.loading

    def _load(self, version: NamedVersion, source: VersionFiles) -> ServedModel:
        served = None
        try:
            served = self.loader.load(source)
        except ModelLoadError as error:
            self._note_failure(version, source, error)
            raise
        finally:
            with self._lock:
                version.loading = None
                model = self._models.get(source.name)
                if served is not None and model is not None and model.holds(version):
                    version.served = served
                    self._publish()
        return served

    def _note_failure(self, version: NamedVersion, source: VersionFiles, error: ModelLoadError) -> None:
        event("model-failed", logging.WARNING, model=source.name, version=source.version, reason=error)
        with self._lock:
            if version.source == source and error.is_lasting:
                version.failure = str(error)
                self._publish()

    def _publish(self) -> None:
        """Make what is in memory visible to `get`. The caller has the lock."""
        served: dict[tuple[str, int | None], ServedModel] = {}
        for name, model in self._models.items():
            model.publish()
            for number, version in model.versions.items():
                if version.served is not None:
                    served[name, number] = version.served
            if model.current is not None:
                served[name, None] = model.current
        if served != self._served:
            self._served = served
            self.changes += 1


def unknown_model(name: str, reason: str) -> HalError:
    """Return the error of a name or version that does not exist."""
    return HalError(ErrorStatus.INVALID_ARGUMENT, f"model {name!r} {reason}", kind=ErrorKind.UNKNOWN_HANDLE)


def _entries(model: NamedModel) -> Iterator[IndexEntry]:
    """Yield the versions of a model in the list of models, and those whose files are not used."""
    for number in sorted(model.versions.keys() | model.delays.keys() - {ALL_VERSIONS}):
        delay = model.delays.get(number) or model.delays.get(ALL_VERSIONS, "")
        state, reason = NamedModelState.FAILED, delay
        if (version := model.versions.get(number)) is not None:
            state, reason = _state(model, version)
        yield IndexEntry(model.name, number, state, reason or delay)


def _state(model: NamedModel, version: NamedVersion) -> tuple[NamedModelState, str]:
    """Return the state of a version in the list of models, and the reason."""
    reason = model.problem or version.failure
    if model.choice.is_unloaded:
        return NamedModelState.UNLOADED, reason
    if version.loading is not None:
        return NamedModelState.LOADING, reason
    if version.served is not None:
        return NamedModelState.READY, reason
    return (NamedModelState.FAILED if reason else NamedModelState.AVAILABLE), reason


def _result(loading: "Future[ServedModel]", name: str, timeout_s: float | None) -> ServedModel:
    try:
        return loading.result(timeout_s)
    except TimeoutError:
        raise HalError(ErrorStatus.MISSED_DEADLINE_TRANSIENT, f"model {name!r} is being loaded") from None
    except CancelledError:
        raise stopping() from None


def _done(served: ServedModel) -> "Future[ServedModel]":
    done: Future[ServedModel] = Future()
    done.set_result(served)
    return done


def _failed(error: ModelLoadError) -> "Future[ServedModel]":
    failed: Future[ServedModel] = Future()
    failed.set_exception(error)
    return failed
