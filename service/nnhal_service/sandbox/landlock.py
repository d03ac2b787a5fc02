"""Landlock: the kernel's restriction of a process to some files, ports and signals, for its children too."""

import ctypes
import errno
import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

from nnhal_service.sandbox.system_calls import system_call


class Access(IntFlag):
    """Rights on files, as in linux/landlock.h."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


_ALL = Access(0xFFFF)
READ = Access.READ_FILE | Access.READ_DIR | Access.EXECUTE
"""Read files, list folders, run programs."""
WRITE = (
    (Access.READ_FILE | Access.READ_DIR | Access.WRITE_FILE | Access.TRUNCATE | Access.REFER)
    | (Access.MAKE_DIR | Access.MAKE_REG | Access.MAKE_SYM | Access.MAKE_SOCK | Access.MAKE_FIFO)
    | (Access.REMOVE_DIR | Access.REMOVE_FILE)
)
"""Read, create, change, move and remove files and folders."""
SOCKETS = Access.READ_DIR | Access.MAKE_SOCK | Access.REMOVE_FILE
"""Create and remove Unix sockets. The kernel does not tell the removal of a socket from that of a file."""
DEVICE = Access.READ_FILE | Access.WRITE_FILE | Access.IOCTL_DEV
"""Use a device."""

_FILE_RIGHTS = Access.EXECUTE | Access.WRITE_FILE | Access.READ_FILE | Access.TRUNCATE | Access.IOCTL_DEV
_MIN_ABI = 2
"""ABI 1 refuses to move files between folders, as the model cache must."""
_TRUNCATE_ABI, _TCP_ABI, _IOCTL_ABI, _SCOPE_ABI = 3, 4, 5, 6
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPES = 3
"""Signals, and abstract Unix sockets, of processes that are not restricted in the same way."""
_VERSION = 1
_PATH_BENEATH, _NET_PORT = 1, 2


@dataclass(frozen=True, slots=True)
class PathRule:
    """Rights on a file, or on a folder and all that it contains. Paths that do not exist are ignored."""

    path: Path
    access: Access


def abi() -> int:
    """Return the version of the kernel's Landlock; 0 if it has none, or has it disabled."""
    try:
        return system_call("landlock_create_ruleset", None, 0, _VERSION)
    except OSError:
        return 0


def restrict_access(rules: Iterable[PathRule], ports: Sequence[int] | None, *, outgoing: bool) -> list[str]:
    """Restrict this thread and the threads and processes that it starts. Return what the kernel cannot restrict.

    The process must have given up new privileges (PR_SET_NO_NEW_PRIVS).

    Args:
        rules: the files that remain accessible.
        ports: the TCP ports that can be bound; None for all.
        outgoing: whether TCP connections to others, and connections to abstract Unix sockets, are possible.

    Raises:
        OSError: the kernel refuses.
    """
    version = abi()
    if version < _MIN_ABI:
        return ["access to files", "binding of TCP ports", "signals to other processes"]
    files = _ALL
    if version < _TRUNCATE_ABI:
        files &= ~Access.TRUNCATE
    if version < _IOCTL_ABI:
        files &= ~Access.IOCTL_DEV
    network = 0 if version < _TCP_ABI else (_BIND_TCP if ports is not None else 0) | (0 if outgoing else _CONNECT_TCP)
    scopes = 0 if version < _SCOPE_ABI else _SCOPES & ~(1 if outgoing else 0)
    attributes = _RulesetAttributes(files, network, scopes)
    size = 8 if version < _TCP_ABI else 16 if version < _SCOPE_ABI else 24
    with ExitStack() as stack:
        ruleset = system_call("landlock_create_ruleset", ctypes.byref(attributes), size, 0)
        stack.callback(os.close, ruleset)
        for rule in rules:
            _add_path(ruleset, rule.path, rule.access & files)
        if network & _BIND_TCP:
            for port in ports or ():
                _add_rule(ruleset, _NET_PORT, _PortAttributes(_BIND_TCP, port))
        system_call("landlock_restrict_self", ruleset, 0)
    missing = {_TRUNCATE_ABI: "truncation of files", _TCP_ABI: "binding of TCP ports"}
    missing |= {_IOCTL_ABI: "requests to devices", _SCOPE_ABI: "signals to other processes"}
    return [name for since, name in missing.items() if version < since]


def _add_path(ruleset: int, path: Path, access: Access) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP}:
            return
        raise
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= _FILE_RIGHTS
        if access:
            _add_rule(ruleset, _PATH_BENEATH, _PathAttributes(access, descriptor))
    finally:
        os.close(descriptor)


def _add_rule(ruleset: int, kind: int, attributes: ctypes.Structure) -> None:
    system_call("landlock_add_rule", ruleset, kind, ctypes.byref(attributes), 0)


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _PathAttributes(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("descriptor", ctypes.c_int32))


class _PortAttributes(ctypes.Structure):
    _fields_ = (("access", ctypes.c_uint64), ("port", ctypes.c_uint64))
