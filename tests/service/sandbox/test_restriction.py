"""Restriction of a process: what it refuses, what it allows, and kernels that lack a part of it."""

import os
import socket
import threading
from pathlib import Path

import pytest

from nnhal_service.sandbox.landlock import abi
from nnhal_service.sandbox.profile import SandboxProfile
from nnhal_service.sandbox.restriction import restrict
from tests.service.sandbox.restricted_child import ALLOWED, attempt, without_calls

_PROFILE = "writable=(Path(inside),), socket_folders=(Path(sockets),)"
_TCP = f"{_PROFILE}, ports=(0,), tcp=True"
_CAT = "if subprocess.run(['/bin/cat', {}], capture_output=True).returncode: raise PermissionError(errno.EACCES, '')"

needs_landlock = pytest.mark.skipif(abi() < 6, reason="the kernel cannot restrict all of this")


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, object]:
    """Return the paths of folders inside and outside the profile."""
    folders = {name: tmp_path / name for name in ("inside", "outside", "sockets")}
    for folder in folders.values():
        folder.mkdir()
    for folder in (folders["inside"], folders["outside"]):
        (folder / "file").write_text("text")
        (folder / "folder").mkdir()
    program = folders["outside"] / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return dict(folders)


@needs_landlock
def test_files_outside_the_profile_are_refused(folders: dict[str, object]) -> None:
    outcomes, log = attempt(
        {
            "read": "read(outside + '/file')",
            "list": "os.listdir(outside)",
            "write": "write(outside + '/file')",
            "truncate": "os.truncate(outside + '/file', 0)",
            "create": "write(outside + '/new')",
            "create a folder": "os.mkdir(outside + '/new')",
            "remove": "os.unlink(outside + '/file')",
            "remove a folder": "os.rmdir(outside + '/folder')",
            "follow a link": "os.symlink(outside + '/file', inside + '/link'); read(inside + '/link')",
            "run": "os.execv(outside + '/program', ['program'])",
            "create a device": "os.mknod(inside + '/device', 0o20666, os.makedev(1, 3))",
            "read in a child": _CAT.format("outside + '/file'"),
            "read in a thread": "thread = threading.Thread(target=lambda: failed.append(probe())); thread.start();"
            "thread.join(); raise failed[0]",
            "change Python": "write(os.path.join(sys.prefix, 'new'))",
            "create a file beside a socket": "write(sockets + '/file')",
            "read beside a socket": "read(sockets + '/file')",
        },
        _PROFILE,
        before="failed = []\n"
        "def probe():\n"
        "    try:\n"
        "        read(outside + '/file')\n"
        "    except OSError as error:\n"
        "        return error\n"
        "write(sockets + '/file')\n",
        arguments=folders,
    )
    assert outcomes == dict.fromkeys(outcomes, "EACCES")
    assert log == ""


@needs_landlock
def test_files_cannot_cross_the_border_of_the_profile(folders: dict[str, object]) -> None:
    outcomes, _ = attempt(
        {
            "link": "os.link(outside + '/file', inside + '/linked')",
            "move in": "os.rename(outside + '/file', inside + '/moved')",
            "move out": "os.rename(inside + '/file', outside + '/moved')",
        },
        _PROFILE,
        arguments=folders,
    )
    assert set(outcomes.values()) <= {"EACCES", "EXDEV"}


def test_what_the_profile_names_is_allowed(folders: dict[str, object]) -> None:
    outcomes, _ = attempt(
        {
            "read": "read(inside + '/file')",
            "write": "write(inside + '/file', 'a')",
            "create": "write(inside + '/new')",
            "truncate": "os.truncate(inside + '/new', 0)",
            "folder": "os.makedirs(inside + '/a/b')",
            "move": "os.rename(inside + '/new', inside + '/a/b/new')",
            "link": "os.symlink('b', inside + '/a/link')",
            "lock": "with open(inside + '/file') as file: fcntl.flock(file, fcntl.LOCK_EX); os.utime(file.fileno())",
            "remove": "os.unlink(inside + '/a/b/new'); os.rmdir(inside + '/a/b')",
            "socket": "bound = socket.socket(socket.AF_UNIX); bound.bind(sockets + '/new');"
            "os.rename(sockets + '/new', sockets + '/path'); os.unlink(sockets + '/path')",
            "import": "import sqlite3, xml.dom.minidom",
            "run Python": "subprocess.run([sys.executable, '-P', '-c', 'import json'], check=True)",
            "run a program": "subprocess.run(['/bin/true'], check=True)",
            "thread": "thread = threading.Thread(target=int); thread.start(); thread.join()",
            "memory": "memory = os.memfd_create('m'); os.truncate(f'/proc/self/fd/{memory}', 8)",
            "random": "os.urandom(8)",
            "signal": "os.kill(os.getpid(), 0)",
            "limits": "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))",
        },
        f"{_PROFILE}, devices=(Path('/dev/null'),)",
        arguments=folders,
    )
    assert outcomes == dict.fromkeys(outcomes, ALLOWED)


