"""Connection to the data socket of a service on the same machine, packet by packet. Nothing is repaired.

See docs/same-machine.md.
"""

import itertools
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from nnhal.local_users import socket_process, socket_user
from nnhal.shm import protocol
from nnhal.shm.protocol import Definition, Packet, PacketKind, ProtocolError
from nnhal.types import ErrorKind, ErrorStatus
from nnhal.v1 import error_pb2, types_pb2
from nnhal_tools.conformance.check import ConnectionLost, NotServiceSpecific, Skipped, UnsupportedCase
from nnhal_tools.conformance.device.calls import WATCHDOG_S, outcome_from_detail, required_call_error
from nnhal_tools.conformance.device.results import OK, CallOutcome
from nnhal_tools.conformance.device.target import Target

SEAL_SHRINK, SEAL_GROW, _SEAL_WRITE = 2, 4, 8
"""Seals of Linux, which the module `fcntl` of other systems does not have."""
REQUIRED_SEALS = SEAL_SHRINK | SEAL_GROW
"""Seals that a service requires of shared memory."""
READ_ONLY_SEALS = REQUIRED_SEALS | _SEAL_WRITE
"""Seals of memory whose contents do not change either."""

_NUMBERS = itertools.count(1)
"""Numbers of memories. None occurs twice in a session, even if an earlier connection has not quite ended."""


def _require_linux() -> None:
    if sys.platform != "linux":
        raise Skipped("", "sharing memory with a service needs Linux")


class SealedMemory:
    """Sealed memfd. Close it when done.

    Raises:
        Skipped: this system is not Linux.
    """

    def __init__(self, data: bytes, seals: int = REQUIRED_SEALS) -> None:
        _require_linux()
        self.descriptor = os.memfd_create("nnhal-conformance", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            self.write(data)
            self.seal(seals)
        except BaseException:
            self.close()
            raise

    def seal(self, seals: int) -> None:
        """Add seals."""
        import fcntl

        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)

    def read(self, offset: int, length: int) -> bytes:
        """Return the present bytes; fewer if the memory ends before."""
        return os.pread(self.descriptor, length, offset)

    def write(self, data: bytes, offset: int = 0) -> None:
        """Write bytes."""
        left = memoryview(data)
        while left:
            written = os.pwrite(self.descriptor, left, offset)
            left, offset = left[written:], offset + written

    def close(self) -> None:
        """Close the descriptor. The service keeps memory that is shared with it."""
        os.close(self.descriptor)


