"""Ranges of numbers, checked before the numbers are used for anything else (V-WIRE-03, V-WIRE-04)."""

from collections.abc import Sequence

from nnhal.types import DataLocation

MAXIMUM_LOCATION = 2**32 - 1
"""Highest offset, length and padding of a DataLocation, in bytes."""


def negative(name: str, numbers: Sequence[int]) -> str | None:
    """Return a message about the lowest of some numbers if it is negative, else None."""
    lowest = min(numbers, default=0)
    return f"has {name} {lowest}, must be >= 0" if lowest < 0 else None


def outside_location_range(location: DataLocation) -> str | None:
    """Return a message about a number of a location that is out of range in every pool (V-WIRE-04), else None."""
    if location.pool_index < 0:
        return f"has pool index {location.pool_index}, must be >= 0"
    for name in ("offset", "length", "padding"):
        value = getattr(location, name)
        if not 0 <= value <= MAXIMUM_LOCATION:
            return f"has {name} {value}, must be 0 to {MAXIMUM_LOCATION}"
    return None
