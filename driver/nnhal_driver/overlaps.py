"""Arrays that overlap in memory: what is stored or copied for one of them serves all.

A model of 2 MB may have thousands of constants that overlap in its values, with gigabytes in all.
"""

from collections.abc import Sequence

import numpy as np

from nnhal.types import AnyArray, Bytes

ALIGNMENT = 16
"""Alignment that each array keeps in its region, in bytes: that of constants of engines, and of all types."""

Place = tuple[int, int]
"""Number of a region, and an offset in it."""


def merge(arrays: Sequence[Bytes]) -> tuple[list[Bytes], list[Place]]:
    """Return regions of memory, and for each array its region and its offset there, a multiple of ALIGNMENT.

    Arrays that overlap have a region in common, unless their addresses differ modulo ALIGNMENT. So all regions together
    have at most ALIGNMENT times the bytes of the arrays' memory. They are views of it.
    """
    starts = [address(array) for array in arrays]
    order = sorted(range(len(arrays)), key=lambda i: (starts[i] % ALIGNMENT, starts[i]))
    regions: list[tuple[int, int]] = []
    places = [(0, 0)] * len(arrays)
    region_start = region_end = -1
    for i in order:
        end = starts[i] + arrays[i].size
        if starts[i] >= region_end or (starts[i] - region_start) % ALIGNMENT:
            regions.append((i, arrays[i].size))
            region_start, region_end = starts[i], end
        elif end > region_end:
            regions[-1] = regions[-1][0], end - region_start
            region_end = end
        places[i] = len(regions) - 1, starts[i] - region_start
    # in the order of the arrays: addresses differ from process to process, and what is saved must not
    numbers = {region: number for number, region in enumerate(dict.fromkeys(region for region, _ in places))}
    extended = [_extend(arrays[regions[region][0]], regions[region][1]) for region in numbers]
    return extended, [(numbers[region], offset) for region, offset in places]


def flat_bytes(array: AnyArray) -> Bytes:
    """Return the bytes of an array as a view, or as a copy if it is not C-contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def address(array: AnyArray) -> int:
    """Return the address of an array's first byte."""
    return int(array.__array_interface__["data"][0])


def _extend(array: Bytes, size: int) -> Bytes:
    """Return an array's memory and what follows it, up to a size. Overlapping arrays are views of the same memory."""
    if size == array.size:
        return array
    return np.lib.stride_tricks.as_strided(array, (size,), (1,), writeable=bool(array.flags.writeable))
