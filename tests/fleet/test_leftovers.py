"""Search for what a fleet has left behind."""

import os
import socket
import subprocess
from pathlib import Path

from tests.benchmark.fleet.leftovers import MARK, leftovers
from tests.concurrency import wait_until


def test_processes_memfds_and_sockets_are_found(tmp_path: Path) -> None:
    before = set(leftovers(tmp_path))  # memfds that other tests have opened in this process

    def new() -> list[str]:
        return [text for text in leftovers(tmp_path) if text not in before]

    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={**os.environ, MARK: str(tmp_path)}) as process:
        # the command line of a new program is empty for a moment
        assert wait_until(lambda: new() == [f"process {process.pid}, 0 memfds: cat "]), new()
    memfd = os.memfd_create("nnhal-leftover")
    try:
        (found,) = new()
        assert "memfd:nnhal-leftover" in found
    finally:
        os.close(memfd)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        assert new() == [f"socket {tmp_path}/s"]
    assert new() == []
