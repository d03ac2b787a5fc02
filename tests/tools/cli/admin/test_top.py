"""`nnhal top`: its screens, and its keys in a terminal."""

import fcntl
import io
import json
import os
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from nnhal.admin.plain import to_plain
from nnhal.admin.v1.admin_pb2 import (
    BackendSnapshot,
    CacheSnapshot,
    DeviceSnapshot,
    LoadSnapshot,
    ModelSnapshot,
    ServiceSnapshot,
    SessionSnapshot,
    WarningSnapshot,
    WorkerSnapshot,
)
from nnhal_tools.cli.admin.screen import SORTS, Rates, rates_between, render_screen
from tests.end_to_end.support.service_process import Service
from tests.tools.cli.command import PROGRAM, invoke

BOUNDS = (0.001, 0.01, 0.1)
NOTHING = Rates(None, None, None, None, {})


def load(executions: int, durations: tuple[int, ...] = (0, 0, 0, 0)) -> LoadSnapshot:
    return LoadSnapshot(
        running=2,
        queued=1,
        preparing=0,
        executions=executions,
        rejected=0,
        bounds_s=BOUNDS,
        durations=durations,
        waits=(0, 0, 0, 0),
    )


def model(number: int, uses: int, memory: int, longest_s: float) -> ModelSnapshot:
    id_ = f"0.1.s1.{number}"
    return ModelSnapshot(
        id=id_,
        session="0.1.s1",
        worker=0,
        identity="token:alice",
        name=f"s1.{number}",
        digest="ab" * 32,
        backends=("CpuAcc",),
        priority="MEDIUM",
        prepared_at=10.0 + number,
        uses=uses,
        memory_bytes=memory,
        best_s=0.001,
        longest_s=longest_s,
    )


def snapshot(
    at: float = 100.0, sessions: int = 2, models: int = 2, *, work: LoadSnapshot | None = None
) -> dict[str, Any]:
    client = "a long name [red] \x1b[31m"
    return to_plain(
        ServiceSnapshot(
            at=at,
            version="1.0",
            state="serving",
            pid=1234,
            started_at=at - 4000,
            addresses=("127.0.0.1:50051", "unix:/run/nnhal/socket"),
            log_level="INFO",
            load=work or load(10),
            devices=(
                DeviceSnapshot(
                    name="nnhal",
                    type="CPU",
                    version="v",
                    extensions=(),
                    backends=(BackendSnapshot(id="CpuAcc", state="ready"), BackendSnapshot(id="Npu", state="failed")),
                ),
            ),
            workers=(
                WorkerSnapshot(slot=0, generation=1, pid=1235, state="serving", started_at=at - 4000),
                WorkerSnapshot(slot=1, generation=2, pid=1236, state="drained", started_at=at - 10),
            ),
            sessions=tuple(
                SessionSnapshot(
                    id=f"0.1.s{n}",
                    worker=0,
                    name=f"s{n}",
                    identity="token:alice",
                    client=client,
                    peer="ipv4:127.0.0.1:9",
                    opened_at=at - n,
                    connected=True,
                    calls=n,
                    memory_bytes=2**20,
                    models=1,
                    objects=3,
                )
                for n in range(sessions)
            ),
            models=tuple(model(n, n * 10, (models - n) << 20, 0.5 / (n + 1)) for n in range(models)),
            cache=CacheSnapshot(directory="/cache"),
            quarantine=(),
            warnings=(
                WarningSnapshot(at=at, level="WARNING", event="sandbox-incomplete", text="missing=" + "x" * 200),
            ),
        )
    )


def screen(
    state: dict[str, Any], width: int = 80, height: int | None = 24, rates: Rates = NOTHING, sort: str = "calls"
) -> list[str]:
    console = Console(width=width, height=height or 100, record=True, markup=False, file=io.StringIO(), highlight=False)
    console.print(render_screen(state, rates, sort, height=height, note="q quit"))
    return console.export_text().splitlines()


def test_screen_fits_a_small_terminal() -> None:
    lines = screen(snapshot(sessions=50, models=50))
    assert len(lines) == 24 and max(map(len, lines)) <= 80
    assert lines[-1] == "q quit" and lines[-2].startswith("WARNING sandbox-incomplete")
    assert any(re.match(r"MODEL \d+/50 ", line) for line in lines)
    assert any(re.match(r"SESSION \d+/50 ", line) for line in lines)


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("height", [8, 24, 60])
def test_screen_never_exceeds_the_terminal(width: int, height: int) -> None:
    lines = screen(snapshot(sessions=50, models=50), width, height)
    assert len(lines) <= height + 2 and max(map(len, lines)) <= width


