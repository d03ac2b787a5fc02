"""Labels for what the model cache did. Its reasons are sentences with sizes and paths; there are only a few labels."""

import re

from nnhal.types import CacheOutcome, CacheState
from nnhal_service.metrics.calls import OTHER

REASONS = (
    ("share_unavailable", "the share is unavailable"),
    ("share_refused", "the entry in the share"),
    ("no_entry", "there is no entry"),
    ("off", "the cache is off"),
    ("replaced", "replaced or removed"),
    ("empty", "is empty"),
    ("too_large", "has a limit of"),
    ("damaged", "invalid size|truncated|not a file of this driver|was changed|too long|: it has .* bytes, not"),
    ("format", "has format"),
    ("key", "another key"),
    ("token", "another token"),
    ("model", "another model|another digest"),
    ("driver", "it was made by driver"),
    ("backends", "it was made for the backends|^backend .* was "),
    ("machine", "CPU has other features"),
    ("quarantine", "does not run this model for a while"),
    ("unreadable", "cannot be read"),
    ("unwritable", "cannot be (written|stored)|is full|read-only|no space"),
    ("directory", "the cache .* (is not a directory|belongs to user|has been locked)|other users may write"),
)
"""Labels, each with a pattern of the sentences for which it stands. The first that fits is used."""

_PATTERNS = [(label, re.compile(pattern)) for label, pattern in REASONS]


def cache_labels(outcome: CacheOutcome) -> tuple[str, str]:
    """Return the state and the reason of what the cache did, as labels."""
    state = CacheState(outcome.state).name.lower()
    if not outcome.reason:
        return state, ""
    return state, next((label for label, pattern in _PATTERNS if pattern.search(outcome.reason)), OTHER)
