"""Imitation of Windows and macOS: hides from a process what the Python of these systems does not have.

As a program, `python -m tests.end_to_end.systems.imitation win32 MODULE ARGUMENT...` runs a module like `python -m`.
As a plug-in of pytest, `-p tests.end_to_end.systems.imitation` with NNHAL_IMITATE=win32 hides it before the collection.

What the imitation cannot change are the paths and the process functions of the standard library, and `os.name`.
"""

import asyncio
import fcntl
import multiprocessing
import os
import platform
import runpy
import select
import selectors
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

import grpc.aio
import numpy.testing
import rich.console
import typer

_ADAPTED = (asyncio, grpc.aio, multiprocessing, numpy.testing, rich.console, shutil, subprocess, tempfile, typer)
"""Modules that look at the system when they are imported, and so must be imported before."""

_POSIX_MODULES = ("fcntl", "grp", "posixshmem", "pty", "pwd", "resource", "syslog", "termios", "tty")

_LINUX_NAMES = {
    os: ("EFD_", "GRND_", "MFD_", "O_DIRECT", "O_PATH", "O_TMPFILE", "POSIX_FADV_", "SCHED_", "copy_file_range",
         "eventfd", "fdatasync", "getrandom", "getresuid", "memfd_create", "pidfd_open", "pipe2", "posix_fadvise",
         "posix_fallocate", "prctl", "sched_get", "sched_set", "setns", "setresuid", "splice", "unshare", "listxattr",
         "getxattr", "setxattr", "removexattr"),
    fcntl: ("F_ADD_SEALS", "F_GETPIPE_SZ", "F_GET_SEALS", "F_SEAL_", "F_SETPIPE_SZ"),
    select: ("EPOLL", "epoll"),
    signal: ("SIGCLD", "SIGPOLL", "SIGPWR", "SIGRT", "SIGSTKFLT", "sigtimedwait", "sigwaitinfo"),
    socket: ("AF_ALG", "AF_NETLINK", "AF_PACKET", "AF_VSOCK", "MSG_CMSG_CLOEXEC", "MSG_NOSIGNAL", "SOCK_CLOEXEC",
             "SOCK_NONBLOCK", "SO_BINDTODEVICE", "SO_DOMAIN", "SO_MARK", "SO_PASSCRED", "SO_PASSSEC", "SO_PEERCRED",
             "SO_PEERSEC", "SO_PROTOCOL", "SOCK_SEQPACKET"),
}  # fmt: skip
_POSIX_NAMES = {
    os: ("O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "O_SYNC", "chown", "chroot",
         "confstr", "ctermid", "fchdir", "fchmod", "fchown", "fork", "getegid", "geteuid", "getgid", "getgroups",
         "getloadavg", "getpgid", "getpgrp", "getpriority", "getsid", "getuid", "killpg", "lchown", "lockf", "mkfifo",
         "mknod", "nice", "openpty", "pathconf", "posix_spawn", "pread", "preadv", "pwrite", "pwritev", "readv",
         "register_at_fork", "sched_yield", "sendfile", "set_blocking", "setgid", "setpgid", "setsid", "setuid",
         "statvfs", "sync", "sysconf", "uname", "wait3", "wait4", "writev"),
    select: ("POLL", "poll"),
    signal: ("ITIMER_", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGPIPE", "SIGPROF", "SIGQUIT", "SIGSTOP",
             "SIGTSTP", "SIGUSR", "SIG_BLOCK", "alarm", "getitimer", "pause", "pthread_", "setitimer", "siginterrupt",
             "sigpending", "sigwait"),
    socket: ("AF_UNIX", "CMSG_", "MSG_DONTWAIT", "MSG_EOR", "MSG_NOSIGNAL", "SCM_", "SO_REUSEPORT", "recv_fds",
             "send_fds"),
}  # fmt: skip
"""Names, or their beginnings, that are hidden from modules. `subprocess` of this system needs SIGKILL and WNOHANG."""

_HIDDEN_FOLDERS = ("/proc", "/sys", "/dev/shm")


def imitate(system: str) -> None:
    """Hide what a system does not have, until this process ends. Nothing of nnhal may be imported before.

    Args:
        system: `sys.platform` of the system: "win32" or "darwin".
    """
    assert not [name for name in sys.modules if name.partition(".")[0].startswith("nnhal")]
    platform.uname()  # it looks at the system only once
    sysconfig.get_config_vars()
    selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc,assignment]
    _hide_names(_LINUX_NAMES)
    if system == "win32":
        socket.socketpair = _socket_pair  # type: ignore[assignment]
        ssl.enum_certificates = lambda _: []  # type: ignore[attr-defined]  # the certificates of Windows
        _hide_names(_POSIX_NAMES)
        for module in _POSIX_MODULES:
            sys.modules[module] = None  # type: ignore[assignment]  # its import raises an ImportError
    _hide_mmap(system)
    sys.addaudithook(_refuse_linux)
    sys.platform = system


def _hide_names(hidden: Mapping[ModuleType, Iterable[str]]) -> None:
    for module, prefixes in hidden.items():
        for name in [name for name in vars(module) if name.startswith(tuple(prefixes))]:
            delattr(module, name)


def _hide_mmap(system: str) -> None:
    import mmap

    kept = () if system == "win32" else ("MAP_ANON", "MAP_PRIVATE", "MAP_SHARED", "PROT_")
    for name in [name for name in vars(mmap) if name.startswith(("MAP_", "MADV_", "PROT_"))]:
        if not name.startswith(kept):
            delattr(mmap, name)


def _socket_pair(*_: Any) -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets. That is how Python makes a pair on Windows."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        first = socket.create_connection(listener.getsockname())
        second, _address = listener.accept()
    return first, second


def _refuse_linux(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse files and sockets of Linux alone, however they are opened."""
    if event in ("open", "os.listdir", "os.scandir") and str(arguments[0]).startswith(_HIDDEN_FOLDERS):
        raise FileNotFoundError(f"{arguments[0]} does not exist on this system")
    if event in ("socket.connect", "socket.bind") and str(arguments[1]).startswith("\0"):
        raise OSError("there are no abstract sockets on this system")
    if event == "socket.__new__" and arguments[1] == 1 and sys.platform == "win32":
        raise OSError("there are no Unix sockets on this system")


def pytest_sessionstart() -> None:
    """Hide it from the tests."""
    imitate(os.environ["NNHAL_IMITATE"])


if __name__ == "__main__":
    imitate(sys.argv[1])
    sys.argv[:] = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
