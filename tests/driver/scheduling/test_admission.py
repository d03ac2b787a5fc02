"""Admission: who runs when, and what is rejected."""

import threading
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor

import pytest

from nnhal.errors import HalError
from nnhal.types import ErrorStatus, OperandType, OperationType, Priority
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.scheduling.admission import TURN_NS, AdmissionQueue
from nnhal_driver.scheduling.cancellation import Cancellation
from nnhal_driver.scheduling.deadline import NO_DEADLINE, Deadline
from nnhal_driver.scheduling.share import Share, ShareOwner
from nnhal_driver.scheduling.ticket import SHORT_NS, AdmissionRequest, Ticket
from tests.driver.blocking_backend import TIMEOUT_S, TWICE, BlockingDevice, Sum, blocking_device, until
from tests.driver.clock import MS, FakeClock
from tests.driver.control_flow_models import counts, less_than, loop
from tests.driver.one_operation import int32, model_of, prepare, tensor


class Stopwatch:
    """Clock of running times: each reading is 2 ms after the one before."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 2 * MS
        return self.now_ns


def wait_for_length(queue: AdmissionQueue, length: int) -> None:
    """Wait until `length` callers are queued."""
    assert until(lambda: queue.waiting == length)


def test_order_is_by_priority_then_deadline_then_arrival(clock: FakeClock) -> None:
    queue = AdmissionQueue(1, 100)
    soon, later = Deadline(clock.now_ns + 10**11), Deadline(clock.now_ns + 10**12)
    callers = [
        (Priority.LOW, NO_DEADLINE, "low"),
        (Priority.MEDIUM, NO_DEADLINE, "medium, no deadline"),
        (Priority.MEDIUM, later, "medium, later"),
        (Priority.MEDIUM, soon, "medium, soon"),
        (Priority.MEDIUM, soon, "medium, soon, came after"),
        (Priority.HIGH, NO_DEADLINE, "high"),
    ]
    order: list[str] = []

    def run(priority: int, deadline: Deadline, name: str) -> None:
        with queue.admit(AdmissionRequest(priority, deadline)):
            order.append(name)

    threads = []
    with queue.admit(AdmissionRequest(Priority.MEDIUM)):
        for i, caller in enumerate(callers):
            threads.append(threading.Thread(target=run, args=caller))
            threads[-1].start()
            wait_for_length(queue, i + 1)
    for thread in threads:
        thread.join()
    assert order == [
        "high",
        "medium, soon",
        "medium, soon, came after",
        "medium, later",
        "medium, no deadline",
        "low",
    ]


def test_no_more_executions_run_at_once_than_there_are_slots() -> None:
    queue = AdmissionQueue(2, 100)
    inside, most = 0, 0
    lock, pair = threading.Lock(), threading.Barrier(2, timeout=TIMEOUT_S)

    def run(_: int) -> None:
        nonlocal inside, most
        with queue.admit(AdmissionRequest(Priority.MEDIUM)):
            with lock:
                inside += 1
                most = max(most, inside)
            pair.wait()
            with lock:
                inside -= 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(run, range(300)))
    assert most == 2


def ask(queue: AdmissionQueue, owner: str, usual_ns: int = 0) -> tuple[Ticket, bool]:
    """Ask for a slot. Return the ticket, and whether it was granted at once."""
    ticket = Ticket(AdmissionRequest(Priority.MEDIUM, owner=owner, usual_ns=usual_ns), lambda _: None)
    return ticket, queue.acquire(ticket)


def test_short_executions_pass_long_ones() -> None:
    """One of each owner that has no slot; as many as there are slots."""
    queue = AdmissionQueue(2, 100)
    long = [ask(queue, "attacker")[0] for _ in range(2)]
    assert not ask(queue, "attacker", SHORT_NS)[1]
    assert not ask(queue, "unknown")[1]
    assert not ask(queue, "slow", SHORT_NS + 1)[1]
    first, is_granted = ask(queue, "a", SHORT_NS)
    assert is_granted and not ask(queue, "a", SHORT_NS)[1]
    assert ask(queue, "b", SHORT_NS)[1]
    third, is_granted = ask(queue, "c", SHORT_NS)
    assert not is_granted and queue.running == 4
    queue.release(first)
    assert third.granted_ns and queue.running == 4
    queue.release(long[0])  # the next one that waits gets the slot
    assert queue.running == 4


def test_short_executions_do_not_pass_short_ones() -> None:
    queue = AdmissionQueue(2, 100)
    assert ask(queue, "attacker")[1]
    assert ask(queue, "a", SHORT_NS)[1]
    assert not ask(queue, "b", SHORT_NS)[1]


def test_expired_caller_does_not_block_others(clock: FakeClock) -> None:
    queue = AdmissionQueue(1, 100)
    errors: list[HalError] = []

    def expire() -> None:
        with (
            pytest.raises(HalError) as caught,
            queue.admit(AdmissionRequest(Priority.HIGH, Deadline(clock.now_ns + MS))),
        ):
            pytest.fail("the execution was admitted")
        errors.append(caught.value)

    with queue.admit(AdmissionRequest(Priority.MEDIUM)):
        thread = threading.Thread(target=expire)
        thread.start()
        wait_for_length(queue, 1)
        clock.advance(MS)
        thread.join()
        assert queue.waiting == 0
    assert [error.status for error in errors] == [ErrorStatus.MISSED_DEADLINE_TRANSIENT]
    with queue.admit(AdmissionRequest(Priority.LOW, Deadline(clock.now_ns + MS))):
        pass


def test_error_in_an_execution_frees_its_slot(clock: FakeClock) -> None:
    queue = AdmissionQueue(1, 100)
    with pytest.raises(RuntimeError), queue.admit(AdmissionRequest(Priority.MEDIUM)):
        raise RuntimeError
    with queue.admit(AdmissionRequest(Priority.MEDIUM, Deadline(clock.now_ns + MS))):
        pass


def test_cancelled_wait_ends_at_once() -> None:
    queue, cancellation = AdmissionQueue(1, 100), Cancellation()

    def cancel() -> None:
        wait_for_length(queue, 1)
        cancellation.cancel()

    with queue.admit(AdmissionRequest(Priority.MEDIUM)):
        thread = threading.Thread(target=cancel)
        thread.start()
        with pytest.raises(HalError, match="cancelled"), queue.admit(AdmissionRequest(Priority.MEDIUM), cancellation):
            pytest.fail("the execution was admitted")
        thread.join()
        assert queue.waiting == 0


# ---- Deadlines that save work ---------------------------------------------------------------------------


def rejection(blocking: BlockingDevice, work: Sum, deadline_ns: int) -> int:
    """Execute synchronously. Return the status of the error."""
    with pytest.raises(HalError) as caught:
        blocking.prepared.execute_synchronously(work.request, call=ExecutionCall(deadline_ns))
    return caught.value.status


def test_expired_executions_leave_the_queue_to_live_ones(clock: FakeClock) -> None:
    with blocking_device() as blocking:
        running = threading.Thread(target=blocking.prepared.execute_synchronously, args=(Sum.of(0).request,))
        running.start()
        assert until(lambda: blocking.barrier.started == [0])
        deadline = clock.now_ns + MS
        statuses: list[int] = []
        expiring = [
            threading.Thread(target=lambda i=i: statuses.append(rejection(blocking, Sum.of(i), deadline)))
            for i in range(1, 7)
        ]
        live = threading.Thread(target=blocking.prepared.execute_synchronously, args=(Sum.of(9).request,))
        for number, thread in enumerate((*expiring, live), 1):
            thread.start()
            wait_for_length(blocking.admission, number)
        clock.advance(MS)
        for thread in expiring:
            thread.join()
        assert statuses == [ErrorStatus.MISSED_DEADLINE_TRANSIENT] * 6
        wait_for_length(blocking.admission, 1)
        blocking.barrier.go.set()
        for thread in (running, live):
            thread.join()
        assert blocking.barrier.started == [0, 9]


def test_release_passes_over_expired_tickets(clock: FakeClock) -> None:
    """A live ticket does not wait until the threads or timers of expired ones have run."""
    queue = AdmissionQueue(1, 100)
    first = Ticket(AdmissionRequest(Priority.MEDIUM))
    assert queue.acquire(first)
    decided: list[Ticket] = []
    soon = Deadline(clock.now_ns + MS)
    expired = [Ticket(AdmissionRequest(Priority.HIGH, soon), decided.append) for _ in range(6)]
    live = Ticket(AdmissionRequest(Priority.LOW), decided.append)
    for ticket in (*expired, live):
        assert not queue.acquire(ticket)
    clock.advance(MS)
    queue.release(first)
    assert decided == [*expired, live]
    assert [ticket.error is None for ticket in decided] == [False] * 6 + [True]
    assert (queue.running, queue.waiting) == (1, 0)


def test_execution_that_cannot_be_done_in_time_is_rejected_at_once(clock: FakeClock) -> None:
    with blocking_device() as blocking:
        for _ in range(3):
            blocking.prepared.latencies.add(50 * MS)
        soon = clock.now_ns + 30 * MS
        assert rejection(blocking, Sum.of(2), soon) == ErrorStatus.MISSED_DEADLINE_TRANSIENT
        with pytest.raises(HalError, match="no recent execution of this model took less than"):
            blocking.fenced(Sum.of(3).request, deadline_ns=soon)
        assert blocking.barrier.started == []
        blocking.barrier.go.set()
        blocking.prepared.execute_synchronously(Sum.of(4).request, call=ExecutionCall(clock.now_ns + 10**10))
        assert blocking.barrier.started == [4]


def test_executions_are_added_to_the_history() -> None:
    with blocking_device() as blocking:
        blocking.barrier.go.set()
        for _ in range(3):
            blocking.prepared.execute_synchronously(Sum.of(1).request)
        assert blocking.prepared.latencies.min_ns() > 0


def test_latencies_are_ignored_where_the_work_depends_on_values(clock: FakeClock) -> None:
    """The next execution of a WHILE, or of an input of unknown shape, may be far shorter than all before."""
    unknown = tensor(OperandType.TENSOR_FLOAT32, (0,))
    grows = model_of(OperationType.ADD, [(unknown, 0), (unknown, 0), int32(0)], [unknown], constants=False)
    soon = Deadline(clock.now_ns + 10**9)
    for model, known in ((TWICE, True), (grows, False), (loop(less_than(), counts()), False)):
        prepared = prepare(model).prepared_model
        assert prepared is not None
        for _ in range(3):
            prepared.latencies.add(10**12)
        assert (prepared.admission_request(soon, None).min_run_ns == 10**12) == known
        assert prepared.admission_request(NO_DEADLINE, None).min_run_ns == 0


# ---- Fairness between owners ----------------------------------------------------------------------------


def serving_order(requests: list[AdmissionRequest]) -> list[object]:
    """Return the owners of executions that all wait for one slot, in the order in which they get it.

    Each execution takes 2 ms.
    """
    queue = AdmissionQueue(1, 1000, Stopwatch())
    first = Ticket(AdmissionRequest(Priority.MEDIUM, owner="first"))
    queue.acquire(first)
    granted: list[Ticket] = []
    for request in requests:
        queue.acquire(Ticket(request, granted.append))
    queue.release(first)
    for ticket in granted:  # grows with each release
        queue.release(ticket)
    assert queue._owners == {}
    return [ticket.request.owner for ticket in granted]


def test_owners_take_turns_however_much_one_of_them_asks_for() -> None:
    requests = [AdmissionRequest(Priority.MEDIUM, owner="greedy") for _ in range(20)]
    requests += [AdmissionRequest(Priority.MEDIUM, owner="modest") for _ in range(3)]
    assert serving_order(requests)[:8].count("modest") == 3


def test_priorities_do_not_count_between_owners() -> None:
    requests = [AdmissionRequest(Priority.HIGH, owner="pushy") for _ in range(20)]
    requests += [AdmissionRequest(Priority.LOW, owner="modest") for _ in range(3)]
    assert serving_order(requests)[:8].count("modest") == 3


def test_owner_that_returns_gains_nothing_by_its_absence() -> None:
    """Otherwise it could shut out all others for as long as it was away."""
    queue = AdmissionQueue(1, 1000, Stopwatch())
    granted: list[Ticket] = []
    busy = Ticket(AdmissionRequest(Priority.MEDIUM, owner="busy"))
    queue.acquire(busy)
    for _ in range(8):
        queue.acquire(Ticket(AdmissionRequest(Priority.MEDIUM, owner="busy"), granted.append))
    for _ in range(4):
        queue.release(busy)
        busy = granted[-1]
    for _ in range(4):
        queue.acquire(Ticket(AdmissionRequest(Priority.MEDIUM, owner="new"), granted.append))
    for _ in range(6):
        queue.release(granted[-1])
    assert "busy" in [ticket.request.owner for ticket in granted[4:8]]


def test_owner_that_needed_one_slot_saves_up_no_time() -> None:
    """Otherwise it would get more than its share for as long as it left slots to others."""
    time_ns = 0
    queue = AdmissionQueue(3, 1000, lambda: time_ns)
    running: deque[Ticket] = deque()

    def start(owner: str) -> None:
        ticket = Ticket(AdmissionRequest(Priority.MEDIUM, owner=owner), running.append)
        if queue.acquire(ticket):
            running.append(ticket)

    for owner in ("busy", "late", "busy"):
        start(owner)
    for _ in range(50):  # one of the three slots is always used by "late"
        time_ns += MS
        for owner in ("late", "busy", "busy"):
            queue.release(running.popleft())
            start(owner)
        running.rotate(1)
    for owner in ("late", "busy") * 40:
        start(owner)
    served: Counter[object] = Counter()
    for _ in range(30):
        time_ns += MS
        queue.release(ticket := running.popleft())
        served[ticket.request.owner] += 1
    assert max(served.values()) - min(served.values()) <= 2


def test_owners_share_the_slots_while_their_work_runs() -> None:
    """The time of running work is not known yet. Still no owner gets all slots."""
    queue = AdmissionQueue(4, 1000, Stopwatch())
    first = [Ticket(AdmissionRequest(Priority.MEDIUM, owner=owner)) for owner in ("modest", "first", "first", "first")]
    granted: list[Ticket] = []
    for ticket in first:
        queue.acquire(ticket)
    for owner in ("greedy", "modest"):
        for _ in range(4):
            queue.acquire(Ticket(AdmissionRequest(Priority.MEDIUM, owner=owner), granted.append))
    for ticket in first:
        queue.release(ticket)
    assert sorted(str(ticket.request.owner) for ticket in granted) == ["greedy", "greedy", "modest", "modest"]


def test_full_queue_has_room_for_an_owner_with_fewer_tickets() -> None:
    queue = AdmissionQueue(1, 4, Stopwatch())
    queue.acquire(Ticket(AdmissionRequest(Priority.MEDIUM, owner="greedy")))
    decided: list[Ticket] = []
    requests = [AdmissionRequest(priority, owner="greedy") for priority in (1, 0, 2, 0)]
    greedy = [Ticket(request, decided.append) for request in requests]
    for ticket in greedy:
        assert not queue.acquire(ticket)
    with pytest.raises(HalError, match="limit queued_executions"):
        queue.acquire(Ticket(AdmissionRequest(Priority.HIGH, owner="greedy"), decided.append))
    for last in (greedy[3], greedy[1]):
        assert not queue.acquire(Ticket(AdmissionRequest(Priority.LOW, owner="modest"), decided.append))
        assert decided.pop() is last
        assert last.error is not None and last.error.limit == "queued_executions"
    with pytest.raises(HalError, match="limit queued_executions"):
        queue.acquire(Ticket(AdmissionRequest(Priority.HIGH, owner="modest"), decided.append))
    assert (decided, queue.waiting) == ([], 4)


def test_one_owner_uses_all_free_slots() -> None:
    queue = AdmissionQueue(3, 10)
    tickets = [Ticket(AdmissionRequest(Priority.MEDIUM, owner="only")) for _ in range(3)]
    assert all(queue.acquire(ticket) for ticket in tickets)
    for ticket in tickets:
        queue.release(ticket)
    assert queue._owners == {}


def test_an_owner_has_no_more_slots_than_one_may_have() -> None:
    queue = AdmissionQueue(2, 2, per_owner=1)
    granted: list[Ticket] = []
    greedy = [Ticket(AdmissionRequest(Priority.MEDIUM, owner="greedy"), granted.append) for _ in range(3)]
    assert [queue.acquire(ticket) for ticket in greedy] == [True, False, False]
    with pytest.raises(HalError, match="limit queued_executions"):
        queue.acquire(Ticket(AdmissionRequest(Priority.MEDIUM, owner="greedy")))
    modest = Ticket(AdmissionRequest(Priority.MEDIUM, owner="modest"))
    assert queue.acquire(modest), "a slot is free for others"
    queue.release(modest)
    assert (granted, queue.waiting) == ([], 2)
    for ticket in greedy:
        queue.release(ticket)
    assert granted == greedy[1:]
    assert queue._owners == {}


def test_owners_with_one_share_have_slots_as_one_owner() -> None:
    queue = AdmissionQueue(2, 2, per_owner=1)
    share = Share("alice")
    first, second = (
        Ticket(AdmissionRequest(Priority.MEDIUM, owner=ShareOwner(name, share)), lambda ticket: None) for name in "ab"
    )
    assert [queue.acquire(ticket) for ticket in (first, second)] == [True, False]
    queue.release(first)
    assert queue.waiting == 0
    queue.release(second)


def granted(queue: AdmissionQueue, owner: str, decided: list[Ticket] | None = None) -> Ticket:
    """Return a ticket that asks for a slot. If it has to wait, it is appended to `decided` when it gets one."""
    ticket = Ticket(AdmissionRequest(Priority.MEDIUM, owner=owner), None if decided is None else decided.append)
    ticket.is_released = not queue.acquire(ticket)
    return ticket


def test_overdue_work_takes_turns_with_others() -> None:
    clock, decided = FakeClock(0), list[Ticket]()
    queue = AdmissionQueue(1, 100, clock=lambda: clock.now_ns)
    long = granted(queue, "long")
    queue.take_turns(long, None)  # no other work waits
    short = granted(queue, "short", decided)
    queue.take_turns(long, None)  # its turn has not ended
    assert (decided, long.is_released) == ([], False)
    clock.now_ns += TURN_NS + 1
    with ThreadPoolExecutor() as pool:
        pause = pool.submit(queue.take_turns, long, None)
        assert until(lambda: bool(decided))
        clock.now_ns += 7
        short.is_released = False
        queue.release(short)
        pause.result()
    assert (long.is_released, long.paused_ns, queue.running, queue.waiting) == (False, 7, 1, 0)
    queue.release(long)
    assert queue.running == 0


def test_work_that_waits_for_its_turn_can_be_cancelled() -> None:
    clock, cancellation, share = FakeClock(0), Cancellation(), Share("alice", executions=1)
    queue = AdmissionQueue(1, 100, clock=lambda: clock.now_ns, counts_executions=True)
    long = Ticket(AdmissionRequest(Priority.MEDIUM, owner=ShareOwner("s1", share)))
    assert queue.acquire(long)
    other = granted(queue, "other", [])
    clock.now_ns += TURN_NS + 1
    with ThreadPoolExecutor() as pool:
        pause = pool.submit(queue.take_turns, long, cancellation)
        assert until(lambda: long.is_released and queue.running == 1)
        cancellation.cancel()
        with pytest.raises(HalError, match="cancelled"):
            pause.result()
    queue.release(long)  # it has no slot
    other.is_released = False
    queue.release(other)
    assert (queue.running, queue.waiting) == (0, 0)
    share.begin_execution()  # the quota has a free place again
