"""Clusters of Ray on this machine that `nnhal fleet up` starts for trying things out, and their file."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nnhal_tools.cli.errors import FAILED, CommandError
from nnhal_tools.cli.services.service_settings import service_settings

_START_TIMEOUT_S = 180.0
_STOP_TIMEOUT_S = 60.0
_POLL_S = 0.1
_PROGRAM = "nnhal_fleet.ray_cluster.local_cluster"


@dataclass(frozen=True, slots=True)
class LocalClusterFile:
    """File that names the cluster of this user."""

    path: Path

    @staticmethod
    def of(state_dir: Path | None) -> "LocalClusterFile":
        """Return the file in a state directory."""
        return LocalClusterFile(service_settings(state_dir=state_dir).state_dir / "fleet" / "cluster.json")

    def read(self) -> tuple[int, str] | None:
        """Return the process and the address of the cluster that runs; None if none does."""
        with suppress(OSError, ValueError, KeyError):
            entry = json.loads(self.path.read_text("utf-8"))
            os.kill(entry["pid"], 0)
            return entry["pid"], entry["address"]
        return None


def start_cluster(file: LocalClusterFile, hosts: int, max_hosts: int = 0) -> str:
    """Start a cluster in the background, and return its address.

    `max_hosts` is the number of further hosts that its autoscaler may start; 0 for a cluster without one.

    Raises:
        CommandError: one runs already, or it does not start.
    """
    if (running := file.read()) is not None:
        raise CommandError(f"a cluster runs at {running[1]}; `nnhal fleet down` ends it", FAILED)
    file.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file.path.unlink(missing_ok=True)
    log = file.path.with_suffix(".log")
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", _PROGRAM, str(file.path), str(hosts), str(max_hosts)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    end = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < end and process.poll() is None:
        if (running := file.read()) is not None:
            return running[1]
        time.sleep(_POLL_S)
    process.terminate()
    process.wait()
    raise CommandError(f"the cluster did not start; see {log}", FAILED)


def stop_cluster(file: LocalClusterFile) -> None:
    """End the cluster, if one runs.

    Raises:
        CommandError: it does not end.
    """
    if (running := file.read()) is None:
        return
    pid, _ = running
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + _STOP_TIMEOUT_S
    while time.monotonic() < end:
        if not Path(f"/proc/{pid}").exists():
            return
        time.sleep(_POLL_S)
    raise CommandError(f"the cluster (process {pid}) does not end", FAILED)
