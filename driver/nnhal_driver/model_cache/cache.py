"""Model cache of one device: saves prepared models to files and loads them."""

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nnhal.errors import HalError
from nnhal.types import CacheOutcome, CacheState, Placement
from nnhal_driver.backends.api import Backend, CompileOptions
from nnhal_driver.execution.plan import Plan
from nnhal_driver.graph import Graph
from nnhal_driver.model_cache.codec import decode, encode
from nnhal_driver.model_cache.container import Container, ContainerWriter
from nnhal_driver.model_cache.environment import BuildEnvironment, current_environment
from nnhal_driver.model_cache.errors import CacheMissError
from nnhal_driver.model_cache.files import CacheFiles, OpenFiles
from nnhal_driver.model_cache.plan_document import load_graphs, load_placement, load_plan, save_plan

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class CachedModel:
    """The parts of a prepared model that the cache holds.

    Attributes:
        plan: what to execute.
        placement: the backend of each operation.
        priority: of the preparation.
        preference: of the preparation.
        graphs: all graphs of the plan.
    """

    plan: Plan
    placement: Placement
    priority: int
    preference: int
    graphs: Sequence[Graph]


class ModelCache:
    """Reader and writer of one device's cache files.

    Args:
        driver: version of the driver.
        backends: of the device, in order.
        key: key of the seal. Its owners can make files that this device trusts.
        tensor_bytes: largest size of one tensor in an execution.
        check_data: whether to check the digest of the data cache.
    """

    def __init__(
        self, driver: str, backends: Sequence[Backend], key: bytes, tensor_bytes: int, *, check_data: bool
    ) -> None:
        self._environment = current_environment(driver, backends)
        self._backends = {backend.id: backend for backend in backends}
        self._key = key
        self._tensor_bytes = tensor_bytes
        self._check_data = check_data

    def save(self, files: OpenFiles, model: CachedModel) -> CacheOutcome:
        """Write a prepared model to its files. A failure is part of the outcome."""
        try:
            writer = ContainerWriter()
            document = dict(save_plan(model.plan, model.placement, writer))
            document["origin"] = encode(BuildEnvironment, self._environment)
            document["use"] = [model.priority, model.preference]
            writer.write(files, self._key, document)
        except (OSError, MemoryError) as error:
            return _discard(files, f"the cache files cannot be written: {error}")
        except Exception as error:
            _log.exception("a prepared model cannot be saved")
            return _discard(files, f"the driver failed to save: {type(error).__name__}: {error}")
        return CacheOutcome(CacheState.SAVED)

    def load(self, files: OpenFiles, check: Callable[[], None]) -> CachedModel:
        """Read a prepared model from its files.

        Args:
            files: where it was saved.
            check: called between partitions; raises to end the preparation.

        Raises:
            CacheMissError: the files hold no model for this device.
            HalError: a backend cannot load its part, or raised by `check`.
            MemoryError: there is not enough memory.
        """
        container = self._open(files, check_data=self._check_data)
        try:
            priority, preference = container.document["use"]
            graphs = load_graphs(container)
            options = CompileOptions(preference, self._tensor_bytes)
            plan = load_plan(container, graphs, self._backends, options, check)
            placement = load_placement(container.document)
        finally:
            # if the data was changed, this error replaces any other: it is the cause
            _finish(container)
        return CachedModel(plan, placement, priority, preference, graphs)

    def check(self, files: OpenFiles) -> CacheOutcome:
        """Return whether files would load, and why not. Compiles and loads nothing."""
        try:
            _finish(self._open(files, check_data=True))
        except CacheMissError as miss:
            return CacheOutcome(CacheState.MISS, miss.reason)
        return CacheOutcome(CacheState.HIT)

    def _open(self, files: OpenFiles, *, check_data: bool) -> Container:
        """Return the container in the files, if it was built in the current environment.

        Raises:
            CacheMissError: there is none.
        """
        try:
            container = Container(files, self._key)
            container.read_data(check=check_data)
        except OSError as error:
            raise _unreadable(error) from error
        if difference := decode(BuildEnvironment, container.document["origin"]).difference(self._environment):
            container.close()
            raise CacheMissError(difference)
        return container


class SaveTarget:
    """Files that a preparation saves to, if the client passed valid ones. Close it when done."""

    def __init__(self, files: CacheFiles | None) -> None:
        self._files: OpenFiles | None = None
        self._reason = ""
        if files is not None and files.has_files:
            try:
                self._files = OpenFiles(files)
            except HalError as error:
                self._reason = error.reason

    def save(self, cache: ModelCache, model: CachedModel) -> CacheOutcome:
        """Save a model, if the client asked for it."""
        if self._files is not None:
            return cache.save(self._files, model)
        return CacheOutcome(CacheState.NOT_SAVED, self._reason) if self._reason else CacheOutcome()

    def close(self) -> None:
        """Close the files."""
        if self._files is not None:
            self._files.close()


def _finish(container: Container) -> None:
    try:
        container.finish()
    except OSError as error:
        raise _unreadable(error) from error


def _unreadable(error: OSError) -> CacheMissError:
    return CacheMissError(f"the cache files cannot be read: {error}")


def _discard(files: OpenFiles, reason: str) -> CacheOutcome:
    """Empty the model cache, so that no half-written model stays."""
    with contextlib.suppress(OSError):
        os.ftruncate(files.model, 0)
    return CacheOutcome(CacheState.NOT_SAVED, reason)
