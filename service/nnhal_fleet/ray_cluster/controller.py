"""Actor with the registry of a fleet: it starts an actor on each host, and knows the members."""

import json
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ray
from ray.autoscaler.sdk import request_resources
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from nnhal_fleet.host_scaler import HostScaler
from nnhal_fleet.ray_cluster.host_actor import HostActor
from nnhal_fleet.ray_cluster.options import (
    HOST_RESOURCE,
    MEMBERS_KEY,
    NAMESPACE,
    FleetOptions,
    host_actor,
    member_id,
)
from nnhal_fleet.registry import MemberRegistry, report_interval_s
from nnhal_service.peers.fleet.member import Member

_log = logging.getLogger(__name__)
_STEP_S = 0.5
_STANDARD = ("CPU", "memory", "object_store_memory", HOST_RESOURCE)
_STOP_TIMEOUT_S = 60.0


@dataclass(slots=True)
class _Host:
    """A node with a service.

    Attributes:
        stopping: the call that ends its service, or None.
    """

    member: str
    actor: Any
    stopping: Any = None


class FleetController:
    """Actor of a fleet. Ray starts it again when its process ends; the members then report again.

    Args:
        options: plain values of the options of the fleet.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = dict(options)
        self._registry = MemberRegistry()
        self._drained: set[str] = set()
        self._hosts: dict[str, _Host] = {}
        rules = FleetOptions.from_plain(options).scaling
        self._scaler = HostScaler(rules, len(_running_hosts()), _ask_for_hosts) if rules is not None else None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nnhal-fleet", daemon=True)
        self._thread.start()

    # ---- For agents -------------------------------------------------------------------------------------

    def report(self, member: Mapping[str, Any]) -> dict[str, Any]:
        """Take the report of a member, and return the members that it shall know, and whether it shall drain."""
        reported = Member.from_plain(member)
        self._registry.report(reported)
        members = [each.to_plain() for each in self._registry.members_for(reported.id)]
        interval_s = report_interval_s(len(self._registry.members()))
        scaler = self._scaler
        drained = reported.id in self._drained or (scaler is not None and reported.id in scaler.leaving)
        refusal = scaler.refusal if scaler is not None else ""
        return {"members": members, "drained": drained, "refusal": refusal, "interval_s": interval_s}

    def leave(self, id_: str) -> None:
        """Forget a member whose service has ended."""
        self._registry.remove(id_)

    # ---- For operators ----------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return the members, the ids of all hosts of the cluster that have an actor, and what decides their number."""
        members = [each.to_plain() for each in self._registry.members()]
        scaling = self._scaler.to_plain() if self._scaler is not None else None
        return {"members": members, "hosts": sorted(self._ids()), "scaling": scaling}

    def set_drained(self, ids: Sequence[str], drained: bool) -> None:
        """Have the services of members take no sessions, or take sessions again."""
        (self._drained.update if drained else self._drained.difference_update)(ids)

    def restart(self, id_: str) -> None:
        """Replace the service of a member in order."""
        ray.get(self._host(id_).restart.remote())

    def host_state(self, id_: str) -> dict[str, Any]:
        """Return the processes of a host."""
        state: dict[str, Any] = ray.get(self._host(id_).state.remote())
        return state

    def stop(self) -> None:
        """End all services in order, and their actors."""
        self._stopping.set()
        self._thread.join()
        if self._scaler is not None:
            _ask_for_hosts(0)
        handles = [host.actor for host in self._hosts.values()]
        with suppress(ray.exceptions.RayError):
            ray.get([handle.stop.remote() for handle in handles], timeout=_STOP_TIMEOUT_S)
        for handle in handles:
            ray.kill(handle)
        self._publish(())

    def _host(self, id_: str) -> Any:
        """Return the actor of a member."""
        for host in tuple(self._hosts.values()):
            if host.member == id_:
                return host.actor
        raise ValueError(f"there is no member {id_!r}")

    def _ids(self) -> list[str]:
        return [host.member for host in tuple(self._hosts.values()) if host.stopping is None]

    # ---- The cluster ------------------------------------------------------------------------------------

    def _run(self) -> None:
        published: tuple[str, ...] | None = None
        while not self._stopping.wait(_STEP_S if published is not None else 0.0):
            try:
                self._reconcile(ray.nodes())
                addresses = tuple(each.address for each in self._registry.members() if not each.draining)
                if addresses != published:
                    self._publish(addresses)
                    published = addresses
            except Exception as error:  # Ray's head may be down; its errors have no common class
                _log.warning("the cluster cannot be read: %s", error)
                published = published or ()

    def _reconcile(self, nodes: Sequence[Mapping[str, Any]]) -> None:
        """Start an actor on each new host that shall have one, and forget the members on dead ones."""
        alive = {node["NodeID"]: node for node in nodes if node["Alive"]}
        marked = {id_: node for id_, node in alive.items() if node["Resources"].get(HOST_RESOURCE)}
        for id_ in [id_ for id_ in self._hosts if id_ not in alive]:
            self._forget(id_)
        if self._scaler is None:
            self._start_all(marked or alive)
        else:
            self._scale(self._scaler, marked)

    def _start_all(self, nodes: Mapping[str, Mapping[str, Any]]) -> None:
        for id_, node in nodes.items():
            if id_ not in self._hosts:
                self._hosts[id_] = self._start(node)

    def _scale(self, scaler: HostScaler, nodes: Mapping[str, Mapping[str, Any]]) -> None:
        """Start as many actors as the fleet shall have, first on nodes that have one, and end those that have left."""
        running = _running_hosts()
        missing = max(0, scaler.hosts - len(self._ids()))
        free = sorted((id_ for id_ in nodes if id_ not in self._hosts), key=lambda id_: id_ not in running)
        self._start_all({id_: nodes[id_] for id_ in free[: max(missing, len(running.intersection(free)))]})
        left = scaler.update(self._registry.members(), self._ids())
        for id_, host in tuple(self._hosts.items()):
            if host.stopping is None and host.member in left:
                host.stopping = host.actor.stop.remote()
            elif host.stopping is not None and ray.wait([host.stopping], timeout=0)[0]:
                ray.kill(host.actor)
                self._forget(id_)

    def _forget(self, id_: str) -> None:
        """Forget a host without a service."""
        member = self._hosts.pop(id_).member
        self._registry.remove(member)
        self._drained.discard(member)

    def _start(self, node: Mapping[str, Any]) -> _Host:
        """Start the actor of a node, unless it runs."""
        id_ = node["NodeID"]
        member = member_id(node["NodeName"], id_)
        accelerators = [
            name.removeprefix("accelerator_type:")
            for name in node["Resources"]
            if name not in _STANDARD and not name.startswith("node:")
        ]
        handle = (
            ray.remote(HostActor)
            .options(
                name=host_actor(id_),
                namespace=NAMESPACE,
                lifetime="detached",
                get_if_exists=True,
                max_restarts=-1,
                max_concurrency=4,
                num_cpus=0,
                # a node whose resource is used is not idle: the autoscaler does not end it
                resources={HOST_RESOURCE: 1} if self._scaler is not None else None,
                scheduling_strategy=NodeAffinitySchedulingStrategy(id_, soft=False),
            )
            .remote(member, accelerators, self._options)
        )
        return _Host(member, handle)

    def _publish(self, addresses: Sequence[str]) -> None:
        """Write the addresses into the store of the cluster, where clients read them without an actor."""
        from ray.experimental.internal_kv import _internal_kv_put  # noqa: PLC0415 - only in an actor

        value = json.dumps({"at": time.time(), "members": list(addresses)}).encode()
        _internal_kv_put(MEMBERS_KEY, value, overwrite=True, namespace=NAMESPACE.encode())


def _running_hosts() -> set[str]:
    """Return the nodes whose actors an earlier process of the controller has started."""
    prefix = host_actor("")
    actors = ray.util.list_named_actors(all_namespaces=True)
    names = [str(actor["name"]) for actor in actors if actor["namespace"] == NAMESPACE]
    return {name.removeprefix(prefix) for name in names if name.startswith(prefix)}


def _ask_for_hosts(number: int) -> None:
    """Ask Ray's autoscaler for a number of nodes, in place of the last number. It ends others when they are idle."""
    request_resources(bundles=[{HOST_RESOURCE: 1}] * number)