def test_connections_to_others_are_refused(tmp_path: Path, folders: dict[str, object]) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        unix.bind(str(tmp_path / "unix"))
        unix.listen()
        abstract.bind(f"\0{tmp_path}")
        abstract.listen()
        outcomes, _ = attempt(
            {
                "TCP": "socket.create_connection(('127.0.0.1', port))",
                "TCP with the first packet": "socket.socket().sendto(b'x', 0x20000000, ('127.0.0.1', port))",
                "UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
                "UDP of IPv6": "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
                "raw": "socket.socket(socket.AF_INET, socket.SOCK_RAW)",
                "packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
                "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
                "virtual machines": "socket.socket(socket.AF_VSOCK)",
                "Unix": "socket.socket(socket.AF_UNIX).connect(path + '/unix')",
                "abstract": "socket.socket(socket.AF_UNIX).connect('\\0' + path)",
                "datagram": "socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)",
                "pair of datagrams": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
            },
            _TCP,
            arguments={**folders, "port": tcp.getsockname()[1], "path": tmp_path},
        )
    assert outcomes == dict.fromkeys(outcomes, "EPERM")


def test_network_mode_allows_connections(tmp_path: Path, folders: dict[str, object]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{tmp_path}")
        abstract.listen()
        outcomes, _ = attempt(
            {
                "TCP": "socket.create_connection(('127.0.0.1', port))",
                "UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM)",
                "abstract": "socket.socket(socket.AF_UNIX).connect('\\0' + path)",
            },
            f"{_PROFILE}, outgoing=True",
            arguments={**folders, "port": tcp.getsockname()[1], "path": tmp_path},
        )
    assert outcomes == dict.fromkeys(outcomes, ALLOWED)


@needs_landlock
def test_only_ports_of_the_profile_can_be_bound(folders: dict[str, object]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as reserved, socket.create_server(("127.0.0.1", 0)) as other:
        ports = {"port": reserved.getsockname()[1], "other_port": other.getsockname()[1]}
    outcomes, _ = attempt(
        {
            "its port": "socket.socket().bind(('127.0.0.1', port))",
            "a free port": "socket.socket().bind(('127.0.0.1', 0))",
            "another port": "socket.socket().bind(('127.0.0.1', other_port))",
        },
        f"{_PROFILE}, ports=(0, port), tcp=True",
        arguments={**folders, **ports},
    )
    assert outcomes == {"its port": ALLOWED, "a free port": ALLOWED, "another port": "EACCES"}


def test_without_tcp_there_are_no_sockets_of_the_internet(folders: dict[str, object]) -> None:
    outcomes, _ = attempt({"socket": "socket.socket()"}, _PROFILE, arguments=folders)
    assert outcomes == {"socket": "EPERM"}


def test_a_restricted_process_accepts_connections(folders: dict[str, object]) -> None:
    """The service does so over TCP, a Unix socket, and an abstract one with descriptors."""
    serve = (
        "def answer(server):\n"
        "    server.listen()\n"
        "    print(server.getsockname()[1] if server.family == socket.AF_INET else '', file=sys.stderr, flush=True)\n"
        "    accepted, _ = server.accept()\n"
        "    accepted.sendmsg([b'answer'])\n"
        "    accepted.close()\n"
        "pipe = os.pipe()\n"
        "client = os.fork()\n"
        "if client == 0:\n"
        "    os.close(pipe[1])\n"
        "    port = int(os.read(pipe[0], 10))\n"
        "    addresses = [(2, 1, ('127.0.0.1', port)), (1, 1, sockets + '/s'), (1, 5, '\\0' + sockets)]\n"
        "    for family, kind, address in addresses:\n"
        "        with socket.socket(family, kind) as connection:\n"
        "            connection.connect(address)\n"
        "            assert connection.recv(10) == b'answer'\n"
        "    os._exit(0)\n"
    )
    attempts = {
        "TCP": "server = socket.create_server(('127.0.0.1', 0)); unix = socket.socket(socket.AF_UNIX);"
        "unix.bind(sockets + '/s'); unix.listen(); abstract = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET);"
        "abstract.bind('\\0' + sockets); abstract.listen(); os.write(pipe[1], str(server.getsockname()[1]).encode())",
        "answer": "[answer(each) for each in (server, unix, abstract)]",
        "client": "assert os.waitpid(client, 0)[1] == 0",
    }
    outcomes, _ = attempt(attempts, _TCP, before=serve, arguments=folders)
    assert outcomes == dict.fromkeys(attempts, ALLOWED)


@needs_landlock
def test_other_processes_are_out_of_reach(folders: dict[str, object]) -> None:
    outcomes, _ = attempt(
        {
            "trace": "system_call('ptrace', 16, parent, 0, 0)",
            "trace a child": "system_call('ptrace', 0, 0, 0, 0)",
            "signal": "os.kill(parent, 0)",
            "limits": "import resource; resource.prlimit(parent, resource.RLIMIT_NOFILE)",
            "descriptors": "system_call('pidfd_getfd', os.pidfd_open(parent), 0, 0)",
            "memory": "read(f'/proc/{parent}/mem')",
            "environment": "read(f'/proc/{parent}/environ')",
            "keys": "system_call('keyctl', 0, -3, 0)",
            "shared memory": "system_call('shmget', 1, 4096, 0o1600)",
        },
        _PROFILE,
        arguments={**folders, "parent": os.getpid()},
    )
    unreadable = {"memory", "environment"}
    assert outcomes == {name: "EACCES" if name in unreadable else "EPERM" for name in outcomes}


def test_the_system_is_out_of_reach(folders: dict[str, object]) -> None:
    outcomes, _ = attempt(
        {
            "mount": "system_call('mount', b'none', inside.encode(), b'tmpfs', 0, None)",
            "root": "os.chroot(inside)",
            "namespace": "system_call('unshare', 0x10000000)",
            "namespace of a child": "system_call('clone', 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)",
            "program in the kernel": "system_call('bpf', 0, 0, 0)",
            "counters": "system_call('perf_event_open', 0, 0, 0, 0, 0)",
            "page faults": "system_call('userfaultfd', 1)",
            "io_uring": "system_call('io_uring_setup', 1, 0)",
            "file without a name": "system_call('open_by_handle_at', 0, 0, 0)",
            "clock": "system_call('clock_settime', 0, 0)",
            "mode": "os.chmod(inside + '/file', 0o777)",
            "mode of a descriptor": "with open(inside + '/file') as file: os.fchmod(file.fileno(), 0o777)",
            "owner": "os.chown(inside + '/file', 0, 0)",
            "attribute": "os.setxattr(inside + '/file', 'user.name', b'')",
            "terminal": "fcntl.ioctl(0, 0x5412, b'x')",
        },
        _PROFILE,
        arguments=folders,
    )
    assert outcomes == dict.fromkeys(outcomes, "EPERM")


def test_calls_that_are_newer_than_the_filter_seem_absent(folders: dict[str, object]) -> None:
    code = {"new": "ctypes.set_errno(0); libc = ctypes.CDLL(None, use_errno=True); libc.syscall(470);"}
    code = {"new": code["new"] + "raise OSError(ctypes.get_errno(), '')", "clone3": "system_call('clone3', 0, 0)"}
    outcomes, _ = attempt(code, _PROFILE, arguments=folders)
    assert outcomes == dict.fromkeys(code, "ENOSYS")


def test_rights_are_given_up(folders: dict[str, object]) -> None:
    """Capabilities, new privileges and core dumps."""
    outcomes, _ = attempt(
        {
            "status": "lines = Path('/proc/self/status').read_text().splitlines();"
            "status = dict(line.split(':\\t', 1) for line in lines)",
            "privileges": "assert status['NoNewPrivs'] == '1' and status['Seccomp'] == '2'",
            "capabilities": "assert {int(status[f'Cap{kind}'], 16) for kind in ('Prm', 'Eff', 'Inh', 'Amb')} == {0}",
            "bounds": "assert os.getuid() or int(status['CapBnd'], 16) == 0",
            "core dump": "import resource; assert resource.getrlimit(resource.RLIMIT_CORE)[1] <= 1",
            "dumped memory": "assert int(Path('/proc/self/coredump_filter').read_text(), 16) == 0",
        },
        _PROFILE,
        arguments=folders,
    )
    assert outcomes == dict.fromkeys(outcomes, ALLOWED)


@pytest.mark.skipif(os.getuid() != 0, reason="needs the capabilities of root")
@pytest.mark.parametrize(
    ("profile", "kept"), [("privileged_ports=True", 1 << 10), ("locks_memory=True", 1 << 14), ("", 0)]
)
def test_needed_capabilities_are_kept(profile: str, kept: int, folders: dict[str, object]) -> None:
    code = "text = Path('/proc/self/status').read_text(); assert int(text.split('CapEff:')[1].split()[0], 16) == kept"
    outcomes, _ = attempt({"kept": code}, f"{_PROFILE}, {profile}", arguments={**folders, "kept": kept})
    assert outcomes == {"kept": ALLOWED}


@pytest.mark.skipif(os.getuid() != 0, reason="needs the capabilities of root")
def test_root_can_use_folders_of_other_users(folders: dict[str, object]) -> None:
    before = "os.chmod(inside, 0o700); os.chown(inside, 12345, 12345)"
    attempts = {"write": "write(inside + '/new')", "outside": "read('/etc/shadow')"}
    outcomes, _ = attempt(attempts, _PROFILE, before=before, arguments=folders)
    assert outcomes["write"] == ALLOWED
    assert outcomes["outside"] != ALLOWED or abi() < 2


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        (["landlock_create_ruleset"], ["access to files", "binding of TCP ports", "signals to other processes"]),
        (["seccomp"], ["system calls (Function not implemented)"]),
        (["capget"], ["capabilities (Function not implemented)"]),
        (["landlock_create_ruleset", "seccomp", "capget"], ["access to files", "system calls", "capabilities"]),
    ],
)
def test_missing_parts_of_the_kernel_are_logged_once(
    calls: list[str], words: list[str], folders: dict[str, object]
) -> None:
    attempts = {"continue": "write(inside + '/new')"}
    outcomes, log = attempt(attempts, _PROFILE, before=without_calls(*calls), arguments=folders)
    assert outcomes == {"continue": ALLOWED}
    (line,) = log.splitlines()
    assert "WARNING sandbox-incomplete" in line
    assert all(word in line for word in words)


