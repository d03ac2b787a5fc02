"""Processes of `nnhal serve` that are forked from one process, which has imported its packages once.

A start otherwise takes more than a second of CPU time, nearly all of it for imports, and the tests start hundreds of
services. A forked service has its own process, arguments, environment, folder and output, as if a shell had started it.
"""

import gc
import importlib
import io
import json
import os
import runpy
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, AnyStr, Generic, Self

_ROOT = Path(__file__).parents[4]
_MODULES = (
    "nnhal_driver.backends.registry",
    "nnhal_service.settings_sources",
    "nnhal_service.supervisor.probe",
    "nnhal_service.supervisor.supervisor",
    "nnhal_service.supervisor.template",
    "nnhal_service.supervisor.worker",
    "nnhal_tools.cli",
)
_ORDER_BYTES = 2**16


class ForkedProcess(Generic[AnyStr]):
    """Process that the forking process has started, with the members of `subprocess.Popen` that are used.

    Attributes:
        pid: id of the process.
        stdout: its output.
        returncode: its exit code, once that is known; negative for the signal that ended it.
    """

    def __init__(self, pid: int, stdout: IO[AnyStr], status: socket.socket) -> None:
        self.pid = pid
        self.stdout: IO[AnyStr] = stdout
        self.returncode: int | None = None
        self._status = status
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code, or None if the process runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the process ends, and return its exit code. Several threads may wait.

        Raises:
            subprocess.TimeoutExpired: it does not end in time.
        """
        ended = select.poll()
        if (descriptor := self._status.fileno()) >= 0:
            ended.register(descriptor, select.POLLIN)
            if not ended.poll(None if timeout is None else 1000 * timeout):
                raise subprocess.TimeoutExpired("nnhal serve", timeout or 0)
        with self._lock:
            if self.returncode is None:
                self.returncode = int(self._status.recv(64))
                self._status.close()
            return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # its exit code is on its way
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Close the output and wait."""
        self.stdout.close()
        self.wait()


_forking_lock = threading.Lock()
_forking: tuple[subprocess.Popen[bytes], socket.socket] | None = None
"""The process that forks services, and the connection to it. It ends with this process."""


def start(arguments: Sequence[str], environment: Mapping[str, str], stderr: IO[str]) -> ForkedProcess[str]:
    """Start the command line with arguments. Its environment is exactly the given one."""
    pid, stdout, status = _order(arguments, environment, stderr.fileno(), own_group=False)
    return ForkedProcess(pid, open(stdout, encoding="utf-8"), status)


def start_embedded(arguments: Sequence[str], log: IO[bytes]) -> ForkedProcess[bytes]:
    """Start the command line as `nnhal.embedded` does, in a process group of its own."""
    pid, stdout, status = _order(arguments, os.environ, log.fileno(), own_group=True)
    return ForkedProcess(pid, open(stdout, "rb"), status)


def _order(
    arguments: Sequence[str], environment: Mapping[str, str], stderr: int, *, own_group: bool
) -> tuple[int, int, socket.socket]:
    """Order a process. Return its id, the read end of its output, and the socket that tells its exit code."""
    global _forking  # noqa: PLW0603 - one for each process of the tests
    order = {
        "arguments": list(arguments),
        "environment": dict(environment),
        "folder": os.getcwd(),
        "own_group": own_group,
    }
    read_end, write_end = os.pipe()
    status, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with _forking_lock:
        if _forking is None:
            _forking = _start_forking()
        connection = _forking[1]
        socket.send_fds(connection, [json.dumps(order).encode()], [write_end, stderr, other.fileno()])
        os.close(write_end)
        other.close()
        return int(connection.recv(64)), read_end, status


def _start_forking() -> tuple[subprocess.Popen[bytes], socket.socket]:
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * _ORDER_BYTES)
    code = f"import sys; sys.path.append({str(_ROOT)!r}); import {__name__} as m; m.serve_orders({other.fileno()})"
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-P", "-c", code]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, pass_fds=[other.fileno()])
    other.close()
    return process, own


def serve_orders(descriptor: int) -> None:
    """Fork a process for each order until there are no more. Also the work of each forked process ends here."""
    connection = socket.socket(fileno=descriptor)
    _import_all()
    wake_read, wake_write = socket.socketpair()
    wake_write.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write.fileno())
    running: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        selector.register(wake_read, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if wake_read in ready:
                wake_read.recv(4096)
                _report_ended(running)
            if connection not in ready:
                continue
            text, descriptors, _, _ = socket.recv_fds(connection, _ORDER_BYTES, 3)
            if not text:
                return
            stdout, stderr, status = descriptors
            running[pid := os.fork()] = socket.socket(fileno=status)
            if pid == 0:
                break
            connection.send(str(pid).encode())
            os.close(stdout)
            os.close(stderr)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for own in (connection, wake_read, wake_write, *running.values()):
        own.close()
    _run(json.loads(text), stdout, stderr)


def _report_ended(running: dict[int, socket.socket]) -> None:
    """Tell the exit codes of the processes that have ended."""
    for pid, status in tuple(running.items()):
        ended, code = os.waitpid(pid, os.WNOHANG)
        if ended:
            with suppress(OSError):  # the other side no longer asks
                status.send(str(os.waitstatus_to_exitcode(code)).encode())
            running.pop(pid).close()


def _import_all() -> None:
    """Import what a service imports, in one thread, as the template of a service does."""
    for name in _MODULES:
        importlib.import_module(name)
    importlib.import_module("nnhal_driver.backends.registry").import_engines()
    sys.path.remove(str(_ROOT))
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads cannot be forked"
    gc.collect()
    gc.freeze()


def _run(order: dict[str, Any], stdout: int, stderr: int) -> None:
    """Run the command line in this process, which is its own."""
    if order["own_group"]:
        os.setpgid(0, 0)
    for source, standard in ((stdout, 1), (stderr, 2)):
        os.dup2(source, standard)
        os.close(source)
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=True)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv[:] = ["nnhal", *order["arguments"]]
    runpy.run_module("nnhal_tools.cli", run_name="__main__", alter_sys=True)
