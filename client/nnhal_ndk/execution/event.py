"""Events: computations in progress, and sync fences of the system."""

import logging
import os
import select
import threading
from collections.abc import Callable
from concurrent.futures import Future

from nnhal_ndk.api.constants import ResultCode
from nnhal_ndk.results import NdkError, bad_data, op_failed

_log = logging.getLogger("nnhal.ndk")

NO_DESCRIPTOR = -1


class NdkEvent:
    """Event of the program: something that ends once, with a result code."""

    def code(self) -> ResultCode:
        """Wait for the end and return its code."""
        raise NotImplementedError

    def on_end(self, callback: Callable[[ResultCode], None]) -> None:
        """Call a function at the end, in any thread; at once if it has ended."""
        raise NotImplementedError

    def descriptor(self) -> int:
        """Return a new descriptor that becomes readable at the end, or NO_DESCRIPTOR."""
        raise NotImplementedError

    def close(self) -> None:
        """Free the event, after a computation has ended, which uses memory until then."""
        raise NotImplementedError

    def wait(self) -> None:
        """Wait for the end.

        Raises:
            NdkError: the code of the end, if it failed.
        """
        code = self.code()
        if code != ResultCode.NO_ERROR:
            raise NdkError(code, "the event has ended in error")

    def duplicate_descriptor(self) -> int:
        """Return a descriptor that becomes readable at the end. The caller closes it.

        Raises:
            NdkError: BAD_DATA: the event has none. The C function then returns -1.
        """
        descriptor = self.descriptor()
        if descriptor == NO_DESCRIPTOR:
            raise NdkError(ResultCode.BAD_DATA, "the event has no sync fence", (NO_DESCRIPTOR,))
        return descriptor


class ComputationEvent(NdkEvent):
    """End of a computation."""

    def __init__(self, future: "Future[ResultCode]", *, is_fenced: bool) -> None:
        self._future = future
        self._is_fenced = is_fenced

    def code(self) -> ResultCode:
        """Wait for the end and return its code."""
        return self._future.result()

    def on_end(self, callback: Callable[[ResultCode], None]) -> None:
        """Call a function at the end."""
        self._future.add_done_callback(lambda future: callback(future.result()))

    def descriptor(self) -> int:
        """Return a new descriptor that becomes readable at the end."""
        if not self._is_fenced:
            return NO_DESCRIPTOR
        signal = os.eventfd(0, os.EFD_CLOEXEC)
        given = os.dup(signal)
        self._future.add_done_callback(lambda _: _signal(signal))
        return given

    def close(self) -> None:
        """Wait for the end."""
        self._future.result()


def _signal(descriptor: int) -> None:
    os.eventfd_write(descriptor, 1)
    os.close(descriptor)


class SyncFenceEvent(NdkEvent):
    """Sync fence of the system: a descriptor that becomes readable when it is signalled.

    Raises:
        NdkError: BAD_DATA: it is not a descriptor.
    """

    def __init__(self, descriptor: int) -> None:
        if descriptor <= 0:
            raise bad_data(f"{descriptor} is not a sync fence")
        try:
            self._descriptor = os.dup(descriptor)
        except OSError as error:
            raise bad_data(f"descriptor {descriptor} cannot be used: {error}") from None

    def code(self) -> ResultCode:
        """Wait for the signal."""
        return _wait_for_signal(self._descriptor)

    def on_end(self, callback: Callable[[ResultCode], None]) -> None:
        """Call a function when it is signalled, from a thread of its own. The event may be freed before."""
        try:
            descriptor = os.dup(self._descriptor)
        except OSError as error:
            _log.error("a dependency cannot be waited for: %s", error)
            callback(ResultCode.OP_FAILED)
            return

        def run() -> None:
            code = _wait_for_signal(descriptor)
            os.close(descriptor)
            callback(code)

        threading.Thread(target=run, name="nnhal-ndk-fence", daemon=True).start()

    def descriptor(self) -> int:
        """Return a duplicate of the descriptor."""
        return os.dup(self._descriptor)

    def close(self) -> None:
        """Close the descriptor, without waiting: nothing of this process depends on the fence."""
        os.close(self._descriptor)


def _wait_for_signal(descriptor: int) -> ResultCode:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    ((_, events),) = poll.poll()
    return ResultCode.OP_FAILED if events & (select.POLLERR | select.POLLNVAL) else ResultCode.NO_ERROR


def after_all(events: list[NdkEvent], then: Callable[[NdkError | None], None]) -> None:
    """Call a function when all events have ended: with an error if one of them failed."""
    remaining = len(events) + 1
    failure: NdkError | None = None
    lock = threading.Lock()

    def count(code: ResultCode) -> None:
        nonlocal remaining, failure
        with lock:
            remaining -= 1
            if code != ResultCode.NO_ERROR:
                failure = op_failed(f"a dependency has failed with {code.name}")
            is_last = remaining == 0
        if is_last:
            then(failure)

    for event in events:
        event.on_end(count)
    count(ResultCode.NO_ERROR)
