"""Guests: sessions that the service opens for clients of the Open Inference Protocol, which has none.

All calls of an identity, or of the anonymous clients of one host, are those of one session, with its limits and quotas.
It ends some time after the last call.
"""

import threading
import time
from dataclasses import replace
from typing import NamedTuple

from nnhal.types import Priority
from nnhal_service.identity.identity import Credential, client_name
from nnhal_service.open_inference.guest_model import GuestModel
from nnhal_service.open_inference.sequences import Sequences
from nnhal_service.open_inference.shared_memory import SharedRegions
from nnhal_service.repository.access import require_model
from nnhal_service.repository.repository import Repository
from nnhal_service.repository.served_model import ServedModel
from nnhal_service.requests.service_parts import ServiceParts
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.session import Session

IDLE_S = 60.0
"""Seconds after its last call until a guest may be ended."""


class _ModelKey(NamedTuple):
    name: str
    version: int | None
    priority: Priority | None


class Guest:
    """Session of a client of the protocol, with the models, sequences and shared memory that it uses. Thread safe."""

    def __init__(self, session: Session, repository: Repository, quota: MemoryQuota, limits: Limits) -> None:
        self.session = session
        self.used_s = time.monotonic()
        self.regions = SharedRegions(limits)
        self.sequences = Sequences(limits, lambda size: quota.reserve(session, size, "the sequence"))
        self._repository = repository
        self._quota = quota
        self._models: dict[_ModelKey, GuestModel] = {}
        self._changes = repository.changes
        self._lock = threading.Lock()

    def model(
        self, name: str, version: int | None, priority: Priority | None = None, timeout_s: float | None = None
    ) -> GuestModel:
        """Return a model for executions, which is loaded if it is not in memory.

        Raises:
            HalError: as `Repository.get`; PERMISSION_DENIED; or a limit of the session.
        """
        require_model(self.session.account, name)
        key = _ModelKey(name, version, priority)
        served = self._repository.get(name, version, timeout_s)
        found = self._models.get(key)
        if found is not None and found.served is served and self._changes == self._repository.changes:
            return found
        with self._lock:
            self._release_old()
            found = self._models.get(key)
            if found is None or found.served is not served:
                found = self._models[key] = self._share(served, priority)
            return found

    def _share(self, served: ServedModel, priority: Priority | None) -> GuestModel:
        prepared = served.share(self.session, self._quota).prepared_model
        assert prepared is not None, "only a missed deadline has none"
        if priority is not None:
            prepared = replace(prepared, priority=priority)
        return GuestModel(served, prepared, self.session.add(prepared, "prepared_models"))

    def _release_old(self) -> None:
        """Release the models that have been replaced or removed. What runs on them finishes."""
        self._changes = self._repository.changes
        for key, model in list(self._models.items()):
            if not self._repository.is_served(key.name, key.version, model.served):
                del self._models[key]
                self.session.release([model.handle])


class Guests:
    """The guests of a service, by client. Thread safe.

    Attributes:
        repository: the models by name.
    """

    def __init__(self, parts: ServiceParts, repository: Repository) -> None:
        self._parts = parts
        self.repository = repository
        self._guests: dict[str, Guest] = {}
        self._lock = threading.Lock()
        self._swept_s = time.monotonic()

    def of(self, credential: Credential, peer: str) -> Guest:
        """Return the guest of a caller, who has been admitted; `peer` is the connection, as gRPC names it.

        Raises:
            HalError: DEVICE_UNAVAILABLE: the service is stopping; RESOURCE_EXHAUSTED_*: a limit on sessions.
        """
        client = client_name(credential.identity, peer)
        guest = self._guests.get(client)
        if guest is None or guest.session.closed:
            guest = self._open(client, credential, peer)
        if guest.session.credential is not credential:
            guest.session.credential = credential
        guest.used_s = time.monotonic()
        if guest.used_s - self._swept_s > IDLE_S / 4:
            self._sweep(guest.used_s)
        return guest

    def _open(self, client: str, credential: Credential, peer: str) -> Guest:
        with self._lock:
            guest = self._guests.get(client)
            if guest is None or guest.session.closed:
                session = self._parts.sessions.open(credential.identity, credential, peer)
                self._parts.calls.count_session(session)
                session.client = "open inference protocol"
                session.log_opened()
                guest = self._guests[client] = Guest(session, self.repository, self._parts.quota, self._parts.limits)
        return guest

    def _sweep(self, now_s: float) -> None:
        """End the guests that have not been used for some time."""
        with self._lock:
            self._swept_s = now_s
            idle = [
                (client, guest)
                for client, guest in self._guests.items()
                if now_s - guest.used_s > IDLE_S and not guest.session.number_of("session_calls")
            ]
            for client, _ in idle:
                del self._guests[client]
        for _, guest in idle:
            self._parts.sessions.end(guest.session, "it has not been used")
