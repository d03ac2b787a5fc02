"""One connection to the data socket: its packets, its authentication, and what the client shares over it."""

import os
import secrets
import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from nnhal.errors import HalError, invalid_argument
from nnhal.local_users import socket_user
from nnhal.shm import protocol
from nnhal.shm.protocol import Definition, Packet, PacketKind, ProtocolError
from nnhal.shm.spin_wait import SpinThenBlock
from nnhal_service.grpc_support.errors import error_detail, report_error
from nnhal_service.identity.identity import client_name
from nnhal_service.log import RepeatedEvent
from nnhal_service.metrics.calls import MeteredCall
from nnhal_service.request_id import carry, handles_requests, new_id, trace_id
from nnhal_service.requests.prepared_request import find_model
from nnhal_service.requests.service_parts import ServiceParts
from nnhal_service.sessions.cancellation_scope import CancellationScope
from nnhal_service.sessions.client_slots import ClientSlots
from nnhal_service.sessions.memory_quota import DEFINED_COPIES
from nnhal_service.sessions.session import STOPPING, Session, session_lost, stopping
from nnhal_service.shm.execution import ReadyRequest
from nnhal_service.shm.memory_mapping import map_memory

HELLO_TIMEOUT_S = 5
"""Seconds until a connection must have authenticated."""
SEND_TIMEOUT_S = 5
"""Seconds until a client must have read a response."""
SPIN_S = 100e-6
"""Seconds to spin for the next request before blocking."""

_METHOD_PREFIX = "DataSocket."
"""Start of the names of requests for metrics and logs. The kind of the packet follows."""
_KINDS = frozenset(PacketKind)
_ENDED = RepeatedEvent("data-ended")
_MAX_DESCRIPTORS = 4
_DESCRIPTOR = struct.Struct("i")
_ANCILLARY = socket.CMSG_SPACE(_MAX_DESCRIPTORS * _DESCRIPTOR.size)
# as integers: operations on an enumeration of flags take microseconds
_CLOSE_ON_EXEC = int(socket.MSG_CMSG_CLOEXEC)
_TRUNCATED = int(socket.MSG_TRUNC | socket.MSG_CTRUNC)

OnMethodError: TypeAlias = Callable[[str, HalError], None]
"""Function to call with the name of a request and its error."""
_Received: TypeAlias = tuple[int, list[tuple[int, int, bytes]], int, Any]
"""Size, ancillary data, flags and sender of a packet."""


def _find_id(variables: Mapping[str, Any]) -> str:
    connection, packet = variables["self"], variables.get("packet")
    return str(connection.request_id(packet)) if packet is not None else ""


