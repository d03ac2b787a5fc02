"""Saves and loads the prepared models of one device."""

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from driver.backends.api import Backend, CompileOptions
from driver.caching.codec import decode, encode
from driver.caching.container import Container, ContainerWriter
from driver.caching.files import CacheFiles, OpenFiles
from driver.caching.miss import CacheMissError
from driver.caching.model import load_graphs, load_placement, load_plan, save_plan
from driver.caching.origin import Origin, origin_here
from driver.graph import Graph
from driver.plan import Plan
from nnhal.errors import HalError
from nnhal.types import CacheOutcome, CacheState, Placement

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Kept:
    """A prepared model, as far as the cache is concerned.

    Attributes:
        placement: which backend runs what.
        priority, preference: that it was prepared with.
        graphs: all of the plan.
    """

    plan: Plan
    placement: Placement
    priority: int
    preference: int
    graphs: Sequence[Graph]


class Keeper:
    """What seals and opens the cache files of a device.

    Args:
        driver: version of the driver.
        backends: of the device, in order.
        key: who knows it can make files that this device believes.
        tensor_bytes: the most that one tensor may have in an execution.
        check_data: whether the digest of the data cache must be right.
    """

    def __init__(
        self, driver: str, backends: Sequence[Backend], key: bytes, tensor_bytes: int, *, check_data: bool
    ) -> None:
        self._origin = origin_here(driver, backends)
        self._backends = {backend.id: backend for backend in backends}
        self._key = key
        self._tensor_bytes = tensor_bytes
        self._check_data = check_data

    def save(self, files: OpenFiles, kept: Kept) -> CacheOutcome:
        """Writes a prepared model to its files. Whatever goes wrong is told and harms nobody."""
        try:
            writer = ContainerWriter()
            document = dict(save_plan(kept.plan, kept.placement, writer))
            document["origin"] = encode(Origin, self._origin)
            document["use"] = [kept.priority, kept.preference]
            writer.write(files, self._key, document)
        except (OSError, MemoryError) as error:
            return _not_saved(files, f"the cache files cannot be written: {error}")
        except Exception as error:
            _log.exception("a prepared model cannot be saved")
            return _not_saved(files, f"the driver failed to save: {type(error).__name__}: {error}")
        return CacheOutcome(CacheState.SAVED)

    def load(self, files: OpenFiles, check: Callable[[], None]) -> Kept:
        """Reads a prepared model from its files.

        Args:
            check: called between partitions; raises to end the preparation.

        Raises:
            CacheMissError: the files hold no model for this device.
            HalError: a backend cannot load its part, or what `check` raises.
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
            # whatever else failed, changed data is the reason
            _finish(container)
        return Kept(plan, placement, priority, preference, graphs)

    def check(self, files: OpenFiles) -> CacheOutcome:
        """Whether files would load, and why not. Builds nothing."""
        try:
            _finish(self._open(files, check_data=True))
        except CacheMissError as miss:
            return CacheOutcome(CacheState.MISS, miss.reason)
        return CacheOutcome(CacheState.HIT)

    def _open(self, files: OpenFiles, *, check_data: bool) -> Container:
        """The container in the files, made by what this device is.

        Raises:
            CacheMissError: there is none.
        """
        try:
            container = Container(files, self._key)
            container.read_data(check=check_data)
        except OSError as error:
            raise _unreadable(error) from error
        if why := decode(Origin, container.document["origin"]).difference(self._origin):
            container.close()
            raise CacheMissError(why)
        return container


class Saving:
    """The files that a preparation is to save to, if it was given any that it can use. Close it when done."""

    def __init__(self, files: CacheFiles | None) -> None:
        self._files: OpenFiles | None = None
        self._reason = ""
        if files is not None and files.given:
            try:
                self._files = OpenFiles(files)
            except HalError as error:
                self._reason = error.reason

    def save(self, keeper: Keeper, kept: Kept) -> CacheOutcome:
        """Saves, where that was asked for."""
        if self._files is not None:
            return keeper.save(self._files, kept)
        return CacheOutcome(CacheState.NOT_SAVED, self._reason) if self._reason else CacheOutcome()

    def close(self) -> None:
        """Lets the files go."""
        if self._files is not None:
            self._files.close()


def _finish(container: Container) -> None:
    try:
        container.finish()
    except OSError as error:
        raise _unreadable(error) from error


def _unreadable(error: OSError) -> CacheMissError:
    return CacheMissError(f"the cache files cannot be read: {error}")


def _not_saved(files: OpenFiles, reason: str) -> CacheOutcome:
    """Leaves no half-written model behind."""
    with contextlib.suppress(OSError):
        os.ftruncate(files.model, 0)
    return CacheOutcome(CacheState.NOT_SAVED, reason)
