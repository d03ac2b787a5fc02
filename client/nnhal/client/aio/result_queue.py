"""Executions in progress on a transport of a burst. `nnhal.client.sync.result_queue` has the same names for threads."""

import asyncio
from collections import deque
from typing import Protocol, TypeAlias

from nnhal.client.aio.connection import Connection
from nnhal.client.core.buffered_execution import AnyOutputs
from nnhal.client.core.burst import PendingExecution, TransportClosed, burst_closed_error
from nnhal.errors import HalError

Pending: TypeAlias = PendingExecution[asyncio.Future[AnyOutputs]]


def new_result() -> asyncio.Future[AnyOutputs]:
    """Return what takes the result of an execution."""
    return asyncio.get_running_loop().create_future()


class BurstTransport(Protocol):
    """Transport of the executions of a burst. At most one task sends, and one receives, at a time."""

    depth: int
    """Largest number of executions in progress."""

    async def send(self, execution: Pending) -> None:
        """Send an execution.

        Raises:
            TransportClosed: the transport cannot be used any more.
            HalError: the service accepts no more memory.
        """

    def release(self, identifier: int) -> bool:
        """Release a cached input. Return whether there will be a response."""

    async def receive(self, execution: Pending) -> AnyOutputs:
        """Wait for the outputs of the execution that was sent longest ago.

        Raises:
            TransportClosed: no response will ever come.
            HalError: the execution failed.
        """

    def close(self) -> None:
        """Close the transport."""


class ResultQueue:
    """Executions in progress on a transport. They are sent, and answered, in the order of the calls.

    One task reads all results, so that cancelling an execution loses no result of another one.

    Attributes:
        error: why the transport cannot be used any more, or None.
    """

    def __init__(self, transport: BurstTransport, connection: Connection) -> None:
        self.transport = transport
        self.connection = connection
        self.error: HalError | None = None
        self._sending = asyncio.Lock()
        self._slots = asyncio.Semaphore(transport.depth)
        self._in_progress: deque[Pending] = deque()
        self._sent = asyncio.Event()
        self._reader = asyncio.create_task(self._read())
        self._reader.add_done_callback(lambda _: transport.close())  # only then is nothing waiting for it
        self._closing: asyncio.Task[None] | None = None

    async def send(self, execution: Pending) -> None:
        """Send an execution, as soon as fewer than the depth of the transport are in progress.

        Raises:
            HalError: the transport is closed, or the service accepts no more memory.
        """
        async with self._sending:
            await self._take_slot()
            try:
                await self.transport.send(execution)
            except TransportClosed as closed:
                self._fail(closed.error)
                raise closed.error from None
            except BaseException:
                self._slots.release()
                raise
            self._add(execution)

    async def _take_slot(self) -> None:
        await self._slots.acquire()
        if self.error is not None:
            self._slots.release()  # all others that wait fail, too
            raise self.error.with_traceback(None)

    def _add(self, execution: Pending) -> None:
        self._in_progress.append(execution)
        self._sent.set()

    async def wait(self, execution: Pending) -> AnyOutputs:
        """Wait for the outputs of an execution that was sent.

        Raises:
            HalError: it failed.
        """
        return await execution.future

    async def release(self, identifier: int) -> None:
        """Release a cached input."""
        async with self._sending:
            if self.error is not None:
                return
            await self._take_slot()
            if not self.transport.release(identifier):
                self._slots.release()
                return
            response: Pending = PendingExecution((), new_result())
            response.future.add_done_callback(_ignore_error)
            self._add(response)

    async def _read(self) -> None:
        """Give each result to the execution sent longest ago, until the transport ends."""
        while True:
            while not self._in_progress:
                self._sent.clear()
                await self._sent.wait()
            execution = self._in_progress[0]
            try:
                outputs = await self.transport.receive(execution)
            except TransportClosed as closed:
                self._fail(closed.error)
                return
            except HalError as error:
                execution.fail(error)
            else:
                execution.succeed(outputs)
            self._in_progress.popleft()
            self._slots.release()

    def _fail(self, error: HalError) -> None:
        """Close the transport, with the error of all executions in progress and to come."""
        self.error = self.error or error
        self._reader.cancel()
        while self._in_progress:
            self._in_progress.popleft().fail(error)
        self._slots.release()

    def retire(self) -> None:
        """Close the transport when the executions in progress have ended. There will be no others."""
        self._closing = asyncio.create_task(self.close())

    async def close(self) -> None:
        """Wait for the executions in progress, then close the transport."""
        async with self._sending:
            if self._in_progress:
                await asyncio.wait([execution.future for execution in self._in_progress])
            self._fail(burst_closed_error())
            await asyncio.wait([self._reader])


def _ignore_error(future: asyncio.Future[AnyOutputs]) -> None:
    """Mark the error of a future as retrieved, because no task waits for it."""
    if not future.cancelled():
        future.exception()
