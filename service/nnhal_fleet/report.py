"""Report on the service of this host, made of what its administration tells."""

from collections.abc import Iterable
from pathlib import Path

import grpc

from nnhal.admin.v1 import admin_pb2, admin_pb2_grpc
from nnhal.cpu import available_cpus
from nnhal_service.fleet.member import Member

_MEMORY = Path("/proc/meminfo")
_TIMEOUT_S = 5.0
_MAX_BYTES = 2**26
_DRAINING = frozenset(["draining", "stopping"])


class ServiceReporter:
    """Connection to the administration of the service on this host. Close it when done.

    Args:
        admin: its address.
        member: what is known of the member without the service.
    """

    def __init__(self, admin: str, member: Member) -> None:
        self._member = member
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
    yield from (model.digest for model in snapshot.models if model.digest)
    yield from (entry.token for entry in snapshot.cache.entries if entry.token)