@needs_landlock
@pytest.mark.parametrize(
    ("version", "missing"),
    [
        (1, ["access to files", "binding of TCP ports", "signals to other processes"]),
        (2, ["truncation of files", "binding of TCP ports", "requests to devices", "signals to other processes"]),
        (3, ["binding of TCP ports", "requests to devices", "signals to other processes"]),
        (4, ["requests to devices", "signals to other processes"]),
        (5, ["signals to other processes"]),
        (6, []),
    ],
)
def test_older_versions_of_landlock_restrict_what_they_can(
    version: int, missing: list[str], folders: dict[str, object]
) -> None:
    attempts = {
        "missing": f"assert missing == {missing!r}, missing",
        "inside": "os.makedirs(inside + '/a'); os.rename(inside + '/file', inside + '/a/file')",
        "outside": "read(outside + '/file')",
    }
    outcomes, log = attempt(attempts, _TCP, before=f"landlock.abi = lambda: {version}", arguments=folders)
    assert outcomes == {"missing": ALLOWED, "inside": ALLOWED, "outside": "EACCES" if version > 1 else ALLOWED}
    assert bool(log) == bool(missing)


def test_a_process_with_threads_is_not_restricted() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with pytest.raises(RuntimeError, match="several threads"):
            restrict(SandboxProfile())
    finally:
        done.set()
        thread.join()
