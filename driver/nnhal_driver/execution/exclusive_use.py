"""Exclusive use of an object that the HAL lets run one execution at a time: a burst, or a reusable execution."""

import threading

from nnhal.errors import general_failure


class ExclusiveUse:
    """Lock that rejects a second user instead of queueing it. A context manager; another thread may release it.

    `rejection`: the reason of the error of a second user.
    """

    def __init__(self, rejection: str) -> None:
        self._rejection = rejection
        self._lock = threading.Lock()
        self.release = self._lock.release

    def acquire(self) -> None:
        """Begin the use.

        Raises:
            HalError: GENERAL_FAILURE: the object is in use.
        """
        if not self._lock.acquire(blocking=False):
            raise general_failure(self._rejection)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
