"""Cluster of Ray on this machine, for trying things out: a head, and hosts that share the machine.

`python -m nnhal_fleet.ray_cluster.local_cluster FILE HOSTS` runs one until SIGTERM, and writes its address to the file.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from nnhal_fleet.ray_cluster.options import HOST_RESOURCE, RAY_SETTINGS

_STORE_BYTES = 80 * 2**20
"""Size of the object store of a node. Fleets do not use it; Ray needs one."""


class LocalCluster:
    """Head and hosts. Close it when done.

    Args:
        hosts: number of hosts.
    """

    def __init__(self, hosts: int) -> None:
        self._folder = tempfile.mkdtemp(prefix="nnhal-ray-")
        os.environ.update({name: value for name, value in RAY_SETTINGS.items() if name not in os.environ})
        os.environ["RAY_TMPDIR"] = self._folder
        from ray.cluster_utils import Cluster  # noqa: PLC0415 - it reads the environment

        self._started = 0
        head = {
            "num_cpus": 0,
            "object_store_memory": _STORE_BYTES,
            "include_dashboard": False,
            "node_name": "head",
        }
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head, shutdown_at_exit=True)
        try:
            for _ in range(hosts):
                self.add_host()
        except BaseException:
            self.close()
            raise
        self.address: str = self._cluster.address

    def add_host(self) -> Any:
        """Start another host, and return its node."""
        self._started += 1
        return self._cluster.add_node(
            num_cpus=1,
            object_store_memory=_STORE_BYTES,
            resources={HOST_RESOURCE: 1},
            node_name=f"host-{self._started}",
        )

    def remove_host(self, node: Any) -> None:
        """End the processes of a host that are left."""
        self._cluster.remove_node(node, allow_graceful=False)

    def kill_head(self) -> None:
        """Kill the server of the head that knows the cluster. It does not come back."""
        self._cluster.head_node.kill_gcs_server(check_alive=False)

    def close(self) -> None:
        """End all processes."""
        self._cluster.shutdown()
        shutil.rmtree(self._folder, ignore_errors=True)


def main(file: Path, hosts: int) -> None:
    """Run a cluster until SIGTERM or SIGINT."""
    cluster = LocalCluster(hosts)
    for number in (signal.SIGTERM, signal.SIGINT):  # not blocked: the processes of Ray would inherit that
        signal.signal(number, _end)
    try:
        new = file.with_suffix(".new")
        new.write_text(json.dumps({"pid": os.getpid(), "address": cluster.address}))
        new.replace(file)
        while True:
            signal.pause()
    finally:
        with suppress(FileNotFoundError):
            file.unlink()
        cluster.close()


def _end(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
