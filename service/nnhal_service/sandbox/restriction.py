"""Restriction of this process to its profile."""

import logging
import os
import resource
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from nnhal_service.log import event
from nnhal_service.sandbox.capabilities import KernelCapability, drop_capabilities
from nnhal_service.sandbox.landlock import (
    DEVICE,
    READ,
    SOCKETS,
    WRITE,
    PathRule,
    restrict_access,
)
from nnhal_service.sandbox.profile import SandboxProfile
from nnhal_service.sandbox.seccomp import install_filter
from nnhal_service.sandbox.system_calls import process_control
from nnhal_service.settings import Settings

_PR_SET_NO_NEW_PRIVS = 38
_TASKS = Path("/proc/self/task")
_DUMPED_MEMORY = Path("/proc/self/coredump_filter")


def enter_sandbox(settings: Settings, temporary: Path, profile: Callable[[], SandboxProfile]) -> None:
    """Restrict this process to a profile, unless the settings say otherwise.

    Temporary files of this process and its children are in `temporary` from now on. See `restrict` for when to call it.

    Args:
        settings: the settings of the service.
        temporary: a private folder for temporary files, which the caller removes.
        profile: makes the profile, which may create folders.

    Raises:
        RuntimeError: the process has several threads.
    """
    if settings.sandbox != "off":
        tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)
        restrict(profile())


def restrict(profile: SandboxProfile) -> list[str]:
    """Restrict this process, its future threads and its future children, for good.

    Return and log what the kernel cannot restrict, in words.

    Call it in the only thread, before gRPC and the backends start others: the kernel restricts the files of a thread
    and of those that it starts.

    Raises:
        RuntimeError: the process has several threads.
    """
    if _TASKS.exists() and len(os.listdir(_TASKS)) > 1:
        raise RuntimeError("a process with several threads cannot be restricted")
    _disable_core_dumps()
    steps: Mapping[str, Callable[[], object]] = {
        "capabilities": lambda: drop_capabilities(
            _needed(profile), profile.readable, (*profile.writable, *profile.socket_folders)
        ),
        "new privileges": lambda: process_control(_PR_SET_NO_NEW_PRIVS, 1),
        "access to files": lambda: missing.extend(
            restrict_access(_path_rules(profile), profile.ports, outgoing=profile.outgoing)
        ),
        "system calls": lambda: install_filter(tcp=profile.tcp, outgoing=profile.outgoing),
    }
    missing: list[str] = []
    for name, step in steps.items():
        try:
            step()
        except OSError as error:
            missing.append(f"{name} ({error.strerror})")
    if missing:
        event("sandbox-incomplete", logging.WARNING, missing=", ".join(missing))
    return missing


def _needed(profile: SandboxProfile) -> list[KernelCapability]:
    needed = [KernelCapability.NET_BIND_SERVICE] if profile.privileged_ports else []
    return [*needed, KernelCapability.IPC_LOCK] if profile.locks_memory else needed


def _path_rules(profile: SandboxProfile) -> list[PathRule]:
    return [
        *(PathRule(path, READ) for path in (*profile.system, *profile.readable)),
        *(PathRule(path, WRITE) for path in profile.writable),
        *(PathRule(path, READ | WRITE | DEVICE) for path in profile.devices),
        *(PathRule(path, SOCKETS) for path in profile.socket_folders),
    ]


def _disable_core_dumps() -> None:
    """Disable core dumps, because they contain models and values.

    With a limit of 0, the kernel would still pipe a dump to a program such as systemd-coredump. It does not with 1, and
    writes no file that small. A dump that a debugger requests, or that goes to a socket, has no memory in it.
    """
    with suppress(OSError, ValueError):  # a smaller limit is set already
        resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    with suppress(OSError):
        _DUMPED_MEMORY.write_text("0")
