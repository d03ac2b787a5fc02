"""Time limit of the process that copies models."""

import signal
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("fsspec", reason="the extra `share` is not installed")

from nnhal_service.supervisor.mirror.main import time_limit


@pytest.fixture(autouse=True)
def restored_handler() -> Iterator[None]:
    handler = signal.getsignal(signal.SIGALRM)
    yield
    signal.signal(signal.SIGALRM, handler)


def test_request_that_hangs_is_interrupted() -> None:
    with pytest.raises(TimeoutError, match="did not answer in time"), time_limit(0.001):
        threading.Event().wait()


def test_other_work_is_not_interrupted() -> None:
    with time_limit(1000):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    with pytest.raises(ValueError, match="other"), time_limit(1000):
        raise ValueError("other")
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
