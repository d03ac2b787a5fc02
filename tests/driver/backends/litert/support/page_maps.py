"""Memory mappings of arrays."""

from nnhal.types import AnyArray
from nnhal_driver.overlaps import address


def in_memory_file(array: AnyArray) -> bool:
    """Return whether the middle of an array lies in a mapping of a memory file."""
    middle = address(array) + array.nbytes // 2
    with open("/proc/self/maps") as maps:
        for line in maps:
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            if start <= middle < end:
                return "memfd:" in line
    return False
