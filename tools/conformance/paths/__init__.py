"""Paths of execution (checklist 0): each runs a request on a prepared model and says what came of it."""

from collections.abc import Sequence

from tools.conformance.data_connection import is_here
from tools.conformance.paths import burst, fenced, local, reusable, synchronous  # noqa: F401  (they register)
from tools.conformance.paths.buffers import on_buffers
from tools.conformance.paths.path import REGISTERED, Path, judge_steps
from tools.conformance.target import Target

_FAMILIES = ("SYNC", "BURST", "FENCED")
_STREAMS = ("BURST-STREAM", "BURST-C-STREAM")


def _place(code: str) -> tuple[int, str]:
    """Where a path stands among the others."""
    return _FAMILIES.index(code.partition("-")[0]), code


CALLS: dict[str, Path] = {code: REGISTERED[code] for code in sorted(REGISTERED, key=_place)}
"""The paths whose arguments lie in memory: each call of the contract that executes, and the data socket."""

PATHS = CALLS | {f"{code}/BUFFER": on_buffers(path) for code, path in CALLS.items() if code not in _STREAMS}
"""Every path. `/BUFFER`: every argument that can lies in a buffer of the device."""

DEFAULT = ("SYNC", "SYNC-C", "SYNC-R", "BURST", "FENCED", "FENCED/BUFFER")
"""What vectors are executed on unless paths are named: every id, and each kind of call once."""

LOCAL = ("SYNC-LOCAL", "BURST-LOCAL")
"""Vectors of the built-in set are executed on these as well."""

ALL = "all"

__all__ = ["ALL", "CALLS", "DEFAULT", "LOCAL", "PATHS", "Path", "calls", "chosen", "judge_steps"]


def calls(target: Target) -> dict[str, Path]:
    """Those of CALLS that reach this device: the ones over the data socket only where it is on this machine."""
    here = is_here(target)
    return {code: path for code, path in CALLS.items() if here or not path.local}


def chosen(codes: Sequence[str], *, built_in: bool = False) -> dict[str, Path]:
    """Paths by their codes; none for the default, "all" for all.

    Args:
        built_in: the default is that of a built-in vector.

    Raises:
        ValueError: there is no such path.
    """
    if ALL in codes:
        return PATHS
    if unknown := sorted(set(codes) - set(PATHS)):
        raise ValueError(f"there is no path {unknown[0]!r}; there are {', '.join(PATHS)}, and {ALL}")
    wanted = codes or (*DEFAULT, *(LOCAL if built_in else ()))
    return {code: path for code, path in PATHS.items() if code in wanted}
