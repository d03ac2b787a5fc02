"""Report on the service of this host, made of what its administration tells."""

import time
from collections.abc import Callable, Iterable
from itertools import chain, islice
from pathlib import Path

import grpc

from nnhal.admin.v1 import admin_pb2, admin_pb2_grpc
from nnhal.cpu import available_cpus
from nnhal_service.fleet.member import Member, model_key

_MEMORY = Path("/proc/meminfo")
_TIMEOUT_S = 5.0
_MAX_MODELS = 128
"""Number of models that a report names. All members get it."""
_MAX_BYTES = 2**26
_DRAINING = frozenset(["draining", "stopping"])


class WaitMeter:
    """Time that executions have lately waited for a slot, from the totals of a service.

    Args:
        clock: returns seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock()
        self._executions = 0
        self._waited_s = 0.0
        self._wait_s = 0.0

    def update(self, executions: int, waited_s: float, queued: int) -> float:
        """Return the mean time since the last call, in seconds.

        Args:
            executions: number of executions that have ended since the start of the service.
            waited_s: time that these have waited together.
            queued: number of executions that wait.
        """
        now = self._clock()
        ended, waited, passed = executions - self._executions, waited_s - self._waited_s, now - self._at
        self._executions, self._waited_s, self._at = executions, waited_s, now
        if ended > 0:
            self._wait_s = max(0.0, waited / ended)
        else:  # no execution tells how long those wait that are still there
            self._wait_s = self._wait_s + passed if queued and ended == 0 else 0.0
        return self._wait_s


class ServiceReporter:
    """Connection to the administration of the service on this host. Close it when done.

    Args:
        admin: its address.
        member: what is known of the member without the service.
    """

    def __init__(self, admin: str, member: Member) -> None:
        self._member = member
        self._waits = WaitMeter()
        self._channel = grpc.insecure_channel(
            admin,
            [
                ("grpc.max_receive_message_length", _MAX_BYTES),
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 1_000),
            ],
        )
        self._stub = admin_pb2_grpc.AdminStub(self._channel)

    def read(self, address: str, generation: int, *, draining: bool) -> Member:
        """Return the record of the member.

        Args:
            address: address of the service for clients.
            generation: number of its starts.
            draining: whether the fleet lets it drain.

        Raises:
            grpc.RpcError: the service does not answer.
        """
        snapshot = self._stub.GetSnapshot(admin_pb2.GetSnapshotRequest(), timeout=_TIMEOUT_S).snapshot
        load = snapshot.load
        return Member(
            self._member.id,
            self._member.host,
            address,
            snapshot.version,
            generation,
            draining or snapshot.state in _DRAINING,
            available_cpus(),
            _free_bytes(),
            len(snapshot.sessions),
            load.running + load.queued + load.preparing,
            {device.name: device.type for device in snapshot.devices},
            {backend.id: backend.version for backend in _backends(snapshot.devices) if backend.state == "ready"},
            self._member.accelerators,
            frozenset(_models(snapshot)),
            wait_s=self._waits.update(load.executions, load.waited_s, load.queued),
        )

    def drain(self, *, drained: bool) -> None:
        """Have the service take no more sessions, or take sessions again.

        Raises:
            grpc.RpcError: the service does not answer.
        """
        if drained:
            self._stub.Drain(admin_pb2.DrainRequest(), timeout=_TIMEOUT_S)
        else:
            self._stub.Resume(admin_pb2.ResumeRequest(), timeout=_TIMEOUT_S)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def _free_bytes() -> int:
    """Return the memory of this host that programs can get without swapping."""
    lines = _MEMORY.read_text().splitlines()
    (available,) = (line for line in lines if line.startswith("MemAvailable:"))
    return int(available.split()[1]) * 1024


def _backends(devices: Iterable[admin_pb2.DeviceSnapshot]) -> Iterable[admin_pb2.BackendSnapshot]:
    return (backend for device in devices for backend in device.backends)


def _models(snapshot: admin_pb2.ServiceSnapshot) -> Iterable[str]:
    """Return the keys of models that are prepared there, and of those in its cache that were used last."""
    digests = (model.digest for model in snapshot.models if model.digest)
    tokens = (entry.token for entry in snapshot.cache.entries if entry.token)
    return islice(dict.fromkeys(map(model_key, chain(digests, tokens))), _MAX_MODELS)
