"""Report on the service of this host, made of what its administration tells."""

from dataclasses import replace

import grpc

from nnhal.admin.v1 import admin_pb2
from nnhal_service.peers.fleet.member import Member
from nnhal_service.peers.fleet.member_report import CHANNEL_OPTIONS, MemberReader

_TIMEOUT_S = 5.0


class ServiceReporter:
    """Connection to the administration of the service on this host. Close it when done.

    Args:
        admin: its address.
        member: what is known of the member without the service.
    """

    def __init__(self, admin: str, member: Member) -> None:
        self._member = member
        self._reader = MemberReader(grpc.insecure_channel(admin, CHANNEL_OPTIONS), _TIMEOUT_S)

    def read(self, address: str, generation: int, *, draining: bool) -> Member:
        """Return the record of the member.

        Args:
            address: address of the service for clients.
            generation: number of its starts.
            draining: whether the fleet lets it drain.

        Raises:
            grpc.RpcError: the service does not answer.
        """
        found = self._reader.read(lambda snapshot: self._member)
        return replace(found, address=address, generation=generation, draining=draining or found.draining)

    def drain(self, *, drained: bool) -> None:
        """Have the service take no more sessions, or take sessions again.

        Raises:
            grpc.RpcError: the service does not answer.
        """
        if drained:
            self._reader.stub.Drain(admin_pb2.DrainRequest(), timeout=_TIMEOUT_S)
        else:
            self._reader.stub.Resume(admin_pb2.ResumeRequest(), timeout=_TIMEOUT_S)

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()
