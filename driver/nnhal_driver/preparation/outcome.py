"""Outcome of a preparation, which its callback receives."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from nnhal.errors import MISSED_DEADLINE, HalError, exception_text, general_failure, out_of_memory, well_formed
from nnhal.types import CacheOutcome, CacheState, ErrorStatus, Placement, PreparationWarning
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.model_cache.files import CacheMissError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """Result of a preparation, which its callback receives.

    Attributes:
        status: an `ErrorStatus`.
        prepared_model: the model if `status` is NONE, else None.
        rule: id of the rule that the model breaks, or "".
        warnings: problems that did not make the preparation fail.
        damaged: whether the files to load from are damaged, and useless to any device.
    """

    status: int
    prepared_model: PreparedModel | None = None
    reason: str = ""
    rule: str = ""
    placement: Placement = field(default_factory=Placement)
    warnings: tuple[PreparationWarning, ...] = ()
    cache: CacheOutcome = field(default_factory=CacheOutcome)
    damaged: bool = False

    @staticmethod
    def from_error(error: HalError) -> "Outcome":
        """Return the outcome of a failed preparation."""
        error = well_formed(error)
        return Outcome(error.status, None, error.reason, error.rule)

    @staticmethod
    def cache_miss(reason: str, *, damaged: bool = False) -> "Outcome":
        """Return the outcome of a preparation from the cache that finds no usable model."""
        cache = CacheOutcome(CacheState.MISS, reason)
        return Outcome(ErrorStatus.GENERAL_FAILURE, None, f"cache miss: {reason}", cache=cache, damaged=damaged)

    def with_cache(self, cache: CacheOutcome) -> "Outcome":
        """Return the outcome with a result of the cache, and with a warning if saving failed."""
        warnings = self.warnings
        if cache.state == CacheState.NOT_SAVED:
            warnings = (*warnings, PreparationWarning("cache-not-saved", cache.reason))
        return replace(self, cache=cache, warnings=warnings)


PreparationCallback = Callable[[Outcome], None]
"""IPreparedModelCallback.notify: called exactly once for each preparation, from any thread. It must not block."""


def failed_outcome(error: BaseException) -> Outcome:
    """Return the outcome of a preparation that an exception ended."""
    if isinstance(error, CacheMissError):
        return Outcome.cache_miss(error.reason, damaged=error.damaged)
    if isinstance(error, HalError):
        return Outcome.from_error(error)
    if isinstance(error, MemoryError):
        return Outcome.from_error(out_of_memory("the preparation", error))
    _log.error("a preparation failed", exc_info=error)
    return Outcome.from_error(general_failure(f"the driver failed: {exception_text(error)}"))


@contextmanager
def reported_launch(callback: PreparationCallback) -> Iterator[PreparationCallback]:
    """Yield the callback for the launch of a preparation, which passes its first outcome only.

    A failed launch calls the callback before its error is raised. A missed deadline is an outcome, and never an error
    of the launch (PREP-03).

    Raises:
        HalError: the launch raised it, a CacheMissError or a MemoryError.
    """
    notify = _notify_once(callback)
    try:
        yield notify
    except BaseException as error:
        outcome = failed_outcome(error)
        notify(outcome)
        if outcome.status in MISSED_DEADLINE:
            return
        if isinstance(error, CacheMissError | MemoryError):
            raise HalError(outcome.status, outcome.reason) from error
        raise


def _notify_once(callback: PreparationCallback) -> PreparationCallback:
    """Return a callback that passes on its first call only."""
    pending = [callback]

    def notify(outcome: Outcome) -> None:
        try:
            first = pending.pop()  # atomic, so that two threads cannot both have it
        except IndexError:
            return
        first(outcome)

    return notify
