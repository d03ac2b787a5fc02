"""System calls that Python does not offer: their numbers, and how to call them."""

import ctypes
import errno
import os
import platform
import sys
from configparser import ConfigParser
from functools import cache
from pathlib import Path

AUDIT_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""Constants AUDIT_ARCH_... of linux/audit.h, by machine. Both are little-endian, with 64 bits."""

LAST_NUMBER = 469
"""Largest number of a system call that this module knows: that of `file_setattr`, on both machines."""

_TABLE = ConfigParser()
_TABLE.read_string(Path(__file__).with_name("system_calls.ini").read_text())

SYSTEM_CALLS = {name: numbers.split() for section in _TABLE.sections() for name, numbers in _TABLE.items(section)}
"""Numbers of system calls on x86_64 and aarch64."""

REFUSED = tuple(name for section in _TABLE.sections() if section.startswith("refused") for name in _TABLE[section])
"""System calls that a worker does not need."""


def number_of(name: str, machine: str) -> int | None:
    """Return the number of a system call on x86_64 or aarch64; None if the machine does not have it."""
    number = SYSTEM_CALLS[name][list(AUDIT_ARCHITECTURES).index(machine)]
    return None if number == "-" else int(number)


@cache
def this_machine() -> str | None:
    """Return the machine of this process, or None if its numbers are unknown."""
    machine = platform.machine()
    is_known = machine in AUDIT_ARCHITECTURES and sys.maxsize > 2**32 and sys.byteorder == "little"
    return machine if is_known and sys.platform == "linux" else None


def system_call(name: str, *arguments: object) -> int:
    """Make a system call with integers, or with pointers as objects of ctypes, None or bytes.

    Raises:
        OSError: it failed, or the machine is unknown (ENOSYS).
    """
    machine = this_machine()
    number = number_of(name, machine) if machine else None
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(_libc().syscall(ctypes.c_long(number), *values))


def process_control(option: int, *arguments: int) -> int:
    """Call prctl with up to four arguments.

    Raises:
        OSError: it failed.
    """
    padded = [*arguments, 0, 0, 0, 0][:4]
    return _checked(_libc().prctl(option, *map(ctypes.c_ulong, padded)))


def _checked(result: int) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


@cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return library
