"""Options of a fleet, and the names of its parts in the cluster."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from nnhal_fleet.scaling import ScalingRules

NAMESPACE = "nnhal"
"""Namespace of the actors of a fleet."""
CONTROLLER = "nnhal-fleet"
"""Name of the actor that has the registry."""
HOST_RESOURCE = "nnhal"
"""Custom resource of the nodes that shall have a service. If no node has it, all have one."""
MEMBERS_KEY = b"members"
"""Key of the addresses of the members in the store of the cluster."""

RAY_SETTINGS = {
    "RAY_gcs_rpc_server_reconnect_timeout_s": "600",  # services outlive Ray's head for ten minutes, not for one
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_worker_niceness": "0",  # by default, Ray's actors, and so the services, yield to all other programs
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Environment of the processes of Ray. With the settings of the health check, a dead host is noticed in two seconds."""


def host_actor(node: str) -> str:
    """Return the name of the actor of a node."""
    return f"{CONTROLLER}-host-{node}"


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """Options of all members of a fleet.

    Attributes:
        listen: address for each service: HOST:PORT, or :PORT for a port of the address that Ray knows the host by.
        folder: folder for the files of services; each has one in it.
        serve: further options of `nnhal serve`.
        min_hosts: least number of hosts of a fleet that asks Ray for hosts; 0 if it uses those of the cluster.
        shrink_after_s: seconds for which fewer hosts must have been enough before some are given back.
    """

    listen: str = ":50051"
    folder: str = ""
    serve: tuple[str, ...] = ()
    min_hosts: int = 0
    max_hosts: int = 0
    shrink_after_s: float = 120.0

    @property
    def scaling(self) -> ScalingRules | None:
        """Limits of a fleet that asks Ray for hosts."""
        return ScalingRules(self.min_hosts, self.max_hosts, self.shrink_after_s) if self.max_hosts else None

    def to_plain(self) -> dict[str, Any]:
        """Return the options as plain values."""
        return asdict(self)

    @staticmethod
    def from_plain(values: Mapping[str, Any]) -> "FleetOptions":
        """Return the options with some values."""
        return FleetOptions(**{**values, "serve": tuple(values["serve"])})


def member_id(name: str, node: str) -> str:
    """Return the id of the member on a node: readable, and different from those of nodes with the same name."""
    return f"{name}-{hashlib.sha256(node.encode()).hexdigest()[:6]}"
