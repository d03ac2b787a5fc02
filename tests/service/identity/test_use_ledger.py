"""Use of quotas in several workers: each has a ledger on the same scoreboard."""

import gc
import mmap
import os
from collections.abc import Callable
from dataclasses import replace

import pytest

from nnhal.errors import HalError
from nnhal.types import Priority
from nnhal_driver.scheduling.admission import AdmissionQueue
from nnhal_driver.scheduling.quota_use import Quota
from nnhal_driver.scheduling.share import Share, ShareOwner
from nnhal_driver.scheduling.ticket import AdmissionRequest, Ticket
from nnhal_service.identity.accounts import Account
from nnhal_service.identity.identity import Identity
from nnhal_service.identity.policy import IdentityRules
from nnhal_service.identity.use_ledger import CAPACITY, UseLedger
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.session import Session
from nnhal_service.supervisor.scoreboard import NOBODY, Scoreboard, WorkerState
from tests.concurrency import in_own_process
from tests.driver.clock import MS

ALICE = Identity("token", "alice")


class Service:
    """Scoreboard of a service with some workers, by row."""

    def __init__(self, workers: int = 2) -> None:
        self.board = Scoreboard()
        self.ledgers = [self.start(row) for row in range(workers)]

    def start(self, row: int) -> UseLedger:
        self.board.clear(row)
        self.enter(row, WorkerState.SERVING)
        return UseLedger(self.board, row)

    def enter(self, row: int, state: WorkerState) -> None:
        self.board.write(row, replace(NOBODY, pid=row + 1, slot=row, state=state))

    def accounts(self, rules: IdentityRules) -> list[Account]:
        """Return the accounts of an identity in all workers."""
        return [Account(ALICE, rules, ledger.use_of(str(ALICE)), may_connect=True) for ledger in self.ledgers]


@pytest.mark.parametrize("quota", ["sessions", "prepared_models"])
def test_objects_of_all_workers_count(quota: str) -> None:
    first, second, third = Service(3).accounts(IdentityRules(sessions=3, prepared_models=3))
    first.acquire(quota)
    second.acquire(quota)
    third.acquire(quota)
    for account in (first, second, third):
        with pytest.raises(HalError, match=f"identity token:alice has 3 {quota.replace('_', ' ')}; its quota is 3"):
            account.acquire(quota)
    second.release(quota)
    first.acquire(quota)
    assert (first.used(quota), second.used(quota), third.used(quota)) == (2, 0, 1)


def test_identities_do_not_share_a_quota() -> None:
    service, rules = Service(), IdentityRules(sessions=1)
    service.accounts(rules)[0].acquire("sessions")
    ledger = service.ledgers[1]
    Account(Identity("token", "bob"), rules, ledger.use_of("token:bob"), may_connect=True).acquire("sessions")


def test_memory_of_all_workers_counts() -> None:
    accounts = Service().accounts(IdentityRules(memory_bytes=300))
    sessions = [Session("s1", ALICE, account=account) for account in accounts]
    quotas = [MemoryQuota(Limits()) for _ in accounts]
    kept = quotas[0].reserve_object(sessions[0], 200)
    with pytest.raises(HalError) as caught:
        quotas[1].reserve_object(sessions[1], 101)
    assert caught.value.limit == "identity_memory_bytes"
    assert "uses 200 of its quota of 300 bytes" in caught.value.reason
    other = quotas[1].reserve_object(sessions[1], 100)
    with pytest.raises(HalError):
        quotas[0].reserve_object(sessions[0], 1)
    kept.release()
    quotas[1].reserve_object(sessions[1], 200).release()
    other.release()
    quotas[0].reserve_object(sessions[0], 300).release()


def start(queue: AdmissionQueue, share: Share, session: str, running: list[Ticket]) -> Ticket:
    ticket = Ticket(AdmissionRequest(Priority.MEDIUM, owner=ShareOwner(session, share)), running.append)
    if queue.acquire(ticket):
        running.append(ticket)
    return ticket


