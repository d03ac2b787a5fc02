"""The collector is paused by one at a time, and never for good."""

import gc

from nnhal_driver.scheduling.paced_check import pause_collector


def test_pause_ends_with_the_context() -> None:
    with pause_collector():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_work_that_overlaps_does_not_prolong_the_pause() -> None:
    first, second = pause_collector(), pause_collector()
    with first:
        second.__enter__()
    assert gc.isenabled()
    second.__exit__(None, None, None)
    assert gc.isenabled()


def test_application_that_has_stopped_the_collector_keeps_it_stopped() -> None:
    gc.disable()
    try:
        with pause_collector():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
