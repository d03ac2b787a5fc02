"""Model cache of one device: saves prepared models to files and loads them."""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from nnhal.errors import HalError
from nnhal.types import CacheOutcome, CacheState, Placement
from nnhal_cache.errors import TooLargeError
from nnhal_driver.backends.api import Backend, CompileOptions
from nnhal_driver.execution.plan import Plan
from nnhal_driver.graph import Graph
from nnhal_driver.model_cache.codec import decode, encode
from nnhal_driver.model_cache.container import Container, ContainerWriter
from nnhal_driver.model_cache.environment import BuildEnvironment, current_environment
from nnhal_driver.model_cache.files import CacheFiles, CacheMissError, OpenFiles, file_status
from nnhal_driver.model_cache.plan_document import load_graphs, load_plan, save_plan

_KEPT_BYTES = 2**20
"""Size up to which a model cache stays in memory between the launch of a preparation and its turn."""
_LARGE_FILES = 2
"""Number of larger model caches that are checked at the same time, each in memory of its own."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class CachedModel:
    """The parts of a prepared model that the cache holds.

    Attributes:
        digest: digest of the model, see `nnhal.model_digest`; b"" if it is unknown.
    """

    plan: Plan
    placement: Placement
    priority: int
    preference: int
    graphs: Sequence[Graph]
    digest: bytes = b""


class ModelCache:
    """Reader and writer of one device's cache files.

    Args:
        backends: of the device, in order.
        key: key of the seal. Its owners can make files that this device trusts.
        tensor_bytes: largest size of one tensor in an execution.
    """

    def __init__(
        self, driver: str, backends: Sequence[Backend], key: bytes, tensor_bytes: int, *, check_data: bool
    ) -> None:
        self.environment = current_environment(driver, backends)
        self._backends = {backend.id: backend for backend in backends}
        self._key = key
        self._tensor_bytes = tensor_bytes
        self._check_data = check_data
        self._large_files = threading.Semaphore(_LARGE_FILES)

    def save(self, files: OpenFiles, model: CachedModel) -> CacheOutcome:
        """Write a prepared model to its files. A failure is part of the outcome."""
        try:
            writer = ContainerWriter()
            document = dict(save_plan(model.plan, model.placement, writer))
            document["origin"] = encode(BuildEnvironment, self.environment)
            document["use"] = [model.priority, model.preference]
            document["digest"] = model.digest.hex()
            writer.write(files, self._key, document)
        except TooLargeError as error:
            return _discard(files, str(error))
        except (OSError, MemoryError) as error:
            return _discard(files, f"the cache files cannot be written: {error}")
        except HalError as error:
            return _discard(files, error.reason)
        except Exception as error:
            _log.exception("a prepared model cannot be saved")
            return _discard(files, f"the driver failed to save: {type(error).__name__}: {error}")
        return CacheOutcome(CacheState.SAVED)

    def verify(self, files: OpenFiles) -> "VerifiedFiles":
        """Check everything about files but the digest of the data cache: a launch does this on its caller's thread.

        Raises:
            CacheMissError: the files hold no model for this device.
            MemoryError: there is not enough memory.
        """
        is_large = file_status(files.model).st_size > _KEPT_BYTES
        with self._large_files if is_large else contextlib.nullcontext():
            container = self._open(files)
            data = file_status(files.data)
        identity = (container.seal, data.st_dev, data.st_ino, data.st_size, data.st_mtime_ns, data.st_ctime_ns)
        kept = None if container.size > _KEPT_BYTES else container
        return VerifiedFiles(files, identity, kept, _model_digest(container))

    def load(
        self, verified: "VerifiedFiles", check: Callable[[], None], network: int, reserve: Callable[[int], object]
    ) -> CachedModel:
        """Read a prepared model from its files. The other arguments are those of `CompileOptions`.

        Raises:
            CacheMissError: the files hold no model for this device.
            HalError: a backend cannot load its part, or raised by `check` or `reserve`.
            MemoryError: there is not enough memory.
        """
        container = verified.container or self._open(verified.files)
        container.read_data(check=self._check_data)
        try:
            priority, preference = container.document["use"]
            graphs = load_graphs(container)
            options = CompileOptions(preference, self._tensor_bytes, network, check=check, reserve=reserve)
            plan = load_plan(container, graphs, self._backends, options)
            placement = decode(Placement, container.document["placement"])
        finally:
            # if the data was changed, this error replaces any other: it is the cause
            container.finish()
        return CachedModel(plan, placement, priority, preference, graphs, _model_digest(container))

    def check(self, files: OpenFiles) -> CacheOutcome:
        """Return whether files would load, and why not. Compiles and loads nothing."""
        try:
            container = self._open(files)
            container.read_data(check=True)
            container.finish()
        except CacheMissError as miss:
            return CacheOutcome(CacheState.MISS, miss.reason)
        return CacheOutcome(CacheState.HIT)

    def _open(self, files: OpenFiles) -> Container:
        """Return the container in the files, or raise CacheMissError if it was built in another environment."""
        container = Container(files, self._key)
        container.check_data_size()
        if difference := decode(BuildEnvironment, container.document["origin"]).difference(self.environment):
            raise CacheMissError(difference)
        if files.digest and files.digest != _model_digest(container):
            raise CacheMissError("it was saved for another model")
        return container


@dataclass(frozen=True, slots=True, eq=False)
class VerifiedFiles:
    """Files that `ModelCache.verify` has checked.

    Attributes:
        identity: tells whether their contents have changed: seal of the model cache; device, inode, size and times of
            the data cache.
        container: the contents that were checked; None for a large model cache, which is read and checked again.
    """

    files: OpenFiles
    identity: Hashable
    container: Container | None
    digest: bytes


class SaveTarget:
    """Files that a preparation saves to, if the client passed valid ones. Close it when done.

    Args:
        unusable: why the device does not cache, or "".
        digest: digest of the model; b"" if it is unknown.
    """

    def __init__(self, files: CacheFiles | None = None, unusable: str = "", digest: bytes = b"") -> None:
        self._files: OpenFiles | None = None
        self._reason = ""
        if files is None or not files.has_files:
            return
        if unusable:
            self._reason = unusable
        elif files.digest and files.digest != digest:
            self._reason = "the model is not the one that its cache entry is for: it has another digest"
        else:
            try:
                self._files = OpenFiles(files)
            except HalError as error:
                self._reason = error.reason

    def save(self, cache: ModelCache, model: CachedModel) -> CacheOutcome:
        """Save a model, if the client asked for it."""
        if self._files is not None:
            return cache.save(self._files, model)
        return CacheOutcome(CacheState.NOT_SAVED, self._reason) if self._reason else CacheOutcome()

    def skip(self, reason: str) -> CacheOutcome:
        """Return the outcome for a model that must not be saved."""
        wanted = self._files is not None or self._reason
        return CacheOutcome(CacheState.NOT_SAVED, reason) if wanted else CacheOutcome()

    def close(self) -> None:
        """Close the files."""
        if self._files is not None:
            self._files.close()


def _model_digest(container: Container) -> bytes:
    return bytes.fromhex(container.document["digest"])


def _discard(files: OpenFiles, reason: str) -> CacheOutcome:
    """Empty the model cache, so that no half-written model stays."""
    with contextlib.suppress(OSError):
        os.ftruncate(files.model, 0)
    return CacheOutcome(CacheState.NOT_SAVED, reason)
