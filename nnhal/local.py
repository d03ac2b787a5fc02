"""The same machine: executions over the data socket, their tensors in shared memory. gRPC stays for everything else.

A device has a few lanes, opened as they are needed; a burst has one of its own. Where a lane cannot be had the caller
uses gRPC. What was sent is never repeated by itself: see `nnhal.connection`.
"""

import itertools
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Literal, Protocol, TypeVar

from nnhal.buffered import AnyOutputs
from nnhal.burst import Kept, LineBroken, Sent, Waiting
from nnhal.enums import ErrorStatus
from nnhal.errors import DeadObjectError, HalError
from nnhal.frames import Malformed
from nnhal.tensors import Ends, Inputs, Outputs
from nnhal.types import Bytes
from nnhal.v1 import session_pb2

if sys.platform == "linux":
    from nnhal import data_socket
    from nnhal.lane import Answer, Lane, SetupFailed

Transport = Literal["auto", "grpc"]
"""How executions travel: "auto" uses shared memory where the service is on the same machine."""

LANES = 8
"""Of one device, bursts aside; more executions at once than that go over gRPC."""
BURST_DEPTH = 4
"""Executions of one burst that may be on their way."""

F = TypeVar("F")
Fetch = Callable[[Sequence[bytes]], dict[bytes, Bytes]]


class OpenSession(Protocol):
    """What lanes need of a connection: see `nnhal.connection.Connection`."""

    def tidy(self) -> None:
        """Lets go of what is not needed any more."""
        ...

    def fetch(self, memories: Sequence[bytes]) -> dict[bytes, Bytes]:
        """All bytes of Memory objects, by handle; the objects are let go."""
        ...

    def discard(self, *handles: bytes) -> None:
        """Lets objects go with the next call."""
        ...


def is_near(target: str) -> bool:
    """Whether a target may be on this machine."""
    host = target.rpartition(":")[0].strip("[]")
    near = target.startswith("unix:") or host in ("localhost", "::1") or host.startswith("127.")
    return near and sys.platform == "linux"


class Doors:
    """Opens lanes of one session."""

    def __init__(self, opened: session_pb2.SessionOpened) -> None:
        self._opened = opened
        self._numbers = itertools.count(1)
        self._closed = not opened.data_socket

    def lane(self, depth: int) -> "Lane | None":
        """A new lane; None where there is none to be had."""
        if self._closed:
            return None
        opened = self._opened
        try:
            connection = data_socket.connect(opened.data_socket, opened.session, opened.data_secret)
        except OSError:
            self._closed = True  # the service is elsewhere, or lets this user not in: that stays so
            return None
        except (HalError, Malformed):
            return None
        return Lane(connection, self._numbers, depth)


