"""The data socket: descriptors and executions of clients on the same machine (docs/same-machine.md).

A Unix socket in the abstract namespace, which leaves nothing behind in any folder. Who connects must be a user that is
allowed, and then present a session and its secret. Each connection has a thread of its own, which this module starts
and ends: asyncio cannot receive descriptors. A client that lies, stalls or dies loses its connection, and what it
shared over it.
"""

import os
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from google.protobuf.message import DecodeError

from driver.burst import Burst
from driver.cancellation import Cancellation
from driver.deadline import now_ns
from driver.memory import ValidRequest
from driver.prepared_model import PreparedModel
from nnhal import frames, wire
from nnhal.alertness import Alertness
from nnhal.errors import HalError, invalid_argument
from nnhal.frames import Definition, Frame, Kind, Malformed, Output, Place
from nnhal.types import OMITTED, PROT_WRITE, Bytes, ExecutionConfig, ExecutionResult, OutputShape
from nnhal.v1 import types_pb2
from service.limits import Limits, MemoryQuota
from service.log import event
from service.memory import read_memory
from service.returning import Returning
from service.rpc import error_detail, internal
from service.sessions import Session, Sessions, session_lost
from service.shared_memory import map_memory
from service.succession import Succession

PREFIX = "@nnhal-"
"""Of the socket's name; @ stands for the zero byte that abstract names begin with."""

GREETING_S = 5
"""Seconds that a connection has to say whose it is."""
SENDING_S = 5
"""Seconds that a client has to take an answer."""
LONGEST_LOOK_S = 100e-6
"""A request that comes later than this after the answer to the one before is slept for."""
ALIGNMENT = 64
"""Of outputs in the area for returned ones."""

_BACKLOG = 64
_MAX_DESCRIPTORS = 4
_DESCRIPTOR = struct.Struct("i")
_ANCILLARY = socket.CMSG_SPACE(_MAX_DESCRIPTORS * _DESCRIPTOR.size)
_CREDENTIALS = struct.Struct("3i")
# as numbers: what an enumeration of flags computes costs microseconds
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC)
_CUT_OFF = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True)
class SharingService:
    """What every connection needs."""

    sessions: Sessions
    limits: Limits
    quota: MemoryQuota


_Received: TypeAlias = tuple[int, list[tuple[int, int, bytes]], int, Any]
"""Bytes, ancillary data, flags, sender."""


