"""Report on a service: what its agent makes of the totals."""

from nnhal_service.peers.fleet.member_report import WaitMeter


def test_the_wait_is_that_of_the_executions_since_the_last_report() -> None:
    now = 0.0
    meter = WaitMeter(lambda: now)
    assert meter.update(0, 0.0, 0) == 0.0
    assert meter.update(10, 5.0, 3) == 0.5
    assert meter.update(12, 5.5, 3) == 0.25
    now = 2.0
    assert meter.update(12, 5.5, 3) == 2.25, "those that wait have done so since"
    now = 3.0
    assert meter.update(12, 5.5, 0) == 0.0, "nothing waits"
    assert meter.update(2, 1.0, 3) == 0.0, "the service has been started again"
    assert meter.update(4, 2.0, 0) == 0.5
