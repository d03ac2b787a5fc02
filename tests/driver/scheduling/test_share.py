"""Shares: several owners that count as one, weights and quotas."""

from collections import Counter

import pytest

from nnhal.errors import HalError
from nnhal.types import Priority
from nnhal_driver.scheduling.admission import AdmissionQueue
from nnhal_driver.scheduling.share import Share, ShareOwner
from nnhal_driver.scheduling.ticket import AdmissionRequest, Ticket
from tests.driver.clock import MS


class Device:
    """Queue whose work takes 2 ms of a clock that only the work advances."""

    def __init__(self, width: int = 1) -> None:
        self.now_ns = 0
        self.queue = AdmissionQueue(width, 10_000, lambda: self.now_ns, counts_executions=True)
        self.running: list[Ticket] = []

    def start(self, owner: object) -> Ticket:
        ticket = Ticket(AdmissionRequest(Priority.MEDIUM, owner=owner), self.running.append)
        if self.queue.acquire(ticket):
            self.running.append(ticket)
        return ticket

    def finish(self, count: int) -> Counter[str]:
        """Run work that has a slot, in order, and return how often that was work of each client."""
        served: Counter[str] = Counter()
        for _ in range(count):
            self.now_ns += 2 * MS
            ticket = self.running.pop(0)
            owner = ticket.request.owner
            served[owner.share.name if isinstance(owner, ShareOwner) else str(owner)] += 1
            self.queue.release(ticket)
        return served


def owners(share: Share, count: int) -> list[ShareOwner]:
    return [ShareOwner(f"s{number}", share) for number in range(count)]


@pytest.mark.parametrize("width", [1, 2, 4])
def test_many_sessions_of_one_client_have_one_share(width: int) -> None:
    device = Device(width)
    (one,), many = owners(Share("one"), 1), owners(Share("many"), 8)
    for _ in range(20):
        for owner in (*many, one, "alone"):
            device.start(owner)
    served = device.finish(45)
    assert max(served.values()) - min(served.values()) <= width


def test_sessions_of_one_client_take_turns() -> None:
    device = Device()
    first, second = owners(Share("one"), 2)
    for owner in [first] * 20 + [second] * 3:
        device.start(owner)
    order = []
    for _ in range(8):
        order.append(device.running[0].request.owner)
        device.finish(1)
    assert order.count(second) == 3


@pytest.mark.parametrize("width", [1, 2, 4])
def test_weights_are_shares_of_the_time(width: int) -> None:
    device = Device(width)
    heavy, light = ShareOwner("h", Share("heavy", 3.0)), ShareOwner("l", Share("light"))
    for _ in range(400):
        device.start(heavy)
        device.start(light)
    device.finish(20)
    served = device.finish(200)
    assert served["heavy"] / served["light"] == pytest.approx(3, rel=0.1)


def test_a_client_with_a_weight_does_not_starve_others() -> None:
    device, heavy = Device(2), ShareOwner("h", Share("heavy", 1000.0))
    for _ in range(100):
        device.start(heavy)
    device.start("alone")
    assert device.finish(10)["alone"] == 1


def test_executions_in_flight_have_a_quota() -> None:
    device = Device()
    share = Share("identity token:few", executions=3)
    for owner in owners(share, 3):
        device.start(owner)
    with pytest.raises(HalError) as caught:
        device.start(ShareOwner("s9", share))
    assert caught.value.limit == "identity_executions"
    assert "identity token:few has 3 executions in flight; its quota is 3" in caught.value.reason
    device.start("alone")
    device.finish(1)
    device.start(ShareOwner("s9", share))
    device.finish(4)
    for owner in owners(share, 3):
        device.start(owner)


def test_running_time_has_a_quota_in_each_second() -> None:
    now_ns = [0]
    share = Share("identity token:slow", device_seconds=0.5, clock=lambda: now_ns[0])
    share.require_time()
    share.spend(500 * MS)
    with pytest.raises(
        HalError, match=r"its quota of 0\.5 s in each second; it may use it again in 1\.000 s"
    ) as caught:
        share.require_time()
    assert caught.value.limit == "identity_device_seconds"
    now_ns[0] += 1000 * MS
    share.require_time()
    now_ns[0] += 10**12  # only one second can be saved up
    share.spend(600 * MS)
    with pytest.raises(HalError):
        share.require_time()


def test_a_queue_forgets_clients_without_work() -> None:
    device = Device()
    share = Share("one", 2.0)
    for owner in owners(share, 3):
        device.start(owner)
    withdrawn = device.start(ShareOwner("s9", share))
    assert device.queue.withdraw(withdrawn, HalError(1, "cancelled"))
    device.running.remove(withdrawn)
    device.finish(3)
    assert not device.queue._owners
    assert not device.queue._groups
    assert device.queue._weighted == 0
