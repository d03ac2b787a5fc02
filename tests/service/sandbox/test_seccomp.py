"""Filter of system calls, run by an interpreter of its program: also for machines that the tests do not run on."""

import errno
import struct
from collections.abc import Sequence
from pathlib import Path
from re import findall

import pytest

from nnhal_service.sandbox.filter_program import assemble
from nnhal_service.sandbox.seccomp import filter_program
from nnhal_service.sandbox.system_calls import AUDIT_ARCHITECTURES, LAST_NUMBER, SYSTEM_CALLS, number_of

ALLOWED = 0
_INSTRUCTION = struct.Struct("=HBBI")
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_HEADERS = {
    "x86_64": (Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h")),
    "aarch64": (Path("/usr/include/asm-generic/unistd.h"),),
}


def interpret(program: bytes, architecture: int, number: int, arguments: Sequence[int]) -> int:
    """Return the errno with which a program refuses a system call, or `ALLOWED`."""
    padded = [value % 2**64 for value in (*arguments, 0, 0, 0, 0, 0, 0)][:6]
    data = struct.pack("=iIQ6Q", number, architecture, 0, *padded)
    accumulator, position = 0, 0
    while True:
        code, if_true, if_false, value = _INSTRUCTION.unpack_from(program, position * _INSTRUCTION.size)
        position += 1
        if code == 0x20:
            accumulator = struct.unpack_from("=I", data, value)[0]
        elif code == 0x54:
            accumulator &= value
        elif code == 0x06:
            assert value == _ALLOW or value & 0xFFFF0000 == _ERROR
            return value & 0xFFFF if value != _ALLOW else ALLOWED
        else:
            holds = {0x15: accumulator == value, 0x25: accumulator > value}[code]
            position += if_true if holds else if_false


def outcome(machine: str, name: str, *arguments: int, tcp: bool = True, outgoing: bool = False) -> int | None:
    """Return the outcome of a system call on a machine; None if the machine does not have it."""
    number = number_of(name, machine)
    if number is None:
        return None
    program = filter_program(machine, tcp=tcp, outgoing=outgoing)
    return interpret(program, AUDIT_ARCHITECTURES[machine], number, arguments)


MACHINES = pytest.mark.parametrize("machine", AUDIT_ARCHITECTURES)


@MACHINES
@pytest.mark.parametrize(
    "name",
    [
        *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "kcmp", "process_madvise", "move_pages"),
        *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "bpf", "perf_event_open"),
        *("mount", "umount2", "pivot_root", "chroot", "unshare", "setns", "open_tree", "move_mount", "fsopen"),
        *("userfaultfd", "keyctl", "add_key", "request_key", "open_by_handle_at", "io_uring_setup", "fanotify_init"),
        *("reboot", "swapon", "swapoff", "settimeofday", "clock_settime", "adjtimex", "sethostname", "acct", "syslog"),
        *("chmod", "fchmod", "fchmodat", "fchmodat2", "fchown", "fchownat", "setxattr", "lsetxattr", "fsetxattr"),
        *("shmget", "shmat", "semget", "msgget", "mq_open", "iopl", "ioperm", "modify_ldt", "connect"),
    ],
)
def test_calls_are_refused(machine: str, name: str) -> None:
    assert outcome(machine, name) in {errno.EPERM, None}


