"""Decision of a worker where a client goes: to another service of its fleet, or else to a worker of its own service."""

from collections.abc import Sequence

from nnhal.v1 import session_pb2
from nnhal_service.log import event
from nnhal_service.peers.fleet.fleet_directory import FleetDirectory
from nnhal_service.supervisor.worker_directory import WorkerDirectory


class WorkerRedirector:
    """See `nnhal_service.serving.hosting.Redirector`."""

    def __init__(self, workers: WorkerDirectory, fleet: FleetDirectory | None = None) -> None:
        self._workers = workers
        self._fleet = fleet

    def choose(
        self, request: session_pb2.OpenRequest, kind: str, sessions: int, identity: str
    ) -> session_pb2.SessionRedirect | None:
        """Return where to send a client, or None to serve it here."""
        if self._fleet is not None and not request.session:
            found = self._fleet.choose(request, sessions, is_local=kind == "unix")
            if found is not None and found.member is not None:
                event("session-placed", member=found.member.id, why=found.reason)
                reason = f"{self.member}: {found.reason}"
                return session_pb2.SessionRedirect(address=found.member.address, other_service=True, reason=reason)
        address = self._workers.choose(kind, sessions, request.session, identity)
        return session_pb2.SessionRedirect(address=address) if address else None

    def members(self, known: Sequence[str] = ()) -> Sequence[str]:
        """Return the addresses of other services that can take over when this one is gone, first those of `known`."""
        return self._fleet.others(known) if self._fleet is not None else ()

    @property
    def member(self) -> str:
        """Id of this service in its fleet, or ""."""
        return self._fleet.here if self._fleet is not None else ""
