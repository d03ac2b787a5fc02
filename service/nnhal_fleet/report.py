"""Report on the service of this host, made of what its administration tells."""

from dataclasses import replace

import grpc

from nnhal.admin.v1 import admin_pb2, admin_pb2_grpc
from nnhal_service.fleet.member import Member
from nnhal_service.fleet.report import WaitMeter, member_of

_TIMEOUT_S = 5.0
_MAX_BYTES = 2**26


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
        found = member_of(snapshot, self._member, self._waits)
        return replace(found, address=address, generation=generation, draining=draining or found.draining)

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
