"""The circuit breaker, with a clock of the test."""

from nnhal_service.peers.cache_share.breaker import CircuitBreaker


def test_pauses_grow_and_end_with_a_success() -> None:
    now, changes = [0.0], list[str]()
    breaker = CircuitBreaker(changes.append, lambda: now[0])
    for _ in range(2):
        breaker.fail("slow")
    breaker.succeed()
    for _ in range(2):
        breaker.fail("slow")
    assert not breaker.is_open and breaker.refusal() == "", "there were not three failures in a row"
    breaker.fail("gone")
    assert changes == ["gone"] and breaker.refusal() == "gone"
    for pause_s in (5, 10, 20, 40, 80, 160, 300, 300):
        now[0] += pause_s - 0.5
        assert breaker.refusal() == "gone"
        now[0] += 1
        assert breaker.refusal() == "", "one attempt is admitted"
        assert breaker.refusal() == "gone", "and no other one"
        breaker.fail("gone")
    assert changes == ["gone"], "it is told once"
    breaker.succeed()
    assert changes == ["gone", ""] and breaker.refusal() == ""
