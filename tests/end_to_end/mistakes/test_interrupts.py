"""Ctrl-C: every command prints one line, with exit code 130, and a program or a notebook that catches it can go on.

A terminal sends SIGINT to the whole group of processes, and so do these tests, as soon as the command waits for
something: a server that does not answer, an empty pipe, or a service that runs a model.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from nnhal_tools.demo.digits import MODEL
from tests.concurrency import TIMEOUT_S, wait_until
from tests.end_to_end.support.service_process import start_service, stop_service
from tests.tools.cli.command import invoke

PROGRAM = [sys.executable, "-P", "-m", "nnhal"]
Started = subprocess.Popen[str]
INTERRUPTED = "nnhal: interrupted\n"

PLUGIN = """
import time
open({marker!r}, "w").close()
while True:
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """Let commands handle SIGINT, which jobs in the background ignore, also in their own processes."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def start(arguments: Sequence[object], folder: Path, **environment: str) -> Started:
    """Start a command in a process group of its own, as a shell does."""
    return subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "HOME": str(folder), "NNHAL_CACHE_DIR": str(folder / "cache"), **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )


def children(pid: int) -> set[int]:
    """Return the child processes of a process."""
    return {int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()}


def interrupt(process: Started, ready: Callable[[], object]) -> tuple[int, str, str]:
    """Wait until a command is ready, and press Ctrl-C. Return its exit code and its output."""
    with process:
        try:
            assert wait_until(ready), "the command did not get as far"
            assert process.poll() is None
            started = children(process.pid)
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    assert wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in started))
    return process.returncode, out, err


@pytest.fixture
def silent() -> Iterator[tuple[str, threading.Event]]:
    """Yield the address of a server that never answers, and an event that a request sets."""
    requested = threading.Event()
    connections: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                connections.append(server.accept()[0])
            except OSError:
                return
            threading.Thread(target=receive, args=(connections[-1],), daemon=True).start()

    def receive(connection: socket.socket) -> None:
        if connection.recv(1):
            requested.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=accept)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", requested
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("command", [["info"], ["run", MODEL], ["explain", MODEL], ["backends"], ["conformance"]])
def test_interrupt_while_connecting(command: list[object], silent: tuple[str, threading.Event], tmp_path: Path) -> None:
    target, requested = silent
    process = start([*command, "--target", target], tmp_path)
    assert interrupt(process, requested.is_set) == (130, "", INTERRUPTED)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["info"], ["compare", MODEL], ["demo"], ["conformance", "--self-test"]], ids=lambda command: command[0]
)
def test_interrupt_while_a_service_starts(command: list[object], tmp_path: Path) -> None:
    process = start(command, tmp_path)
    assert interrupt(process, lambda: children(process.pid)) == (130, "", INTERRUPTED)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["run", "conformance"])
def test_interrupt_while_the_device_works(command: str, tmp_path: Path) -> None:
    service = start_service(tmp_path, "--log-level", "debug")
    options = ["run", MODEL, "--repeat", 10**9] if command == "run" else ["conformance", "--suite", "generated"]
    try:
        process = start([*options, "--target", service.target], tmp_path)
        code, _, err = interrupt(process, lambda: service.logged("prepared"))
        assert (code, err) == (130, INTERRUPTED)
        assert invoke("info", "--target", service.target).exit_code == 0
    finally:
        assert stop_service(service) == 0


@pytest.mark.slow
def test_interrupt_of_a_load_test(tmp_path: Path) -> None:
    """The clients are processes of their own, and end quietly with the command."""
    service = start_service(tmp_path, "--log-level", "debug")
    try:
        options = ["--target", service.target, "--concurrency", 2, "--duration", 600]
        process = start(["bench", MODEL, *options], tmp_path)
        code, _, err = interrupt(process, lambda: service.log.read_text().count("prepared") >= 2)
        assert (code, err) == (130, INTERRUPTED)
    finally:
        assert stop_service(service) == 0


@pytest.mark.slow
def test_interrupt_of_a_service(tmp_path: Path) -> None:
    process = start(["serve", "--listen", "127.0.0.1:0", "--log-level", "error"], tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("listening on")
    assert interrupt(process, lambda: True) == (0, "", "")


def test_interrupt_of_an_examination(tmp_path: Path) -> None:
    plugin, marker = tmp_path / "Acme_Npu_backend.py", tmp_path / "marker"
    plugin.write_text(PLUGIN.format(marker=str(marker)))
    process = start(["backends", "doctor", plugin], tmp_path)
    code, _, err = interrupt(process, marker.exists)
    assert (code, err) == (130, INTERRUPTED)


def test_interrupt_of_an_import(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.tar"
    os.mkfifo(pipe)
    process = start(["cache", "import", pipe], tmp_path)
    writer = os.open(pipe, os.O_WRONLY)  # waits until the command opens it
    try:
        assert interrupt(process, lambda: True) == (130, "", INTERRUPTED)
    finally:
        os.close(writer)


def test_interrupt_while_packages_are_imported(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    (tmp_path / "typer.py").write_text(PLUGIN.format(marker=str(marker)))
    process = start(["info"], tmp_path, PYTHONPATH=str(tmp_path))
    assert interrupt(process, marker.exists) == (130, "", INTERRUPTED)


@pytest.mark.parametrize(
    ("command", "work"),
    [
        (["cache", "list"], "nnhal_cache.store.Store.list"),
        (["cache", "clear"], "nnhal_cache.store.Store.clear"),
        (["cache", "verify"], "nnhal_cache.verify.verify_entries"),
        (["cache", "export", "all.tar"], "nnhal_cache.archive.export_entries"),
        (["new-backend", "Acme", "Npu"], "subprocess.run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_interrupt_of_a_short_command(
    command: list[str], work: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """These end before a signal could be sent, so that the work itself is interrupted."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(work, interrupted)
    result = invoke(*command, NNHAL_CACHE_DIR=str(tmp_path / "cache"))
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", INTERRUPTED)


