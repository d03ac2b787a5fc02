"""Targets of `connect`: an address with or without a scheme, or a cluster of Ray that knows the members of a fleet."""

import json
import socket
from dataclasses import dataclass
from functools import partial

from nnhal.address import PLAIN_SCHEME, RAY_SCHEME, target_address
from nnhal.client.core.reconnect import ATTEMPT_TIMEOUT_S, FindMembers
from nnhal.client.security.options import SecurityOptions
from nnhal.client.security.security import PLAIN, Security, secured
from nnhal.errors import DeadObjectError
from nnhal.types import ErrorStatus

_NAMESPACE, _KEY = b"nnhal", b"members"
"""Place of the addresses in the store of the cluster, where the fleet writes them."""


@dataclass(frozen=True, slots=True)
class ResolvedTarget:
    """Addresses and security of a target.

    Attributes:
        address: address of the service; None to start one.
        members: addresses of other services of the fleet.
        find_members: asks the cluster again for the addresses of all services; None for other targets than clusters.
    """

    address: str | None
    members: tuple[str, ...] = ()
    security: Security = PLAIN
    find_members: FindMembers | None = None


def is_cluster(target: str | None) -> bool:
    """Return whether a target is a cluster of Ray, which must be asked for addresses."""
    return target is not None and target.startswith(RAY_SCHEME)


def resolve_target(target: str | None, options: SecurityOptions, timeout: float) -> ResolvedTarget:
    """Return the addresses and the security of a target that `check_connect` has checked.

    Args:
        target: the target; None to start a service.
        options: the options of `connect`.
        timeout: seconds to wait for a cluster.

    Raises:
        HalError: INVALID_ARGUMENT: see `secured`. DEVICE_UNAVAILABLE: the cluster cannot be reached, or has no fleet.
        ImportError: the target is a cluster, and Ray is not installed, or this release of Ray cannot be used.
    """
    members: tuple[str, ...] = ()
    find_members: FindMembers | None = None
    if target is not None and is_cluster(target):
        find_members = partial(read_members, target, min(timeout, ATTEMPT_TIMEOUT_S))
        target, *others = read_members(target, timeout)
        members = tuple(others)
    elif target is not None:
        target = target.removeprefix(PLAIN_SCHEME).rstrip("/") if target.startswith(PLAIN_SCHEME) else target
    address, security = secured(target, options)
    return ResolvedTarget(address, members, security, find_members)


def read_members(target: str, timeout: float) -> list[str]:
    """Return the addresses of the members of the fleet in a cluster of Ray, at least one.

    Args:
        target: ray://HOST or ray://HOST:PORT, the head of the cluster.
        timeout: seconds to wait for it.

    Raises:
        HalError: DEVICE_UNAVAILABLE: it cannot be reached, or has no fleet.
        ImportError: Ray is not installed, or this release of Ray cannot be used.
    """
    head = target_address(target)
    try:
        import ray  # noqa: PLC0415 - a large package that few clients need
    except ImportError as error:
        raise ImportError(f"{target} needs Ray: pip install 'nnhal[fleet]'", name="ray") from error
    try:
        from ray._raylet import GcsClient  # noqa: PLC0415

        socket.create_connection((head.host, head.port), timeout).close()  # Ray itself would wait a minute for it
        value = GcsClient(address=head.with_port(head.port)).internal_kv_get(_KEY, _NAMESPACE, timeout)
    except (OSError, RuntimeError) as error:
        raise _no_fleet(f"the cluster at {target} cannot be reached: {error}") from None
    except (ImportError, AttributeError, TypeError) as error:  # the client of Ray's store is not public
        reason = f"Ray {ray.__version__} is installed, but nnhal cannot read {target} with it: {error}"
        raise ImportError(reason, name="ray") from error
    members: list[str] = json.loads(value)["members"] if value else []
    if not members:
        raise _no_fleet(f"the cluster at {target} has no fleet that serves; start one with `nnhal fleet up`")
    return members


def _no_fleet(reason: str) -> DeadObjectError:
    return DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, reason)