@MACHINES
@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("socket", (1, 1), ALLOWED),
        ("socket", (1, 5 | 0o2000000), ALLOWED),
        ("socket", (1, 2), errno.EPERM),
        ("socket", (2, 1), ALLOWED),
        ("socket", (10, 1 | 0o4000), ALLOWED),
        ("socket", (2, 2), errno.EPERM),
        ("socket", (2, 5), errno.EPERM),
        ("socket", (2, 3), errno.EPERM),
        ("socket", (16, 3), errno.EPERM),
        ("socket", (40, 1), errno.EPERM),
        ("socketpair", (1, 1), ALLOWED),
        ("socketpair", (1, 2), errno.EPERM),
        ("sendto", (3, 0, 0, 0x4000), ALLOWED),
        ("sendto", (3, 0, 0, 0x20000000), errno.EPERM),
        ("sendmsg", (3, 0, 0x4000), ALLOWED),
        ("sendmsg", (3, 0, 0x20004000), errno.EPERM),
        ("sendmmsg", (3, 0, 0, 0), ALLOWED),
        ("sendmmsg", (3, 0, 0, 0x20000000), errno.EPERM),
        ("ioctl", (0, 0x5401), ALLOWED),
        ("ioctl", (0, 0x5412), errno.EPERM),
        ("ioctl", (0, 0x1_0000_5412), errno.EPERM),
        ("ioctl", (0, 0x541C), errno.EPERM),
        ("clone", (0x3D0F00,), ALLOWED),  # a thread of glibc
        ("clone", (17,), ALLOWED),
        ("clone", (17 | 0x10000000,), errno.EPERM),
        ("clone", (17 | 0x00020000,), errno.EPERM),
        ("clone", (17 | 0x40000000,), errno.EPERM),
        ("clone3", (), errno.ENOSYS),
        ("prlimit64", (0, 7), ALLOWED),
        ("prlimit64", (1234, 7), errno.EPERM),
        ("seccomp", (), ALLOWED),
        ("landlock_restrict_self", (), ALLOWED),
    ],
)
def test_arguments_decide(machine: str, name: str, arguments: tuple[int, ...], expected: int) -> None:
    assert outcome(machine, name, *arguments) == expected


@MACHINES
def test_without_tcp_there_are_only_unix_sockets(machine: str) -> None:
    assert outcome(machine, "socket", 1, 1, tcp=False) == ALLOWED
    assert outcome(machine, "socket", 2, 1, tcp=False) == errno.EPERM


@MACHINES
@pytest.mark.parametrize(
    ("name", "arguments"), [("connect", ()), ("socket", (2, 2)), ("sendto", (0, 0, 0, 0x20000000))]
)
def test_network_mode_allows_connections(machine: str, name: str, arguments: tuple[int, ...]) -> None:
    assert outcome(machine, name, *arguments, outgoing=True) == ALLOWED
    assert outcome(machine, "ptrace", outgoing=True) == errno.EPERM


@MACHINES
@pytest.mark.parametrize("number", [LAST_NUMBER + 1, 0x40000000, 0x40000000 + 101, 2**31 - 1])
def test_unknown_numbers_seem_absent(machine: str, number: int) -> None:
    """They include the second table of numbers of x86_64, x32."""
    program = filter_program(machine, tcp=True, outgoing=False)
    assert interpret(program, AUDIT_ARCHITECTURES[machine], number, ()) == errno.ENOSYS


@MACHINES
def test_calls_of_other_machines_seem_absent(machine: str) -> None:
    """A 64-bit process can make the system calls of a 32-bit one, which have other numbers."""
    program = filter_program(machine, tcp=True, outgoing=False)
    for architecture in (0x40000003, 0x40000028):
        assert interpret(program, architecture, 0, ()) == errno.ENOSYS


def test_program_without_rules_allows_everything() -> None:
    program = assemble("x86_64", [], errno.EPERM, errno.ENOSYS)
    assert interpret(program, AUDIT_ARCHITECTURES["x86_64"], 101, ()) == ALLOWED


@MACHINES
def test_numbers_are_those_of_the_kernel(machine: str) -> None:
    header = next((path for path in _HEADERS[machine] if path.exists()), None)
    if header is None:
        pytest.skip("the headers of the kernel are not installed")
    numbers = {name: int(number) for name, number in findall(r"#define __NR(?:3264)?_(\w+) (\d+)", header.read_text())}
    known = {name: number_of(name, machine) for name in SYSTEM_CALLS}
    assert {name: numbers[name] for name in known if name in numbers} == {
        name: number for name, number in known.items() if name in numbers
    }
