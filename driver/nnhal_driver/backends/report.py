"""Reports on candidates for backends: ready, skipped or failed, with origin and reason."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

BUILT_IN = "built in"
"""Origin of built-in backends."""


class CandidateState(Enum):
    """Outcome for a candidate."""

    READY = "ready"
    """The device uses the backend."""
    SKIPPED = "skipped"
    """The backend would work and is not used."""
    FAILED = "failed"
    """The candidate cannot be used."""


@dataclass(frozen=True, slots=True)
class Report:
    """Report on one candidate.

    Attributes:
        id: id of the backend; "" if the candidate failed before its id was known.
        origin: BUILT_IN, or the file or package of the candidate.
        reason: why it was skipped or failed, in words that help its author; "" if it is ready.
        version: version of the backend itself.
        api_version: version of the interface that it was written for, "major.minor".
        capabilities: result of `Backend.capabilities`.
        hardware: result of `Backend.hardware`.
    """

    id: str
    state: CandidateState
    origin: str
    reason: str = ""
    version: str = ""
    api_version: str = ""
    capabilities: Mapping[str, bool] = field(default_factory=dict)
    hardware: Mapping[str, str] = field(default_factory=dict)
