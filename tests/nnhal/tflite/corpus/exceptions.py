"""Models that are left out because LiteRT crashes, and known differences of integer results."""

from fnmatch import fnmatchcase

LITERT_CRASHES: dict[str, str] = {}
"""Why LiteRT ends its process, by patterns of names."""

STEPS: dict[tuple[str, str], tuple[int, str]] = {}
"""Allowed difference and its reason, by patterns of names and backends."""


def crash(name: str) -> str:
    """Return why LiteRT crashes on a model, or ""."""
    return next((reason for pattern, reason in LITERT_CRASHES.items() if matching(pattern, name)), "")


def steps(name: str, backend: str) -> int:
    """Return the allowed difference of integer results."""
    allowed = [count for (pattern, on), (count, _) in STEPS.items() if on == backend and matching(pattern, name)]
    return max(allowed, default=0)


def matching(pattern: str, name: str) -> bool:
    """Return whether a pattern with `*` matches the name of a model."""
    return fnmatchcase(name, pattern)
