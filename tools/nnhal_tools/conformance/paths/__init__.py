"""Paths of execution (checklist 0). Each one runs a request on a prepared model and returns the outcome."""

from collections.abc import Sequence

from nnhal_tools.conformance.device.data_connection import is_data_socket_reachable
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths import burst, defined, fenced, local, reusable  # noqa: F401  (they register)
from nnhal_tools.conformance.paths.buffers import with_buffers
from nnhal_tools.conformance.paths.path import REGISTERED, ExecutionPath

_FAMILIES = ("SYNC", "BURST", "FENCED")
_STREAMS = ("BURST-STREAM", "BURST-C-STREAM", "BURST-D-STREAM")


CALLS: dict[str, ExecutionPath] = dict(
    sorted(REGISTERED.items(), key=lambda item: (_FAMILIES.index(item[0].partition("-")[0]), item[0]))
)
"""Paths with arguments in memory: each call of the contract that executes, and the data socket."""

PATHS = CALLS | {f"{code}/BUFFER": with_buffers(path) for code, path in CALLS.items() if code not in _STREAMS}
"""All paths. `/BUFFER`: arguments lie in buffers of the device where possible."""

DEFAULT_PATHS = ("SYNC", "SYNC-C", "SYNC-D", "SYNC-R", "BURST", "FENCED", "FENCED/BUFFER")
"""Paths that vectors are executed on by default: every id, and each kind of call once."""

LOCAL_PATHS = ("SYNC-LOCAL", "BURST-LOCAL")
"""Further default paths of the vectors of the built-in set."""

NDK = "NDK"
"""Path through the NNAPI C library. It builds models of its own, so it has no ExecutionPath and is not in `all`."""

NDK_BUFFER = "NDK/BUFFER"
"""The same with arguments in memories of the device."""

NDK_PATHS = (NDK, NDK_BUFFER)

ALL = "all"


def reachable_calls(target: Target) -> dict[str, ExecutionPath]:
    """Return CALLS, without those over the data socket if the device is on another machine."""
    reachable = is_data_socket_reachable(target)
    return {code: path for code, path in CALLS.items() if reachable or not path.over_data_socket}


def select_paths(codes: Sequence[str], *, built_in: bool = False) -> dict[str, ExecutionPath]:
    """Return paths by their codes.

    Args:
        codes: the codes; none for the default, "all" for all. Those of NDK_PATHS select none of these paths.
        built_in: whether the default is that of a built-in vector.

    Raises:
        ValueError: a code is unknown.
    """
    if ALL in codes:
        return PATHS
    if unknown := sorted(set(codes) - {*PATHS, *NDK_PATHS}):
        raise ValueError(
            f"unknown path {unknown[0]!r}; the paths are {', '.join(PATHS)}, {ALL}, {NDK}, and {NDK_BUFFER}"
        )
    selected = codes or (*DEFAULT_PATHS, *(LOCAL_PATHS if built_in else ()))
    return {code: path for code, path in PATHS.items() if code in selected}
