"""Back-off: at once after rare crashes, slower after many, and an end after failed starts."""

from nnhal_service.supervisor.restarts import MAX_FAILED_STARTS, STABLE_S, RestartPolicy


def test_first_crashes_are_restarted_at_once() -> None:
    policy = RestartPolicy()
    assert [policy.delay(1.0, crashed=True) for _ in range(2)] == [0, 0]


def test_delays_grow_up_to_a_limit() -> None:
    policy = RestartPolicy()
    delays = [policy.delay(0.5, crashed=True) for _ in range(20)]
    assert delays == sorted(delays)
    assert 0 < delays[2] < delays[4]
    assert delays[-1] == delays[-2] == 5.0


def test_stable_worker_is_restarted_at_once_again() -> None:
    policy = RestartPolicy()
    for _ in range(10):
        policy.delay(0.5, crashed=True)
    assert policy.delay(STABLE_S, crashed=True) == 0


def test_kills_from_outside_do_not_count() -> None:
    policy = RestartPolicy()
    assert {policy.delay(0.01, crashed=False) for _ in range(100)} == {0}


def test_failed_starts_exhaust_the_policy_unless_one_succeeds() -> None:
    policy = RestartPolicy()
    for _ in range(MAX_FAILED_STARTS - 1):
        assert policy.delay(None, crashed=True) > 0
    assert not policy.has_failed_too_often
    policy.note_serving()
    for _ in range(MAX_FAILED_STARTS - 1):
        policy.delay(None, crashed=True)
    assert not policy.has_failed_too_often
    policy.delay(None, crashed=True)
    assert policy.has_failed_too_often