class DataConnection:
    """Connection that has not sent anything yet. Close it when done.

    Raises:
        Skipped: the service has no data socket, or not on this machine.
    """

    def __init__(self, target: Target) -> None:
        name = target.opened.data_socket
        if not name:
            raise Skipped("", "the service has no data socket")
        _require_linux()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(WATCHDOG_S)
        try:
            self._socket.connect("\0" + name[1:] if name.startswith("@") else name)
        except OSError as error:
            self._socket.close()
            raise Skipped("", f"the data socket {name} is not on this machine: {error.strerror}") from None

    def __enter__(self) -> "DataConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def say_hello(self, session: bytes, secret: bytes) -> CallOutcome | None:
        """Send HELLO and return the outcome, or None if the service ends the connection."""
        self.send(Packet(PacketKind.HELLO, body=protocol.pack_hello(session, secret)).pack())
        answer = self.receive()
        return None if answer is None else outcome_of_packet(answer, PacketKind.DONE)

    def is_of_another_user(self) -> bool:
        """Return whether the service runs as another user. It may then reject this one."""
        return socket_user(self._socket) != os.geteuid()

    def process(self) -> int:
        """Return the number of the process that listens on the socket, or 0 if it is not visible here."""
        return socket_process(self._socket)

    def send(self, packet: bytes, *descriptors: int) -> None:
        """Send a packet, which may be malformed. Do nothing if the service has closed the connection."""
        with suppress(BrokenPipeError, ConnectionResetError):  # receive() reports the end of the connection
            socket.send_fds(self._socket, [packet], descriptors)

    def receive(self) -> Packet | None:
        """Return the next packet, or None if the service has ended the connection.

        Raises:
            NotServiceSpecific: no packet comes in time, or it is malformed.
        """
        try:
            packet = self._socket.recv(protocol.MAX_BYTES)
            return Packet.unpack(packet) if packet else None
        except ConnectionResetError:
            return None
        except (TimeoutError, ProtocolError) as error:
            raise NotServiceSpecific(f"on the data socket: {error}") from None

    def exchange(self, request: Packet, *descriptors: int) -> Packet:
        """Send a request and return its answer.

        Raises:
            ConnectionLost: the service ended the connection.
            NotServiceSpecific: the answer is malformed or to another request, or none comes in time.
        """
        self.send(request.pack(), *descriptors)
        answer = self.receive()
        kind = PacketKind(request.kind).name
        if answer is None:
            raise ConnectionLost(f"the service ended the data connection at a {kind}")
        if answer.number != request.number:
            raise NotServiceSpecific(f"the answer to {kind} {request.number} has the number {answer.number}")
        return answer

    def call(self, request: Packet, *descriptors: int) -> CallOutcome:
        """Send a request that is answered by DONE, and return its outcome.

        Raises:
            NotServiceSpecific: see `exchange`.
        """
        return outcome_of_packet(self.exchange(request, *descriptors), PacketKind.DONE)

    def define(
        self,
        number: int,
        handle: bytes,
        request: types_pb2.Request,
        area: tuple[int, int, int] = (0, 0, 0),
        loop_timeout_ns: int | None = None,
    ) -> CallOutcome:
        """Send DEFINE.

        Args:
            number: the number of the request on the connection.
            handle: a prepared model or a burst.
            request: its pools may be shared memory.
            area: the number of the shared memory for returned outputs, offset and length.
            loop_timeout_ns: None to leave it out.
        """
        body = Definition(handle, *area, request.SerializeToString()).pack()
        return self.call(Packet(PacketKind.DEFINE, number, first=_time_or_none(loop_timeout_ns), body=body))

    def run(self, number: int, *, measure: bool = False, deadline_ns: int | None = None) -> tuple[CallOutcome, Packet]:
        """Send RUN. Return its outcome and the answer."""
        flags = protocol.MEASURE if measure else 0
        answer = self.exchange(Packet(PacketKind.RUN, number, flags, _time_or_none(deadline_ns)))
        return outcome_of_packet(answer, PacketKind.RESULT), answer

    def share(self, memory: SealedMemory) -> tuple[CallOutcome, int]:
        """Share a memory and return the outcome and the number of the memory."""
        number = next(_NUMBERS)
        return self.call(Packet(PacketKind.SHARE, number), memory.descriptor), number


def _time_or_none(time_ns: int | None) -> int:
    return protocol.NONE if time_ns is None else time_ns


def outcome_of_packet(answer: Packet, expected: PacketKind) -> CallOutcome:
    """Return the outcome that an answer reports. `expected`: the kind of a successful answer.

    Raises:
        Unsupported: the answer is UNIMPLEMENTED.
        NotServiceSpecific: the answer is neither of the expected kind nor an error.
    """
    if answer.kind == expected:
        return OK
    if answer.kind != PacketKind.ERROR:
        raise NotServiceSpecific(f"on the data socket: answer of kind {answer.kind}; expected {expected.name} or ERROR")
    error = outcome_from_detail(error_pb2.ErrorDetail.FromString(answer.body))
    if error.kind == ErrorKind.UNIMPLEMENTED:
        raise UnsupportedCase(error.reason)
    if error.status == ErrorStatus.NONE:
        raise NotServiceSpecific("on the data socket: ERROR with the status NONE")
    return error


@contextmanager
def open_connection(target: Target) -> Iterator[DataConnection]:
    """Open a connection and authenticate it for a session, within the context.

    Raises:
        Skipped: the data socket is not on this machine, or belongs to another user and rejects this one.
        ConnectionLost: the service ends the connection, or the session has ended.
        NotServiceSpecific: the service rejects the session.
    """
    with DataConnection(target) as connection:
        outcome = connection.say_hello(target.session, target.opened.data_secret)
        if outcome is None and connection.is_of_another_user():
            raise Skipped("", "the data socket belongs to another user and rejects this one")
        if outcome is None:
            raise ConnectionLost("the service ended the data connection at a HELLO with the secret of the session")
        if outcome.status:
            raise required_call_error("HELLO with the secret of the session", outcome)
        yield connection


def process_of_service(target: Target) -> int:
    """Return the number of the process that serves a session, or 0 if it is not on this machine."""
    try:
        with DataConnection(target) as connection:
            return connection.process()
    except Skipped:
        return 0


def is_data_socket_reachable(target: Target) -> bool:
    """Return whether the service is on this machine, and its data socket accepts this user."""
    try:
        with open_connection(target):
            return True
    except Skipped:
        return False