class DataSocket:
    """Listens, and owns the connections. `start` it; close it when done.

    Args:
        users: user ids that may connect.

    Attributes:
        name: what clients are told.
    """

    def __init__(self, service: SharingService, users: Collection[int]) -> None:
        self.name = PREFIX + secrets.token_hex(16)
        self._service = service
        self._users = frozenset(users)
        self._connections: dict[_Connection, threading.Thread] = {}
        self._watched: dict[int, _Connection] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._watcher = threading.Thread(target=self._watch, name="nnhal-data", daemon=True)

    def start(self) -> None:
        """Listens."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind("\0" + self.name[1:])
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)
        self._events = select.epoll()
        self._events.register(self._listener, select.EPOLLIN)
        self._watcher.start()

    def close(self) -> None:
        """Ends every connection and thread."""
        with self._lock:
            self._closed = True
            left = dict(self._connections)
        self._listener.shutdown(socket.SHUT_RDWR)
        self._watcher.join()
        self._events.close()
        self._listener.close()
        for connection, thread in left.items():
            connection.end("the service stops")
            thread.join()

    def _watch(self) -> None:
        """Takes new connections; and looks for clients that go while their thread executes, and sees nothing."""
        listener = self._listener.fileno()
        while not self._closed:
            ready = {descriptor for descriptor, _ in self._events.poll()}
            # first those that went: a connection that is accepted afterwards may get the number of one of them
            self._end_gone(ready - {listener})
            if listener in ready:
                self._accept()

    def _end_gone(self, descriptors: Collection[int]) -> None:
        for descriptor in descriptors:
            if connection := self._watched.get(descriptor):
                connection.end("the client has gone")

    def _accept(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if not self._closed:
                event("data-refused", reason=str(error))
                time.sleep(0.1)  # no descriptor is left, perhaps: those that are open go on
            return
        accepted.setblocking(True)
        try:
            self._take(accepted)
        except (HalError, OSError, RuntimeError) as error:
            event("data-refused", reason=str(error))
            accepted.close()

    def _take(self, accepted: socket.socket) -> None:
        """Starts the thread of a connection.

        Raises:
            HalError: its user is not allowed, or there are too many; OSError, RuntimeError: it has gone, no thread.
        """
        _, user, _ = _CREDENTIALS.unpack(accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        if user not in self._users:
            raise invalid_argument(f"user {user} may not use the data socket")
        connection = _Connection(self._service, accepted)
        thread = threading.Thread(target=self._serve, args=(connection,), name="nnhal-data", daemon=True)
        with self._lock:
            self._service.limits.hold("data_connections", len(self._connections) + 1, "the service would have")
            if self._closed:
                raise invalid_argument("the service stops")
            # before its thread, which may close the socket at once
            self._events.register(accepted, select.EPOLLRDHUP | select.EPOLLET)
            thread.start()
            self._connections[connection] = thread
            self._watched[connection.number] = connection

    def _serve(self, connection: "_Connection") -> None:
        try:
            connection.serve()
        finally:
            with self._lock:
                del self._connections[connection]
                # its number may be another connection's by now
                if self._watched.get(connection.number) is connection:
                    del self._watched[connection.number]


class _Connection:
    """One connection, served by one thread; `end` may come from any."""

    def __init__(self, service: SharingService, accepted: socket.socket) -> None:
        self._service = service
        self._socket = accepted
        self.number = accepted.fileno()
        self._session: Session | None = None
        self._executions = Succession()
        self._numbers: set[int] = set()
        self._requests: dict[int, _Defined] = {}
        self._room = memoryview(bytearray(frames.MAX_BYTES))
        self._alertness = Alertness(LONGEST_LOOK_S)

    def end(self, why: str) -> None:
        """Gives up what is running, and makes the thread find the end of the stream. Never waits."""
        self._executions.cancel()
        with suppress(OSError):  # the client was faster
            self._socket.shutdown(socket.SHUT_RD)

    def serve(self) -> None:
        """Answers until one side ends it."""
        try:
            with self._socket:
                _set_timeout(self._socket, socket.SO_SNDTIMEO, SENDING_S)
                _set_timeout(self._socket, socket.SO_RCVTIMEO, GREETING_S)
                while self._serve_one() and self._session is not None:
                    pass
        except (Malformed, OSError) as error:
            event("data-ended", session=self._session.name if self._session else "-", reason=str(error))
        finally:
            self._let_go()

    def _serve_one(self) -> bool:
        """Answers one request; gives False at the end of the stream."""
        packet, descriptors = self._receive()
        try:
            if packet:
                self._socket.send(self._answer(packet, descriptors).pack())
            return bool(packet)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _receive(self) -> tuple[bytes, list[int]]:
        """The next packet and its descriptors, which the caller closes; b"" at the end of the stream.

        Raises:
            Malformed: packet or descriptors were cut off; OSError: nothing came in time, or the connection broke.
        """
        size, ancillary, flags, _ = self._alertness.receive(self._receive_into)
        descriptors: list[int] = []
        for _, _, data in ancillary:
            descriptors += [number for (number,) in _DESCRIPTOR.iter_unpack(data)]
        if flags & _CUT_OFF:
            for descriptor in descriptors:
                os.close(descriptor)
            raise Malformed("a packet is too long, or has too many descriptors")
        return bytes(self._room[:size]), descriptors

    def _receive_into(self, flags: int) -> "_Received":
        # into memory that stays: room for the largest packet, asked for each time, costs as much as the system call
        return self._socket.recvmsg_into([self._room], _ANCILLARY, _CLOSE_ON_EXEC | flags)

    def _let_go(self) -> None:
        self._requests.clear()
        if self._session is None:
            return
        self._session.forget(self.end)
        for number in self._numbers:
            self._session.shared.drop(number)
        self._session.leave("session_data_connections")

    def _answer(self, packet: bytes, descriptors: Sequence[int]) -> Frame:
        """What a request is answered.

        Raises:
            Malformed: it is none; the connection ends.
        """
        frame = Frame.unpack(packet)
        try:
            if self._session is None:
                return self._greet(frame)
            if self._session.closed:
                raise session_lost()
            if frame.kind not in _ANSWERS:
                raise Malformed(f"kind {frame.kind} is no request")
            return _ANSWERS[frame.kind](self, self._session, frame, descriptors)
        except HalError as error:
            return _error(frame, error)
        except Malformed:
            raise
        except Exception as error:
            return _error(frame, internal(error))

    def _greet(self, frame: Frame) -> Frame:
        if frame.kind != Kind.HELLO:
            raise Malformed("the first frame of a connection is HELLO")
        token, secret = frames.read_greeting(frame.body)
        session = self._service.sessions.get(token)
        if not secrets.compare_digest(secret, session.secret):
            raise Malformed("the secret of the session is wrong")
        session.enter("session_data_connections")
        self._session = session
        session.when_ended(self.end)
        _set_timeout(self._socket, socket.SO_RCVTIMEO, 0)
        return Frame(Kind.DONE, frame.number)

    def share(self, session: Session, frame: Frame, descriptors: Sequence[int]) -> Frame:
        """SHARE: takes a descriptor."""
        if len(descriptors) != 1:
            raise invalid_argument(f"{len(descriptors)} descriptors came with number {frame.number}; it takes one")
        if frame.flags & frames.FILE:
            session.shared.add_file(frame.number, descriptors[0])
        else:
            memory = map_memory(descriptors[0], self._service.limits)
            self._service.quota.charge(session.identity, memory.buffer)
            session.shared.add_memory(frame.number, memory)
        self._numbers.add(frame.number)
        return Frame(Kind.DONE, frame.number)

    def drop(self, session: Session, frame: Frame, descriptors: Sequence[int]) -> Frame:
        """DROP: lets a memory or file go that came over this connection."""
        if frame.number in self._numbers:
            self._numbers.remove(frame.number)
            session.shared.drop(frame.number)
        return Frame(Kind.DONE, frame.number)

    def define(self, session: Session, frame: Frame, descriptors: Sequence[int]) -> Frame:
        """DEFINE: checks a request, and keeps it."""
        if frame.number not in self._requests:
            self._service.limits.hold("data_requests", len(self._requests) + 1, "the connection would have")
        definition = Definition.unpack(frame.body)
        self._requests[frame.number] = _defined(session, definition, frame.first, self._service)
        return Frame(Kind.DONE, frame.number)

    def forget(self, session: Session, frame: Frame, descriptors: Sequence[int]) -> Frame:
        """FORGET: lets a request go."""
        self._requests.pop(frame.number, None)
        return Frame(Kind.DONE, frame.number)

    def run(self, session: Session, frame: Frame, descriptors: Sequence[int]) -> Frame:
        """RUN: executes a request."""
        defined = self._requests.get(frame.number)
        if defined is None:
            raise invalid_argument(f"request {frame.number} has not been defined on this connection")
        result = _executed(session, defined, frame, self._executions.next())
        return Frame(
            Kind.RESULT,
            frame.number,
            frames.SUFFICIENT if result.output_sufficient_size else 0,
            result.timing.time_on_device_ns,
            result.timing.time_in_driver_ns,
            _body(result, defined, session, self._service.quota),
        )


Answer = Callable[[_Connection, Session, Frame, Sequence[int]], Frame]

_ANSWERS: dict[int, Answer] = {
    Kind.SHARE: _Connection.share,
    Kind.DROP: _Connection.drop,
    Kind.DEFINE: _Connection.define,
    Kind.FORGET: _Connection.forget,
    Kind.RUN: _Connection.run,
}


@dataclass
class _Defined:
    """A request that is ready to run. The handle stays a handle, so that this keeps no model alive.

    Attributes:
        area: takes returned outputs.
        shapes: of the outputs of the last execution whose outputs all lay in their regions.
        body: what that execution was answered: mostly the same for every one of a request.
    """

    handle: bytes
    request: ValidRequest
    config: ExecutionConfig
    area: Bytes
    shapes: tuple[OutputShape, ...] | None = None
    body: bytes = b""


def _defined(session: Session, definition: Definition, loop_timeout_ns: int, service: SharingService) -> _Defined:
    """Checks a definition.

    Raises:
        HalError: INVALID_ARGUMENT (V-REQ*, an area that is not there), RESOURCE_EXHAUSTED_* (a limit).
    """
    message = types_pb2.Request()
    try:
        message.ParseFromString(definition.request)
    except DecodeError as error:
        raise invalid_argument(f"the request cannot be decoded: {error}") from None
    service.limits.hold_request(message)
    request = wire.to_request(message, lambda pool: read_memory(session, pool))
    prepared, _ = _executable(session, definition.handle)
    config = ExecutionConfig(loop_timeout_duration_ns=loop_timeout_ns)
    valid = prepared.validate(request, config)
    return _Defined(definition.handle, valid, config, _area(session, definition))


def _area(session: Session, definition: Definition) -> Bytes:
    if definition.length == 0:
        return np.empty(0, np.uint8)
    memory = session.shared.memory(definition.area)
    start, end = definition.offset, definition.offset + definition.length
    if start < 0 or definition.length < 0 or end > memory.size or not memory.prot & PROT_WRITE:
        raise invalid_argument(f"bytes {start}..{end} of memory {definition.area} cannot take outputs")
    return memory.view[start:end]


def _executable(session: Session, handle: bytes) -> tuple[PreparedModel, Burst | None]:
    """What a handle names: a prepared model, perhaps by a burst."""
    thing = session.get(handle, object)
    if isinstance(thing, Burst):
        return thing.prepared_model, thing
    return session.get(handle, PreparedModel), None


def _executed(session: Session, defined: _Defined, frame: Frame, cancellation: Cancellation) -> ExecutionResult:
    started_ns = time.perf_counter_ns()
    prepared, burst = _executable(session, defined.handle)
    config = replace(defined.config, measure_timing=True) if frame.flags & frames.MEASURE else defined.config
    return (burst or prepared).execute_valid(
        defined.request, config, _instant(frame.first), cancellation, session.identity, started_ns
    )


def _instant(relative_ns: int) -> int:
    """A deadline of the wire as an instant; numbers below -1 are the driver's to refuse."""
    return relative_ns if relative_ns <= OMITTED else min(now_ns() + relative_ns, _INT64_MAX)


