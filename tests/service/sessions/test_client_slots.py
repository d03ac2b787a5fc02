"""Slots that clients share: one client leaves some to the next ones, and gets back what it gives back."""

import pytest

from nnhal.errors import HalError
from nnhal.types import ErrorStatus
from nnhal_service.sessions.client_slots import ClientSlots
from nnhal_service.sessions.limits import Limits


def acquire_all(slots: ClientSlots, client: str) -> tuple[int, HalError]:
    """Acquire slots until they are refused. Return their number and the error."""
    for number in range(1000):
        try:
            slots.acquire(client)
        except HalError as error:
            return number, error
    raise AssertionError("no slot is refused")


def test_clients_leave_slots_to_others() -> None:
    slots = ClientSlots(Limits({"burst_streams": 100}), "burst_streams")
    number, error = acquire_all(slots, "alice")
    assert (number, error.limit, error.status) == (75, "burst_streams", ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT)
    assert "alice has 75 of 100 streams; the remaining 25 are for others" in error.reason
    assert acquire_all(slots, "bob")[0] == 19
    for number in range(2):
        assert acquire_all(slots, f"other {number}")[0] > 0


def test_released_slots_are_free() -> None:
    slots = ClientSlots(Limits({"burst_streams": 2}), "burst_streams")
    assert acquire_all(slots, "alice")[0] == 2
    slots.release("alice")
    slots.acquire("bob")
    slots.release("alice")
    slots.acquire("bob")
    with pytest.raises(HalError):
        slots.acquire("alice")