SETUP = f"""
import numpy as np, nnhal
device = nnhal.connect()
prepared = device.prepare({str(MODEL)!r}).result()
image = np.zeros((1, 8, 8, 1), np.float32)
execution = prepared.reusable([image])
burst = prepared.burst()
"""
LOOP = """
try:
    print("running", flush=True)
    while True:
        {call}
except KeyboardInterrupt:  # IPython cannot format some tracebacks of interrupts
    print("interrupted")
"""
AFTERWARDS = f"""
assert prepared.execute([image])[0].shape == (1, 10)
assert device.prepare({str(MODEL)!r}).result().inputs[0].name == "image"
"""
AFTER_A_BURST = """
try:
    burst.execute([image])
except nnhal.HalError as error:
    print(error)
burst = prepared.burst()
assert burst.execute([image])[0].shape == (1, 10)
"""


def run_cell(client: Any, code: str, on_output: Callable[[], object] = lambda: None) -> tuple[str, str]:
    """Run a cell of a notebook. Return the name of its exception, and what it prints.

    Args:
        client: the client of the kernel.
        code: the cell.
        on_output: called when the cell has printed its first line.
    """
    name, output = "", ""

    def receive(message: dict[str, Any]) -> None:
        nonlocal name, output
        if message["msg_type"] == "stream":
            begun = "\n" in output
            output += message["content"]["text"]  # a line may come in several messages
            if not begun and "\n" in output:
                on_output()
        elif message["msg_type"] == "error":
            name = message["content"]["ename"]

    client.execute_interactive(code, output_hook=receive, timeout=TIMEOUT_S)
    return name, output


@pytest.fixture
def kernel() -> Iterator[tuple[KernelManager, Any]]:
    """Yield the kernel of a notebook and its client."""
    manager = KernelManager()
    manager.start_kernel()
    client = manager.blocking_client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=TIMEOUT_S)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.mark.slow
def test_interrupt_of_a_notebook(kernel: tuple[KernelManager, Any]) -> None:
    """The kernel goes on, and so does the service that it has started."""
    manager, client = kernel
    assert run_cell(client, SETUP) == ("", "")
    for call in ("prepared.execute([image])", "execution.run()", "burst.execute([image])"):
        interrupted = run_cell(client, LOOP.format(call=call), manager.interrupt_kernel)
        assert interrupted == ("", "running\ninterrupted\n")
        assert run_cell(client, AFTERWARDS) == ("", "")
    message = "GENERAL_FAILURE: an interrupt has closed the burst; open a new one\n"
    assert run_cell(client, AFTER_A_BURST) in [("", message), ("", "")]
    assert run_cell(client, "device.close()") == ("", "")