def test_screen_has_everything_if_there_is_room() -> None:
    text = "\n".join(screen(snapshot(), 160, None))
    for part in (
        "serving",
        "up 1 h 6 min",
        "CpuAcc, Npu failed",
        "drained",
        "0.1.s1.1",
        "token:alice",
        "long name [red] \N{REPLACEMENT CHARACTER}[31m",
    ):
        assert part in text, part


@pytest.mark.parametrize("is_compared", [False, True])
def test_names_and_drift_are_beside_the_digest(is_compared: bool) -> None:
    state = snapshot(models=3)
    assert "NAME" not in "\n".join(screen(state)) and "DRIFT" not in "\n".join(screen(state))
    state["models"][1].update(model_name="detector/3", shadow_compared=80 * is_compared, shadow_different=2)
    state["models"][2].update(model_name=f"{'long' * 60}\u05d0/12", backends=["CpuAcc", "CpuRef"])
    lines = screen(state)
    (row,) = (line for line in lines if "0.1.s1.1" in line)
    assert re.match(r"0\.1\.s1\.1 +abababab detector/3 +CpuAcc", row) and max(map(len, lines)) <= 80
    assert ("2.5%" in row) == is_compared and "\u05d0" not in "\n".join(lines)


def order(sort: str, rates: Rates = NOTHING) -> list[str]:
    lines = screen(snapshot(models=3), 160, None, rates, sort)
    return [match[0] for line in lines if (match := re.match(r"0\.1\.s1\.\d", line))]


def test_models_are_sorted() -> None:
    assert set(SORTS) == {"calls", "memory", "latency", "age"}
    assert order("calls") == ["0.1.s1.2", "0.1.s1.1", "0.1.s1.0"]
    assert order("calls", Rates(1, 0, None, None, {"0.1.s1.1": 5.0}))[0] == "0.1.s1.1"
    assert order("memory") == order("latency") == order("age") == ["0.1.s1.0", "0.1.s1.1", "0.1.s1.2"]


def test_rates_are_those_since_the_last_snapshot() -> None:
    before = snapshot(100.0, work=load(10, (10, 0, 0, 0)))
    after = snapshot(102.0, work=load(30, (10, 20, 0, 0)))
    after["models"][0]["uses"] += 6
    rates = rates_between(before, after)
    assert rates.executions_s == 10 and rates.uses_s["0.1.s1.0"] == 3
    assert (rates.p50_s, rates.p99_s) == pytest.approx((0.0055, 0.00991))
    assert rates_between(None, before).executions_s is None
    assert rates_between(after, snapshot(103.0, work=load(0))).executions_s == 0  # the service was started again


@pytest.mark.slow
def test_output_for_scripts(service: Service, folder: Path) -> None:
    result = invoke("top", "--json", "--state-dir", folder / "state")
    assert json.loads(result.stdout)["pid"] == service.process.pid
    text = invoke("top", "--interval", 0.1, "--state-dir", folder / "state").stdout  # not a terminal
    assert "\x1b" not in text and "WORKER" in text
    assert invoke("top", "--once", "--interval", 0, "--state-dir", folder / "state").stdout.count("WORKER") == 1


class Terminal:
    """A terminal of 80 columns and 24 lines with `nnhal top` in it."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._descriptor, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        command = [*PROGRAM, "top", "--interval", "0.2", "--state-dir", str(folder / "state")]
        # not pty.fork: gRPC's threads are missing in a fork of this process, which may abort it
        self._process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env={**os.environ, "TERM": kind}, start_new_session=True
        )
        os.close(slave)

    def press(self, key: str) -> None:
        os.write(self._descriptor, key.encode())

    def wait_for(self, is_there: Callable[[str], object]) -> None:
        """Read until the output since the last call meets a condition."""
        read, end = "", time.monotonic() + 60
        while not is_there(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", read)):
            assert time.monotonic() < end, read
            if select.select([self._descriptor], [], [], 1)[0]:
                data = self._read()
                assert data, f"the command ended with exit code {self._process.wait()}: {read}"
                read += data.decode("utf-8", "replace")

    def _read(self) -> bytes:
        try:
            return os.read(self._descriptor, 65536)
        except OSError:  # the terminal of a process that has ended
            return b""

    def end(self) -> int:
        """Return the exit code of the command, which has been told to end."""
        while self._read():
            pass
        os.close(self._descriptor)
        return self._process.wait()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["xterm-256color", "vt100"])
def test_keys(service: Service, folder: Path, kind: str) -> None:
    terminal = Terminal(folder, kind)
    terminal.wait_for(lambda text: "RATE*" in text and "q quit" in text)
    terminal.press("m")
    terminal.wait_for(lambda text: "MEMORY*" in text)
    terminal.press("p")
    terminal.wait_for(lambda text: "paused" in text)
    terminal.press("q")
    assert terminal.end() == 0
