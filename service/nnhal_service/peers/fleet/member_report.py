"""Reports of members of a fleet, made of what the administration of their services tells."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain, islice

import grpc

from nnhal.admin.v1 import admin_pb2, admin_pb2_grpc
from nnhal_service.peers.fleet.member import Member, model_key

_MAX_MODELS = 128
"""Number of models that a report names. All members get it."""
_DRAINING = frozenset(["draining", "stopping"])
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", 2**26),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
"""Options of connections to the administration of a member."""


class WaitMeter:
    """Time that executions have lately waited for a slot, from the totals of a service."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock()
        self._executions = 0
        self._waited_s = 0.0
        self._wait_s = 0.0

    def update(self, executions: int, waited_s: float, queued: int) -> float:
        """Return the mean time since the last call, in seconds.

        The totals of the service are the executions that have ended, and the time that they have waited together. Some
        are queued now.
        """
        now = self._clock()
        ended, waited, passed = executions - self._executions, waited_s - self._waited_s, now - self._at
        self._executions, self._waited_s, self._at = executions, waited_s, now
        if ended > 0:
            self._wait_s = max(0.0, waited / ended)
        else:  # no execution tells how long those wait that are still there
            self._wait_s = self._wait_s + passed if queued and ended == 0 else 0.0
        return self._wait_s


def member_of(snapshot: admin_pb2.ServiceSnapshot, known: Member, waits: WaitMeter) -> Member:
    """Return the record of a member, from the state of its service and from what is known of it without that."""
    load = snapshot.load
    backends = [each for device in snapshot.devices for each in device.backends if each.state == "ready"]
    adapters = (each.hardware["adapter"] for each in backends if "adapter" in each.hardware)
    return replace(
        known,
        version=snapshot.version,
        draining=snapshot.state in _DRAINING,
        cpus=max(1, snapshot.cpus),
        free_bytes=snapshot.free_bytes,
        sessions=len(snapshot.sessions),
        executions=load.running + load.queued + load.preparing,
        devices={device.name: device.type for device in snapshot.devices},
        backends={each.id: each.version for each in backends},
        accelerators=tuple(dict.fromkeys((*known.accelerators, *adapters))),
        models=frozenset(_models(snapshot)),
        wait_s=waits.update(load.executions, load.waited_s, load.queued),
    )


class MemberReader:
    """Reader of the administration of a member. Close it when done.

    Args:
        channel: the connection, with CHANNEL_OPTIONS.
    """

    def __init__(self, channel: grpc.Channel, timeout_s: float) -> None:
        self.stub = admin_pb2_grpc.AdminStub(channel)
        self._channel = channel
        self._timeout_s = timeout_s
        self._waits = WaitMeter()

    def read(self, identify: Callable[[admin_pb2.ServiceSnapshot], Member]) -> Member:
        """Return the record of the member. `identify` returns what is known of it besides the state of its service.

        Raises:
            grpc.RpcError: the service does not answer, or does not let this one read.
        """
        snapshot = self.stub.GetSnapshot(admin_pb2.GetSnapshotRequest(), timeout=self._timeout_s).snapshot
        return member_of(snapshot, identify(snapshot), self._waits)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def _models(snapshot: admin_pb2.ServiceSnapshot) -> Iterable[str]:
    """Return the keys of models that are prepared there, and of those in its cache that were used last."""
    digests = (model.digest for model in snapshot.models if model.digest)
    tokens = (entry.token for entry in snapshot.cache.entries if entry.token)
    return islice(dict.fromkeys(map(model_key, chain(digests, tokens))), _MAX_MODELS)
