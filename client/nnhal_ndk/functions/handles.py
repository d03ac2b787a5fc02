"""Arrays of handles."""

import struct

from nnhal_ndk.results import bad_data, unexpected_null


def unpack_handles(data: bytes | None) -> tuple[int, ...]:
    """Return an array of handles as numbers.

    Raises:
        NdkError: UNEXPECTED_NULL: one of them is NULL.
    """
    handles = struct.unpack(f"{len(data) // 8}Q", data) if data else ()
    if 0 in handles:
        raise unexpected_null(f"element {handles.index(0)} is NULL")
    return handles


def device_handles(data: bytes) -> tuple[int, ...]:
    """Return a list of devices as handles.

    Raises:
        NdkError: UNEXPECTED_NULL; BAD_DATA: it is empty, or has a device twice.
    """
    handles = unpack_handles(data)
    if not handles or len(set(handles)) != len(handles):
        raise bad_data("a list of devices has at least one, and each only once")
    return handles
