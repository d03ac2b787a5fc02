"""Capabilities: the rights of a process that runs as root, or that was given some of root's rights."""

import ctypes
import os
from collections.abc import Iterable
from contextlib import suppress
from enum import IntEnum
from pathlib import Path

from nnhal_service.sandbox.system_calls import process_control, system_call

_VERSION_3 = 0x20080522
_PR_CAPBSET_DROP, _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 24, 47, 4
_LAST = Path("/proc/sys/kernel/cap_last_cap")
_LAST_KNOWN = 40
"""CAP_CHECKPOINT_RESTORE."""


class KernelCapability(IntEnum):
    """Capabilities that a worker may need, as in linux/capability.h."""

    DAC_OVERRIDE = 1
    NET_BIND_SERVICE = 10
    IPC_LOCK = 14


def drop_capabilities(kept: Iterable[KernelCapability], readable: Iterable[Path], writable: Iterable[Path]) -> None:
    """Drop all capabilities for good, except some.

    Args:
        kept: capabilities to keep if the process has them.
        readable: files and folders that must be readable. If one of them belongs to another user and is not readable
            without it, DAC_OVERRIDE is kept.
        writable: the same, for writing.

    Raises:
        OSError: the kernel refuses.
    """
    permitted = _permitted()
    if not permitted:
        return
    _set(effective=0, permitted=permitted)
    needs_override = any(not _is_accessible(path, os.R_OK) for path in readable) or any(
        not _is_accessible(path, os.R_OK | os.W_OK) for path in writable
    )
    names = {*kept, *([KernelCapability.DAC_OVERRIDE] if needs_override else [])}
    remaining = permitted & sum(1 << name for name in names)
    _set(effective=permitted, permitted=permitted)  # the next lines need CAP_SETPCAP
    for number in range(_last() + 1):
        if not remaining >> number & 1:
            with suppress(PermissionError):  # without CAP_SETPCAP, a process cannot get others either
                process_control(_PR_CAPBSET_DROP, number)
    process_control(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    _set(effective=remaining, permitted=remaining)


def _is_accessible(path: Path, mode: int) -> bool:
    return not path.exists() or os.access(path, mode, effective_ids=True)


def _last() -> int:
    return int(_LAST.read_text()) if _LAST.exists() else _LAST_KNOWN


class _CapabilityHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("process", ctypes.c_int))


class _Sets(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def _permitted() -> int:
    halves = (_Sets * 2)()
    system_call("capget", ctypes.byref(_CapabilityHeader(_VERSION_3, 0)), ctypes.byref(halves))
    return int(halves[0].permitted) | int(halves[1].permitted) << 32


def _set(*, effective: int, permitted: int) -> None:
    """Set the capabilities of this thread; those for children of other users are emptied."""
    low, high = 0xFFFFFFFF, 32
    halves = (_Sets * 2)(_Sets(effective & low, permitted & low, 0), _Sets(effective >> high, permitted >> high, 0))
    system_call("capset", ctypes.byref(_CapabilityHeader(_VERSION_3, 0)), ctypes.byref(halves))
