"""Exclusive use: a second user is rejected until the first one has finished."""

import threading

import pytest

from nnhal.errors import HalError
from nnhal.types import ErrorStatus
from nnhal_driver.execution.exclusive_use import ExclusiveUse


def test_second_user_is_rejected() -> None:
    use = ExclusiveUse("taken")
    with use:
        with pytest.raises(HalError, match="taken") as caught:
            use.acquire()
        assert caught.value.status == ErrorStatus.GENERAL_FAILURE
    with use:
        pass


def test_use_ends_with_an_error() -> None:
    use = ExclusiveUse("taken")
    with pytest.raises(ZeroDivisionError), use:
        _ = 1 / 0
    use.acquire()


def test_another_thread_may_end_the_use() -> None:
    use = ExclusiveUse("taken")
    use.acquire()
    thread = threading.Thread(target=use.release)
    thread.start()
    thread.join()
    use.acquire()
