"""Cluster of Ray on this machine, for trying things out: a head, and hosts that share the machine.

`python -m nnhal_fleet.ray_cluster.local_cluster FILE HOSTS MAX_HOSTS` runs one until SIGTERM, and writes its address to
the file.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from nnhal_fleet.ray_cluster.options import HOST_RESOURCE, RAY_SETTINGS

_STORE_BYTES = 80 * 2**20
"""Size of the object store of a node. Fleets do not use it; Ray needs one."""


_FAKE_HEAD = "f" * 51 + "00000"
"""Id that Ray's fake provider of hosts expects the head to have."""
_FAKE_SETTINGS = {
    "RAY_enable_autoscaler_v2": "1",
    "RAY_FAKE_CLUSTER": "1",
    "RAY_CLOUD_INSTANCE_ID": _FAKE_HEAD,
    "RAY_OVERRIDE_NODE_ID_FOR_TESTING": _FAKE_HEAD,
    "RAY_NODE_TYPE_NAME": "ray.head.default",
    "AUTOSCALER_UPDATE_INTERVAL_S": "1",
}
_COMMANDS = (
    *("setup_commands", "head_setup_commands", "worker_setup_commands", "initialization_commands"),
    *("head_start_ray_commands", "worker_start_ray_commands", "cluster_synced_files"),
)
"""Parts of the configuration of an autoscaler without which it does not start."""
_IDLE_MINUTES = 0.05
"""Time after which Ray's autoscaler ends a host without a service."""


class LocalCluster:
    """Head and hosts. Close it when done.

    Args:
        max_hosts: number of hosts that Ray's autoscaler may start; 0 to start none of them.
    """

    def __init__(self, hosts: int, max_hosts: int = 0) -> None:
        self._folder = tempfile.mkdtemp(prefix="nnhal-ray-")
        settings = {**RAY_SETTINGS, **(_FAKE_SETTINGS if max_hosts else {})}
        os.environ.update({name: value for name, value in settings.items() if name not in os.environ})
        os.environ["RAY_TMPDIR"] = self._folder
        from ray.cluster_utils import Cluster  # noqa: PLC0415 - it reads the environment

        self._started = 0
        head = {
            "num_cpus": 0,
            "object_store_memory": _STORE_BYTES,
            "include_dashboard": False,
            "node_name": "head",
            "no_monitor": True,
        }
        self._cluster: Any = Cluster(initialize_head=True, head_node_args=head, shutdown_at_exit=True)
        try:
            if max_hosts:
                self._start_autoscaler(max_hosts)
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

    def _start_autoscaler(self, max_hosts: int) -> None:
        """Start Ray's autoscaler with its fake provider, which starts hosts on this machine."""
        file = Path(self._folder, "autoscaler.json")
        file.write_text(json.dumps(_autoscaling(self._cluster.address, max_hosts)))
        head = self._cluster.head_node
        head._ray_params.autoscaling_config = str(file)
        head.start_monitor()

    def _end_autoscaler(self) -> None:
        """End the autoscaler and the hosts that it has started, which Ray would leave alone."""
        monitors = self._cluster.head_node.all_processes.get("monitor", [])
        hosts: list[int] = []
        for monitor in monitors:
            monitor.process.send_signal(signal.SIGSTOP)  # it starts no more hosts
            hosts += descendants(monitor.process.pid)
            monitor.process.kill()
        self._cluster.head_node.kill_monitor(check_alive=False)
        _kill(hosts)

    def close(self) -> None:
        """End all processes."""
        if "monitor" in self._cluster.head_node.all_processes:
            self._end_autoscaler()
        raylets = [each for node in self._cluster.list_all_nodes() for each in node.all_processes.get("raylet", ())]
        agents = [pid for raylet in raylets for pid in descendants(raylet.process.pid)]
        self._cluster.shutdown()
        _kill(agents)  # without the server of the head, they would take a minute to end
        shutil.rmtree(self._folder, ignore_errors=True)


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """Return the processes below a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


def _autoscaling(address: str, max_hosts: int) -> dict[str, Any]:
    """Return the configuration of Ray's autoscaler, with its fake provider of hosts."""
    host = {"CPU": 1, HOST_RESOURCE: 1, "object_store_memory": _STORE_BYTES}
    return {
        "cluster_name": "nnhal",
        "max_workers": max_hosts,
        "idle_timeout_minutes": _IDLE_MINUTES,
        # "fake_multinode" needs a file that Ray's wheel lacks
        "provider": {
            "type": "external",
            "module": "ray.autoscaler._private.fake_multi_node.node_provider.FakeMultiNodeProvider",
            "launch_multiple": True,
            "head_node_id": _FAKE_HEAD,
            "gcs_address": address,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "host": {"resources": host, "node_config": {}, "min_workers": 0, "max_workers": max_hosts},
        },
        "head_node_type": "ray.head.default",
        **dict.fromkeys(_COMMANDS, ()),
    }


def main(file: Path, hosts: int, max_hosts: int) -> None:
    """Run a cluster until SIGTERM or SIGINT."""
    cluster = LocalCluster(hosts, max_hosts)
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
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
