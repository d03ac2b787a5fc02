"""The same machine, for asyncio: as `nnhal.local`; the event loop waits for the sockets."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Protocol

from nnhal.buffered import AnyOutputs
from nnhal.burst import Kept, Waiting
from nnhal.enums import ErrorStatus
from nnhal.errors import HalError
from nnhal.frames import MAX_BYTES
from nnhal.local import BURST_DEPTH, Doors, Pool, died, outputs_of, start, taken
from nnhal.tensors import Ends, Inputs, Outputs
from nnhal.types import AnyArray, Bytes
from nnhal.v1 import session_pb2

if TYPE_CHECKING:
    from nnhal.lane import Answer, Lane

Sent = Waiting[asyncio.Future[AnyOutputs]]


class OpenSession(Protocol):
    """What lanes need of a connection: see `nnhal.aio_connection.Connection`."""

    async def tidy(self) -> None:
        """Lets go of what is not needed any more."""
        ...

    async def fetch(self, memories: Sequence[bytes]) -> dict[bytes, Bytes]:
        """All bytes of Memory objects, by handle; the objects are let go."""
        ...

    def discard(self, *handles: bytes) -> None:
        """Lets objects go with the next call."""
        ...


async def open_lane(doors: Doors, depth: int) -> "Lane | None":
    """A new lane; None where there is none to be had."""
    opening = asyncio.ensure_future(asyncio.to_thread(doors.lane, depth))
    try:
        lane = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_close_unwanted)
        raise
    if lane is not None:
        lane.connection.setblocking(False)
    return lane


def _close_unwanted(opened: "asyncio.Future[Lane | None]") -> None:
    if not opened.cancelled() and (lane := opened.result()) is not None:
        lane.connection.close()


class Local:
    """Executions of one device's models over its lanes. Close it when done."""

    def __init__(self, opened: session_pb2.SessionOpened, session: OpenSession) -> None:
        self.doors = Doors(opened)
        self._pool = Pool(self.doors)
        self._session = session

    async def execute(
        self, handle: bytes, ends: Ends, inputs: Inputs, deadline: float | None, measure_timing: bool
    ) -> Outputs | None:
        """As `nnhal.local.Local.execute`. When the task is cancelled the service abandons the work."""
        if not ends.are_base_types:
            return None
        arrays = ends.arrays(inputs)
        await self._session.tidy()
        lane = self._pool.take()
        if lane is None and (lane := await self._new_lane()) is None:
            return None
        whole = False
        try:
            try:
                lane.start(handle, ends, arrays, deadline, measure_timing)
            except OSError:
                return None
            answer = await receive_answer(lane)
            outputs = answer.outputs(ends, await fetched(lane, answer, ends, self._session))
            whole = True
            return outputs
        except HalError:
            whole = not lane.broken
            raise
        finally:
            self._pool.give_back(lane, whole=whole)

    async def _new_lane(self) -> "Lane | None":
        if not self._pool.reserve():
            return None
        lane = None
        try:
            lane = await open_lane(self.doors, 1)
            return lane
        finally:
            if lane is None:
                self._pool.give_back(None)

    def close(self) -> None:
        """Ends the lanes."""
        self._pool.close()


async def receive_answer(lane: "Lane") -> "Answer":
    """As `nnhal.local.receive_answer`."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            packet = await loop.sock_recv(lane.connection, MAX_BYTES)
        except OSError:
            packet = b""
        if (answer := taken(lane, packet)) is not None:
            return answer


async def fetched(lane: "Lane", answer: "Answer", ends: Ends, session: OpenSession) -> dict[bytes, Bytes]:
    """As `nnhal.local.fetched`."""
    if not answer.memories:
        return {}
    lane.learn(answer.room(ends))
    return await session.fetch(answer.memories)


class LaneLine:
    """A burst's line (`nnhal.aio_burst.Line`) over a lane of its own."""

    def __init__(self, lane: "Lane", burst: bytes, ends: Ends, session: OpenSession) -> None:
        self._lane = lane
        self._burst = burst
        self._ends = ends
        self._session = session
        self._kept = Kept()
        self._sending = asyncio.Lock()
        self._room = asyncio.Semaphore(BURST_DEPTH)
        self._waiting: deque[Sent] = deque()
        self._arrived = asyncio.Event()
        self._broken: HalError | None = None
        # an execution that is cancelled must not lose the answers of others: one task reads, for all of them
        self._reader = asyncio.create_task(self._read())

    async def execute(self, sent: Sent, deadline: float | None, measure_timing: bool) -> AnyOutputs:
        """See Line."""
        async with self._sending:
            await self._session.tidy()
            await self._room.acquire()
            if self._broken is not None:
                raise self._broken.with_traceback(None)
            try:
                start(self._lane, self._burst, self._ends, sent, deadline, measure_timing, self._kept)
            except OSError:
                self._break(died())
                raise died() from None
            self._waiting.append(sent)
            self._arrived.set()
        return await sent.future

    async def _read(self) -> None:
        """Gives each answer to the execution that was sent longest ago."""
        while True:
            while not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
            await settle(self._waiting[0], self._outputs(self._waiting[0]))
            self._waiting.popleft()
            self._room.release()
            if self._lane.broken:
                self._break(died())
                return

    async def _outputs(self, sent: Sent) -> AnyOutputs:
        answer = await receive_answer(self._lane)
        return outputs_of(answer, self._ends, sent, await fetched(self._lane, answer, self._ends, self._session))

    def _break(self, error: HalError) -> None:
        self._broken = self._broken or error
        while self._waiting:
            sent = self._waiting.popleft()
            if not sent.future.done():
                sent.future.set_exception(error)
        self._room.release()

    def keep(self, array: AnyArray) -> AnyArray:
        """See Line."""
        return self._kept.add(array)

    async def release(self, array: AnyArray) -> None:
        """See Line."""
        identifier = self._kept.remove(array)
        async with self._sending:
            if identifier >= 0 and self._broken is None:
                try:
                    self._lane.release(identifier)
                except OSError:
                    self._break(died())

    async def close(self) -> None:
        """See Line."""
        async with self._sending:
            left = [sent.future for sent in self._waiting]
            if left:
                await asyncio.wait(left)
            self._reader.cancel()
            await asyncio.wait([self._reader])
            self._break(HalError(ErrorStatus.DEVICE_UNAVAILABLE, "the burst has been closed"))
        self._lane.connection.close()
        self._session.discard(self._burst)


async def settle(sent: Sent, work: Awaitable[AnyOutputs]) -> None:
    """Ends a future as the work does, unless its task was cancelled."""
    try:
        outputs = await work
    except HalError as error:
        sent.failed()
        if not sent.future.done():
            sent.future.set_exception(error)
    else:
        if not sent.future.done():
            sent.future.set_result(outputs)
