"""Quarantine: models that have crashed a process, as the driver sees them."""

from dataclasses import dataclass
from typing import Protocol


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
