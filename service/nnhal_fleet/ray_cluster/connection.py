"""Connection of an operator to a fleet: to its actors, or to the cluster in which they will run."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ray

from nnhal_fleet.agent import FleetError
from nnhal_fleet.ray_cluster.controller import FleetController
from nnhal_fleet.ray_cluster.options import CONTROLLER, NAMESPACE, FleetOptions

_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 90.0
_HEAD_RESOURCE = "node:__internal_head__"


class FleetConnection:
    """A fleet, for operators.

    Args:
        controller: the actor with its registry.
    """

    def __init__(self, controller: Any) -> None:
        self._controller = controller

    def status(self) -> Mapping[str, Any]:
        """Return the members, and the ids of all hosts."""
        status: Mapping[str, Any] = self._call("status")
        return status

    def host_state(self, id_: str) -> Mapping[str, Any]:
        """Return the processes of a host."""
        state: Mapping[str, Any] = self._call("host_state", id_)
        return state

    def set_drained(self, ids: Sequence[str], *, drained: bool) -> None:
        """Have the services of members take no sessions, or take sessions again."""
        self._call("set_drained", list(ids), drained)

    def restart(self, id_: str) -> None:
        """Replace the service of a member in order."""
        self._call("restart", id_)

    def stop(self) -> None:
        """End all services in order, and the actors of the fleet."""
        self._call("stop", timeout=_STOP_TIMEOUT_S)
        ray.kill(self._controller)

    def _call(self, method: str, *arguments: object, timeout: float = _TIMEOUT_S) -> Any:
        """Call a method of the actor."""
        try:
            return ray.get(getattr(self._controller, method).remote(*arguments), timeout=timeout)
        except ray.exceptions.RayTaskError as error:
            raise FleetError(str(error.cause)) from None
        except ray.exceptions.RayError as error:
            raise FleetError(f"the fleet does not answer: {type(error).__name__}") from None


@contextmanager
def joined_cluster(address: str) -> Iterator[None]:
    """Connect to a cluster of Ray, on one of its machines.

    Raises:
        FleetError: it cannot be reached.
    """
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ray.exceptions.RayError, RuntimeError) as error:
        raise FleetError(f"no cluster of Ray at {address}: {str(error).splitlines()[0]}") from None
    try:
        yield
    finally:
        ray.shutdown()


def find_fleet() -> FleetConnection:
    """Return the fleet of the cluster.

    Raises:
        FleetError: there is none.
    """
    try:
        return FleetConnection(ray.get_actor(CONTROLLER, NAMESPACE))
    except ValueError:
        raise FleetError("the cluster has no fleet; start one with `nnhal fleet up`") from None


def start_fleet(options: FleetOptions) -> FleetConnection:
    """Start a fleet in the cluster, unless it has one."""
    actor = ray.remote(FleetController).options(
        name=CONTROLLER,
        namespace=NAMESPACE,
        lifetime="detached",
        get_if_exists=True,
        max_restarts=-1,
        max_concurrency=16,
        num_cpus=0,
        resources={_HEAD_RESOURCE: 0.001},
    )
    return FleetConnection(actor.remote(options.to_plain()))