def _body(result: ExecutionResult, defined: _Defined, session: Session, quota: MemoryQuota) -> bytes:
    if result.returned:
        return frames.pack_outputs(list(_outputs(result, defined.area, session, quota)))
    if result.output_shapes != defined.shapes:
        defined.shapes = result.output_shapes
        defined.body = frames.pack_outputs([Output(shape) for shape in result.output_shapes])
    return defined.body


def _outputs(result: ExecutionResult, area: Bytes, session: Session, quota: MemoryQuota) -> Iterator[Output]:
    """Tells where the outputs are; puts returned ones into the area, or, where that is too small, into new memories."""
    returned = result.returned or (None,) * len(result.output_shapes)
    free = 0
    for shape, data in zip(result.output_shapes, returned, strict=True):
        if data is None:
            yield Output(shape)
        elif free + data.size <= area.size:
            area[free : free + data.size] = data
            yield Output(shape, Place.AREA, free)
            free += -(-data.size // ALIGNMENT) * ALIGNMENT
        else:
            yield Output(shape, Place.MEMORY, memory=Returning(session, 0, quota).as_memory(data))


def _error(frame: Frame, error: HalError) -> Frame:
    return Frame(Kind.ERROR, frame.number, body=error_detail(error).SerializeToString())


# ---- The socket -----------------------------------------------------------------------------------------


def _set_timeout(connection: socket.socket, option: int, seconds: int) -> None:
    """For one direction: a timeout of Python's would cost a system call more for every packet."""
    connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))