class Pool:
    """The idle lanes of a device. Thread safe. Close it when done."""

    def __init__(self, doors: Doors) -> None:
        self.doors = doors
        self._idle: list[Lane] = []
        self._count = 0
        self._closed = False
        self._lock = threading.Lock()

    def take(self) -> "Lane | None":
        """An idle lane."""
        with self._lock:
            return self._idle.pop() if self._idle else None

    def reserve(self) -> bool:
        """Whether there may be another lane; it is counted then."""
        with self._lock:
            if self._closed or self._count >= LANES:
                return False
            self._count += 1
            return True

    def give_back(self, lane: "Lane | None", *, whole: bool = False) -> None:
        """Takes a lane back; one that is not whole, or was not to be had, is counted no more."""
        with self._lock:
            if lane is not None and whole and not self._closed:
                self._idle.append(lane)
                return
            self._count -= 1
        if lane is not None:
            lane.connection.close()

    def close(self) -> None:
        """Ends the idle lanes, and the others as they come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            self._count -= len(idle)
        for lane in idle:
            lane.connection.close()


class Local:
    """Executions of one device's models over its lanes. Thread safe. Close it when done.

    Args:
        session: the device's connection.
    """

    def __init__(self, opened: session_pb2.SessionOpened, session: OpenSession) -> None:
        self.doors = Doors(opened)
        self._pool = Pool(self.doors)
        self._session = session

    def execute(
        self, handle: bytes, ends: Ends, inputs: Inputs, deadline: float | None, measure_timing: bool
    ) -> Outputs | None:
        """Executes; None where no lane is to be had, or a type has no known size, and nothing was done.

        Raises:
            HalError: as PreparedModel.execute; DeadObjectError: the service died during the execution.
        """
        if not ends.are_base_types:
            return None
        arrays = ends.arrays(inputs)
        self._session.tidy()
        with self._lane() as lane:
            if lane is None:
                return None
            try:
                lane.start(handle, ends, arrays, deadline, measure_timing)
            except OSError:
                raise _Unusable from None
            answer = receive_answer(lane)
            return answer.outputs(ends, fetched(lane, answer, ends, self._session.fetch))

    @contextmanager
    def _lane(self) -> "Iterator[Lane | None]":
        lane = self._pool.take()
        if lane is None and self._pool.reserve():
            lane = self.doors.lane(1)
            if lane is None:
                self._pool.give_back(None)
        whole = False
        try:
            yield lane
            whole = True
        except _Unusable:
            pass
        except HalError:
            whole = lane is not None and not lane.broken
            raise
        finally:
            if lane is not None:
                self._pool.give_back(lane, whole=whole)

    def close(self) -> None:
        """Ends the lanes."""
        self._pool.close()


class _Unusable(Exception):
    """A lane broke before the execution was sent."""


def receive_answer(lane: "Lane") -> "Answer":
    """Waits for the answer to the execution sent longest ago.

    Raises:
        HalError: the execution failed; the lane is `broken` where it cannot be used again.
    """
    while True:
        try:
            packet = lane.receive()
        except OSError:
            packet = b""
        if (answer := taken(lane, packet)) is not None:
            return answer


def taken(lane: "Lane", packet: bytes) -> "Answer | None":
    """What a packet answers; None for what is no execution.

    Raises:
        HalError: as `receive_answer`.
    """
    if not packet:
        lane.broken = True
        raise died()
    try:
        return lane.finish(packet)
    except SetupFailed as error:
        lane.broken = True
        raise error.error from None


def died() -> DeadObjectError:
    """The error of an execution whose connection ended."""
    return DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, "the service ended the data connection during an execution")


def fetched(lane: "Lane", answer: "Answer", ends: Ends, fetch: Fetch) -> dict[bytes, Bytes]:
    """The bytes of the outputs of an answer that are too large for the lane, by handle; the next have room there."""
    if not answer.memories:
        return {}
    lane.learn(answer.room(ends))
    return fetch(answer.memories)


def start(
    lane: "Lane",
    burst: bytes,
    ends: Ends,
    sent: Waiting[F],
    deadline: float | None,
    measure_timing: bool,
    kept: Kept,
) -> None:
    """Sends an execution of a burst.

    Raises:
        OSError: the connection is broken.
    """
    identifiers = kept.identifiers(sent.arrays)
    if sent.buffered is None:
        lane.start(burst, ends, sent.arrays, deadline, measure_timing, identifiers)
    else:
        lane.start_buffered(burst, ends, sent.buffered, deadline, measure_timing, identifiers)


def outputs_of(answer: "Answer", ends: Ends, sent: Waiting[F], memories: dict[bytes, Bytes]) -> AnyOutputs:
    """The outputs of an execution of a burst. `memories`: see `fetched`."""
    if sent.buffered is None:
        return answer.outputs(ends, memories)
    return answer.buffered_outputs(ends, memories, sent.buffered)


class LaneLine:
    """A burst's line (`nnhal.burst.Line`) over a lane of its own."""

    depth = BURST_DEPTH

    def __init__(self, lane: "Lane", burst: bytes, ends: Ends, session: OpenSession) -> None:
        self.kept = Kept()
        self._lane = lane
        self._burst = burst
        self._ends = ends
        self._session = session

    def send(self, sent: Sent, deadline: float | None, measure_timing: bool) -> None:
        """See Line."""
        self._session.tidy()
        try:
            start(self._lane, self._burst, self._ends, sent, deadline, measure_timing, self.kept)
        except OSError:
            raise LineBroken(died()) from None

    def release(self, identifier: int) -> Sent | None:
        """See Line. Its answers are passed over."""
        try:
            self._lane.release(identifier)
        except OSError:
            raise LineBroken(died()) from None
        return None

    def receive(self, sent: Sent) -> AnyOutputs:
        """See Line."""
        try:
            answer = receive_answer(self._lane)
            memories = fetched(self._lane, answer, self._ends, self._session.fetch)
            return outputs_of(answer, self._ends, sent, memories)
        except HalError as error:
            if self._lane.broken:
                raise LineBroken(error) from None
            raise

    def close(self) -> None:
        """See Line."""
        with suppress(OSError):  # the service was faster
            self._lane.connection.shutdown(socket.SHUT_RDWR)  # also for a thread that waits for an answer
        self._lane.connection.close()
        self._session.discard(self._burst)