class ClientConnection:
    """A connection, served by one thread. Any thread may call `end`.

    Args:
        slots: slots of the authenticated connections of the service.
        count_error: is called with the name of a request and its error.

    Attributes:
        is_draining: whether it ends after the running execution.
    """

    def __init__(
        self, parts: ServiceParts, slots: ClientSlots, accepted: socket.socket, count_error: OnMethodError
    ) -> None:
        self._parts = parts
        self._slots = slots
        self._count_error = count_error
        self._socket = accepted
        self.number = accepted.fileno()
        self._session: Session | None = None
        self._executions = CancellationScope()
        self._shared: set[int] = set()
        self._requests: dict[int, ReadyRequest] = {}
        self._is_cut_off = False
        self._identified: tuple[Packet, str] | None = None
        self.is_draining = False
        self._buffer = memoryview(bytearray(protocol.MAX_BYTES))
        self._waiter = SpinThenBlock(SPIN_S)

    @property
    def is_authenticated(self) -> bool:
        """True if it belongs to a session."""
        return self._session is not None

    def end(self, reason: str) -> None:
        """Cancel the running execution, and make the thread see the end of the stream. Never blocks."""
        self._is_cut_off = reason == STOPPING
        self._executions.cancel()
        self.drain(reason)

    def drain(self, reason: str) -> None:
        """Make the thread see the end of the stream after the running execution. Never blocks."""
        self.is_draining = True
        with suppress(OSError):  # the client has disconnected already
            self._socket.shutdown(socket.SHUT_RD)

    def serve(self) -> None:
        """Respond to requests until one side ends the connection."""
        try:
            with self._socket:
                _set_timeout(self._socket, socket.SO_SNDTIMEO, SEND_TIMEOUT_S)
                _set_timeout(self._socket, socket.SO_RCVTIMEO, HELLO_TIMEOUT_S)
                while self._serve_one() and self._session is not None:
                    pass
        except (ProtocolError, OSError) as error:
            _ENDED.log(session=self._session.name if self._session else "-", reason=str(error))
        finally:
            self._cleanup()

    # hot path from here to `run`: no context managers, generators or extra layers

    def _serve_one(self) -> bool:
        """Respond to one request. Return False at the end of the stream."""
        data, descriptors = self._receive()
        try:
            if data:
                self._socket.send(self._respond(data, descriptors).pack())
            return bool(data)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _receive(self) -> tuple[bytes, list[int]]:
        """Return the next packet and its descriptors, which the caller closes; b"" at the end of the stream."""
        size, ancillary, flags, _ = self._waiter.receive(self._receive_into)
        descriptors: list[int] = []
        for _, _, data in ancillary:
            descriptors += [number for (number,) in _DESCRIPTOR.iter_unpack(data)]
        if flags & _TRUNCATED:
            for descriptor in descriptors:
                os.close(descriptor)
            raise ProtocolError(f"a packet exceeds {protocol.MAX_BYTES} bytes or {_MAX_DESCRIPTORS} descriptors")
        return bytes(self._buffer[:size]), descriptors

    def _receive_into(self, flags: int) -> _Received:
        # a buffer that is kept: to allocate space for the largest packet costs as much as the system call
        return self._socket.recvmsg_into([self._buffer], _ANCILLARY, _CLOSE_ON_EXEC | flags)

    @handles_requests(_find_id)
    def _respond(self, data: bytes, descriptors: Sequence[int]) -> Packet:
        """Return the response to a request."""
        packet = Packet.unpack(data)
        try:
            if self._session is None:
                return self._authenticate(packet)
            if self._session.closed:
                raise session_lost()
            if packet.kind not in _METHODS:
                raise ProtocolError(f"packet kind {packet.kind} is not a request")
            return _METHODS[packet.kind](self, self._session, packet, descriptors)
        except HalError as error:
            return self._error(packet, stopping() if self._is_cut_off else error)
        except ProtocolError:
            raise
        except BaseException as error:
            return self._error(packet, error)

    def _error(self, packet: Packet, error: BaseException) -> Packet:
        """Return the response to a request that has failed, and count and log it."""
        method = _METHOD_PREFIX + (PacketKind(packet.kind).name if packet.kind in _KINDS else "other")
        with carry(self.request_id(packet)):
            hal_error = report_error(method, error, self._count_error)
            return Packet(PacketKind.ERROR, packet.number, body=error_detail(hal_error).SerializeToString())

    def request_id(self, packet: Packet) -> str:
        """Return the id of a request of this connection, which is the same as long as no other one is asked for."""
        if self._identified is None or self._identified[0] is not packet:
            trace = trace_id(packet.body.decode("ascii", "replace")) if packet.flags & protocol.TRACE else ""
            self._identified = (packet, trace or new_id())
        return self._identified[1]

    def run(self, session: Session, packet: Packet, descriptors: Sequence[int]) -> Packet:
        """RUN: execute a request."""
        request = self._requests.get(packet.number)
        if request is None:
            raise invalid_argument(f"request {packet.number} has not been defined on this connection")
        context = _RunContext(packet.body) if packet.flags & protocol.TRACE else None
        call = MeteredCall("data_socket", request.input_bytes, context, cancellation=self._executions.next())
        prepared, use = find_model(session, request.definition.target)
        self._parts.begin_execution(call, session, prepared, packet.first)
        with call, use:
            result = request.execute(prepared, packet, call)
            flags = protocol.SUFFICIENT if result.output_sufficient_size else 0
            if not result.spans:
                body = request.pack_result(result, session, self._parts.quota)
            else:
                flags_of_spans, body = request.pack_profiled(result, session, self._parts.quota, call.received_ns)
                flags |= flags_of_spans
            call.note(result, request.output_bytes if flags & protocol.SUFFICIENT else 0)
        timing = result.timing
        return Packet(PacketKind.RESULT, packet.number, flags, timing.time_on_device_ns, timing.time_in_driver_ns, body)

    def define(self, session: Session, packet: Packet, descriptors: Sequence[int]) -> Packet:
        """DEFINE: validate a request, and keep it."""
        if packet.number not in self._requests:
            self._parts.limits.require("data_requests", len(self._requests) + 1, "the connection would have")
        definition = Definition.unpack(packet.body)
        self._requests[packet.number] = self._parts.quota.count_object(
            session,
            lambda: ReadyRequest.of(session, definition, packet.first, self._parts.limits),
            DEFINED_COPIES * len(definition.request),
        )
        return Packet(PacketKind.DONE, packet.number)

    def forget(self, session: Session, packet: Packet, descriptors: Sequence[int]) -> Packet:
        """FORGET: drop a request."""
        self._requests.pop(packet.number, None)
        return Packet(PacketKind.DONE, packet.number)

    def share(self, session: Session, packet: Packet, descriptors: Sequence[int]) -> Packet:
        """SHARE: add a memory or file to the session."""
        if len(descriptors) != 1:
            raise invalid_argument(f"SHARE {packet.number} came with {len(descriptors)} descriptors; expected 1")
        if packet.flags & protocol.FILE:
            session.shared.add_file(packet.number, descriptors[0])
        else:
            reserve = partial(self._parts.quota.reserve_object, session)
            memory = map_memory(descriptors[0], self._parts.limits, reserve)
            session.shared.add_memory(packet.number, memory)
        self._shared.add(packet.number)
        return Packet(PacketKind.DONE, packet.number)

    def drop(self, session: Session, packet: Packet, descriptors: Sequence[int]) -> Packet:
        """DROP: remove a memory or file that was shared over this connection."""
        if packet.number in self._shared:
            self._shared.remove(packet.number)
            session.shared.drop(packet.number)
        return Packet(PacketKind.DONE, packet.number)

    def _authenticate(self, packet: Packet) -> Packet:
        if packet.kind != PacketKind.HELLO:
            raise ProtocolError(f"the first packet of a connection is of kind {packet.kind}; expected HELLO")
        token, secret = protocol.unpack_hello(packet.body)
        session = self._parts.sessions.get(token, None)  # the secret identifies the client
        if not secrets.compare_digest(secret, session.secret):
            raise ProtocolError("the secret of the session is wrong")
        identity = session.identity
        if identity.kind == "user" and identity.name != str(socket_user(self._socket)):
            raise ProtocolError("the session belongs to another user")
        session.acquire_slot("session_data_connections")
        try:
            self._slots.acquire(client_name(identity, session.peer))
        except HalError:
            session.release_slot("session_data_connections")
            raise
        self._session = session
        session.on_close(self.end)
        session.on_drain(self.drain)
        _set_timeout(self._socket, socket.SO_RCVTIMEO, 0)
        return Packet(PacketKind.DONE, packet.number)

    def _cleanup(self) -> None:
        self._requests.clear()
        if self._session is None:
            return
        self._session.off_close(self.end)
        self._session.off_drain(self.drain)
        for number in self._shared:
            self._session.shared.drop(number)
        self._session.release_slot("session_data_connections")
        self._slots.release(client_name(self._session.identity, self._session.peer))


class _RunContext:
    """Context of a RUN packet with the flag TRACE, for its trace."""

    def __init__(self, body: bytes) -> None:
        self._parent = body.decode("ascii", "replace")

    def invocation_metadata(self) -> tuple[tuple[str, str]]:
        """Return the trace context, as gRPC does."""
        return (("traceparent", self._parent),)


_METHODS: dict[int, Callable[[ClientConnection, Session, Packet, Sequence[int]], Packet]] = {
    PacketKind.SHARE: ClientConnection.share,
    PacketKind.DROP: ClientConnection.drop,
    PacketKind.DEFINE: ClientConnection.define,
    PacketKind.FORGET: ClientConnection.forget,
    PacketKind.RUN: ClientConnection.run,
}


def _set_timeout(connection: socket.socket, option: int, seconds: int) -> None:
    """Set the timeout of one direction. A timeout of Python's would cost one more system call for each packet."""
    connection.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", seconds, 0))