def test_executions_of_all_workers_count_however_they_end() -> None:
    shares = [account.share for account in Service().accounts(IdentityRules(executions=3))]
    queues = [AdmissionQueue(1, 2, counts_executions=True) for _ in shares]
    running: list[Ticket] = []
    first = start(queues[0], shares[0], "s1", running)
    waiting = start(queues[0], shares[0], "s2", running)
    start(queues[1], shares[1], "s1", running)
    for queue, share in zip(queues, shares, strict=True):
        with pytest.raises(HalError, match="identity token:alice has 3 executions in flight; its quota is 3"):
            start(queue, share, "s9", running)
    assert queues[0].withdraw(waiting, HalError(1, "cancelled"))
    running.remove(waiting)
    start(queues[1], shares[1], "s2", running)
    with pytest.raises(HalError):
        start(queues[0], shares[0], "s9", running)
    queues[0].release(first)
    start(queues[0], shares[0], "s3", running)


def test_execution_that_the_full_queue_refuses_does_not_count() -> None:
    (share,) = (account.share for account in Service(1).accounts(IdentityRules(executions=3)))
    queue, running = AdmissionQueue(1, 1, counts_executions=True), list[Ticket]()
    start(queue, share, "s1", running)
    start(queue, share, "s2", running)
    for _ in range(3):
        with pytest.raises(HalError, match="the queue is full"):
            start(queue, share, "s3", running)
    queue.release(running[0])
    start(queue, share, "s3", running)


def test_running_time_of_all_workers_counts() -> None:
    now_ns = [0]
    first, second = (
        Share("identity token:alice", device_seconds=0.5, clock=lambda: now_ns[0], use=ledger.use_of("token:alice"))
        for ledger in Service().ledgers
    )
    first.spend(300 * MS)
    second.spend(300 * MS)
    for share in (first, second):
        with pytest.raises(HalError, match=r"it may use it again in 1\.200 s"):
            share.require_time()
    now_ns[0] += 1200 * MS
    first.require_time()
    second.require_time()


@pytest.mark.parametrize("state", [WorkerState.DRAINING, WorkerState.EMPTY])
def test_what_clients_take_elsewhere_does_not_count(state: WorkerState) -> None:
    """A reload must not count the sessions of a client twice, while it goes from one worker to another."""
    service = Service()
    first, second = service.accounts(IdentityRules(sessions=1))
    first.acquire("sessions")
    service.enter(0, state)
    second.acquire("sessions")


def test_what_runs_in_a_worker_that_drains_counts() -> None:
    service = Service()
    first, second = (account.share for account in service.accounts(IdentityRules(executions=1)))
    first.begin_execution()
    service.enter(0, WorkerState.DRAINING)
    with pytest.raises(HalError):
        second.begin_execution()


def test_the_next_worker_of_a_row_starts_empty() -> None:
    service, rules = Service(), IdentityRules(sessions=1)
    first, second = service.accounts(rules)
    first.acquire("sessions")
    with pytest.raises(HalError):
        second.acquire("sessions")
    bob = service.start(0).use_of("token:bob")  # in the entry that was alice's
    bob.publish(Quota.SESSIONS, 1)
    second.acquire("sessions")


def test_entries_end_with_their_accounts() -> None:
    ledger = Service(1).ledgers[0]
    for number in range(3 * CAPACITY):
        ledger.use_of(f"token:{number}").publish(Quota.SESSIONS, 1)
    kept = [ledger.use_of(f"token:{number}") for number in range(CAPACITY)]
    assert ledger.use_of("token:0") is kept[0]
    assert ledger.use_of("token:more").elsewhere(Quota.SESSIONS) == 0  # it counts in its worker alone
    del kept
    gc.collect()
    assert len(ledger._free) == ledger._own.size == CAPACITY


@in_own_process
def test_only_one_of_two_workers_gets_the_last_unit() -> None:
    """Two processes claim the last unit at the same time, over and over."""
    service, holders = Service(), mmap.mmap(-1, 2)
    accounts = service.accounts(IdentityRules(sessions=1))  # before the fork: that changes the tables of all workers
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = int(not claim_often(accounts[1], holders, 1))
        finally:
            os._exit(status)
    mine = claim_often(accounts[0], holders, 0)
    assert os.waitpid(child, 0)[1] == 0 and mine


def claim_often(account: Account, holders: mmap.mmap, row: int) -> bool:
    """Acquire and release one session. Return whether that was possible, and no other worker ever had one meanwhile."""
    count, is_alone = 0, True
    for _ in range(1000):
        if succeeds(lambda: account.acquire("sessions")):
            holders[row] = 1
            is_alone = is_alone and not holders[1 - row]
            count += 1
            holders[row] = 0
            account.release("sessions")
    return is_alone and count > 0


def succeeds(call: Callable[[], object]) -> bool:
    try:
        call()
    except HalError:
        return False
    return True
