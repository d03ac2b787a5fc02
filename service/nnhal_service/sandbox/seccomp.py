"""Filter of system calls: those that a worker does not need fail with EPERM, for its children too.

`system_calls.ini` lists what is refused. A list of what is allowed would need to know all plug-ins and versions of
libraries. System calls that are newer than the list fail with ENOSYS, as on an older kernel, for which libraries are
prepared.
"""

import ctypes
import errno
import socket
from collections.abc import Sequence

from nnhal_service.sandbox.filter_program import Condition, Rule, assemble
from nnhal_service.sandbox.system_calls import REFUSED, system_call, this_machine

_SET_MODE_FILTER, _SYNCHRONIZE_THREADS, _KEEP_SPECULATION = 1, 1, 4

_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
"""Requests of ioctl that type text into the terminal from which the service was started."""
_NEW_NAMESPACES = 0x7E020000
"""Flags of clone: CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
_TYPE_MASK = 0xF
_MSG_FASTOPEN = 0x20000000
"""Flag of send calls that connects a TCP socket."""


def install_filter(*, tcp: bool, outgoing: bool) -> None:
    """Install the filter for all threads of this process, and for its future children.

    The process must have given up new privileges (PR_SET_NO_NEW_PRIVS).

    Args:
        tcp: whether it listens on TCP ports.
        outgoing: whether it may connect to others, over any protocol.

    Raises:
        OSError: the kernel has no filters, or the numbers of its system calls are unknown (ENOSYS).
    """
    machine = this_machine()
    if machine is None:
        raise OSError(errno.ENOSYS, "the system calls of this machine are unknown")
    load_program(filter_program(machine, tcp=tcp, outgoing=outgoing))


def filter_program(machine: str, *, tcp: bool, outgoing: bool) -> bytes:
    """Return the program of the filter for a machine. The arguments are those of `install_filter`."""
    return assemble(machine, _rules(tcp=tcp, outgoing=outgoing), errno.EPERM, errno.ENOSYS)


def load_program(program: bytes) -> None:
    """Install a program as a filter for all threads of this process.

    Raises:
        OSError: the kernel refuses it.
    """
    code = ctypes.create_string_buffer(program, len(program))
    header = _FilterHeader(len(program) // 8, ctypes.cast(code, ctypes.c_void_p))
    # kernels before 5.16 slow down processes with filters, against attacks on secrets within one process
    flags = _SYNCHRONIZE_THREADS | _KEEP_SPECULATION
    system_call("seccomp", _SET_MODE_FILTER, flags, ctypes.byref(header))


class _FilterHeader(ctypes.Structure):
    """The structure sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _rules(*, tcp: bool, outgoing: bool) -> Sequence[Rule]:
    rules = [] if outgoing else _connection_rules(tcp=tcp)
    rules += [
        Rule("ioctl", ((Condition(1, (_TIOCSTI, _TIOCLINUX), negated=True),),)),
        Rule("clone", ((Condition(0, (0,), _NEW_NAMESPACES),),)),
        Rule("prlimit64", ((Condition(0, (0,)),),)),  # of this process only
        Rule("clone3", is_unknown=True),  # its flags are in memory, where a filter cannot read them; libc uses clone
    ]
    return [*rules, *map(Rule, REFUSED)]


def _connection_rules(*, tcp: bool) -> list[Rule]:
    """Return rules under which the process can accept connections, but not send anything to others by itself.

    There are no sockets without connections, because their send calls name the receiver in memory, where a filter
    cannot read it.
    """
    local = (Condition(0, (socket.AF_UNIX,)), Condition(1, (socket.SOCK_STREAM, socket.SOCK_SEQPACKET), _TYPE_MASK))
    internet = (Condition(0, (socket.AF_INET, socket.AF_INET6)), Condition(1, (socket.SOCK_STREAM,), _TYPE_MASK))
    return [
        Rule("sendmsg", ((Condition(2, (0,), _MSG_FASTOPEN),),)),
        Rule("sendto", ((Condition(3, (0,), _MSG_FASTOPEN),),)),
        Rule("sendmmsg", ((Condition(3, (0,), _MSG_FASTOPEN),),)),
        Rule("socket", (local, internet) if tcp else (local,)),
        Rule("socketpair", (local,)),
        Rule("connect"),
    ]
