"""Clients with workers of their own: who needs one, gets one, and is refused."""

from dataclasses import replace

import pytest

from nnhal.errors import HalError
from nnhal_service.identity.identity import ANONYMOUS, Identity, client_digest
from nnhal_service.supervisor import worker_directory
from nnhal_service.supervisor.addresses import WorkerAddresses
from nnhal_service.supervisor.scoreboard import MAX_WORKERS, NO_OWNER, NOBODY, Scoreboard, WorkerState
from nnhal_service.supervisor.worker_directory import WorkerDirectory, WorkerPolicy

ALICE, BOB = (client_digest(Identity("token", name), "ipv4:10.0.0.1:1") for name in ("alice", "bob"))
HOST = client_digest(ANONYMOUS, "ipv4:10.0.0.1:1")


class Service:
    """A scoreboard with a worker for all clients. Other workers start at once, on the slots from MAX_WORKERS on."""

    def __init__(self, per_identity: bool | None = None, private_workers: int = 2, *, starts: bool = True) -> None:
        self.board = Scoreboard()
        self.private: list[WorkerDirectory] = []
        self.asked: list[bytes] = []
        self._starts = starts
        self._policy = WorkerPolicy(per_identity, private_workers, self.start)
        self.shared = self._add(0, NO_OWNER)

    def start(self, owner: bytes) -> None:
        self.asked.append(owner)
        if self._starts:
            self.private.append(self._add(MAX_WORKERS + len(self.private), owner))

    def _add(self, slot: int, owner: bytes) -> WorkerDirectory:
        self.board.set_port(slot, 1000 + slot if slot else 0)
        status = replace(NOBODY, pid=slot + 1, slot=slot, owner=owner)
        directory = WorkerDirectory(self.board, slot, status, WorkerAddresses((), 0, "unix:/s"), self._policy)
        directory.report(WorkerState.SERVING, 1, 0, 0)
        return directory

    def choose(self, client: bytes, kind: str = "ipv4") -> str:
        return self.shared.choose(kind, 0, b"", client)


def refuses(call: object, *arguments: object, match: str) -> None:
    with pytest.raises(HalError, match=match) as caught:
        call(*arguments)  # type: ignore[operator]
    assert caught.value.limit == "workers"


def test_identities_have_workers_of_their_own_by_default() -> None:
    service = Service()
    assert service.choose(ALICE) == ":1064" == service.choose(ALICE)
    assert service.choose(BOB, "unix") == "unix:/s.65"
    assert service.choose(HOST) == ""
    assert service.asked == [ALICE, BOB]
    assert service.choose(client_digest(Identity("token", "carol"), "")) == "", "all are in use: it shares a worker"


def test_a_worker_of_ones_own_serves_nobody_else() -> None:
    service = Service()
    service.choose(ALICE)
    (own,) = service.private
    own.claim(ALICE)
    own.claim(ALICE)
    assert own.choose("ipv4", 0, b"", BOB) == "", "it does not redirect"
    refuses(own.claim, BOB, match="serves another client")
    service.shared.claim(ALICE)  # clients that do not follow redirects
    service.shared.claim(HOST)


def test_without_workers_for_identities() -> None:
    service = Service(per_identity=False)
    assert service.choose(ALICE) == "" and service.asked == []


def test_a_worker_for_each_client() -> None:
    service = Service(per_identity=True)
    assert (service.choose(ALICE), service.choose(HOST)) == (":1064", ":1065")
    refuses(service.choose, BOB, match="all 2 workers of single clients are in use")
    refuses(service.shared.claim, ALICE, match="needs a worker of its own; connect with a client that follows")
    service.private[1].claim(HOST)
    service.private[1].claim(HOST)


def test_an_offender_has_a_worker_of_its_own_and_waits() -> None:
    service = Service(per_identity=False)
    service.board.offenders.add(ALICE)
    assert service.choose(ALICE) == ":1064"
    refuses(service.shared.claim, ALICE, match="needs a worker of its own")
    assert service.choose(BOB) == ""
    service.board.offenders.add(ALICE)
    refuses(service.choose, ALICE, match=r"had to be ended several times; it can connect again in [01] s")


def test_each_session_of_a_host_on_probation_has_a_worker() -> None:
    service = Service(per_identity=False)
    service.board.offenders.add(HOST)
    assert (service.choose(HOST), service.choose(HOST)) == (":1064", ":1065")
    refuses(service.choose, HOST, match="all 2 workers")
    first, second = service.private
    first.claim(HOST)
    second.claim(HOST)
    refuses(first.claim, HOST, match="serves another client")


def test_a_resumption_finds_its_worker() -> None:
    service = Service()
    service.choose(ALICE)
    assert service.shared.choose("ipv4", 0, bytes([MAX_WORKERS])) == ":1064"
    service.private[0].report(WorkerState.DRAINING, 2, 0, 0)
    assert service.shared.choose("ipv4", 0, bytes([MAX_WORKERS])) == ""
    assert service.choose(ALICE) == ":1065", "one that drains takes no clients"


def test_a_worker_that_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_directory, "_START_S", 0.05)
    service = Service(starts=False)
    assert service.choose(ALICE) == "" and service.asked == [ALICE]
    service.board.offenders.add(ALICE)
    refuses(service.choose, ALICE, match="all 2 workers")
