"""Actor of a host: the agent of the host, as Ray starts it there."""

import os
import socket
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray

from nnhal_fleet.agent import FleetError, HostAgent, Orders
from nnhal_fleet.ray_cluster.options import CONTROLLER, NAMESPACE, FleetOptions
from nnhal_service.peers.fleet.member import Member

_TIMEOUT_S = 2.0
"""Seconds to wait for the registry."""


class RayLink:
    """Connection of an agent to the registry, which is an actor: see `nnhal_fleet.agent.FleetLink`."""

    def __init__(self) -> None:
        self._controller: Any = None

    def report(self, member: Member) -> Orders:
        """Report on a member."""
        answer = self._call("report", member.to_plain())
        members = tuple(map(Member.from_plain, answer["members"]))
        return Orders(members, answer["drained"], answer["refusal"], answer["interval_s"])

    def leave(self, id_: str) -> None:
        """Tell that the service of a member has ended."""
        self._call("leave", id_)

    def _call(self, method: str, argument: object) -> Any:
        """Call a method of the registry."""
        try:
            if self._controller is None:
                self._controller = ray.get_actor(CONTROLLER, NAMESPACE)
            return ray.get(getattr(self._controller, method).remote(argument), timeout=_TIMEOUT_S)
        except (ray.exceptions.RayError, ValueError) as error:
            raise FleetError(f"{method}: {type(error).__name__}: {str(error).splitlines()[0]}") from None


class HostActor:
    """Actor of one host. Ray starts it again when its process ends, and the kernel ends the service with it.

    Args:
        options: plain values of the options of the fleet.
    """

    def __init__(self, id_: str, accelerators: Sequence[str], options: Mapping[str, Any]) -> None:
        given = FleetOptions.from_plain(options)
        host, _, port = given.listen.rpartition(":")
        member = Member(id_, socket.gethostname(), "", accelerators=tuple(accelerators))
        folder = Path(given.folder).expanduser() / id_
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        listen = f"{host or ray.util.get_node_ip_address()}:{port}"
        own = ["--state-dir", str(folder / "state"), "--cache-dir", str(folder / "cache")]
        self._agent = HostAgent(member, listen, folder, RayLink(), [*own, *given.serve])
        self._agent.start()
        self._stopped = threading.Event()

    def state(self) -> dict[str, Any]:
        """Return the processes of the host, and the number of starts of the service."""
        return {"actor": os.getpid(), "service": self._agent.service_pid, "generation": self._agent.generation}

    def restart(self) -> None:
        """Have the service end in order, and start another one."""
        self._agent.restart()

    def stop(self) -> None:
        """End the service in order. The caller ends the actor then."""
        self._agent.stop()
