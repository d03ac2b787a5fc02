"""Alignment of values in memory that is shared and in files."""

ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector."""


def align(offset: int) -> int:
    """Return the first multiple of ALIGNMENT that is not below an offset."""
    return -(-offset // ALIGNMENT) * ALIGNMENT
