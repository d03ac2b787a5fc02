"""Quarantine of models that have crashed a process, and probe of new ones, as the driver sees them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from nnhal.types import Model


@dataclass(frozen=True, slots=True)
class Verdict:
    """Decision on one model.

    Attributes:
        excluded: ids of the backends that it must not be prepared on.
        refusal: why it must not be prepared at all, or "".
        reason: why backends are excluded, for a warning.
    """

    excluded: tuple[str, ...] = ()
    refusal: str = ""
    reason: str = ""


HARMLESS = Verdict()


class Quarantine(Protocol):
    """Memory of the models that have crashed a process."""

    def verdict(self, digest: bytes) -> Verdict:
        """Return the decision on a model. Thread safe; called once for each preparation."""

    def count(self, backend: str) -> int:
        """Return the number of models that crashed while a backend worked on them."""


class NoQuarantine:
    """Quarantine of a device without a supervisor, which would not survive a crash."""

    def verdict(self, digest: bytes) -> Verdict:
        """Return that the model is harmless."""
        return HARMLESS

    def count(self, backend: str) -> int:
        """Return 0."""
        return 0


Probe = Callable[[Callable[[], None]], None]
"""Waits for the end of a probe, given a function that raises if the preparation must end. Never raises by itself."""


class ModelProbe(Protocol):
    """Prepares and runs new models in another process. What crashes there goes to the quarantine."""

    def begin(self, device: str, model: Model, digest: bytes) -> Probe | None:
        """Copy a model, and return the probe of it; None if the model is known.

        The memory of the model may change once this method has returned.

        Raises:
            MemoryError: there is not enough memory for the copy.
        """
