"""What became of each candidate for a backend: ready, skipped or failed, from where, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

BUILT_IN = "built in"
"""Origin of the backends in the tree."""


class State(Enum):
    """The outcome."""

    READY = "ready"
    """The device uses it."""
    SKIPPED = "skipped"
    """Nothing is wrong with it, and it is not used."""
    FAILED = "failed"
    """It cannot be used."""


@dataclass(frozen=True, slots=True)
class Report:
    """One candidate. Immutable.

    Attributes:
        id: of the backend; "" where a candidate failed before it could say.
        origin: BUILT_IN, or the file or package that it comes from.
        reason: why it was skipped or failed, in words that its author can act on; "" when it is ready.
        version: of the backend itself.
        api_version: of the interface that it was made for, "major.minor".
    """

    id: str
    state: State
    origin: str
    reason: str = ""
    version: str = ""
    api_version: str = ""
    capabilities: Mapping[str, bool] = field(default_factory=dict)
