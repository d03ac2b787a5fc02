"""A connection to the data socket of a service on this machine, frame by frame: nothing is repaired on the way.

See docs/same-machine.md.
"""

import fcntl
import itertools
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from nnhal import frames
from nnhal.frames import Frame, Kind, Malformed
from nnhal.types import ErrorKind, ErrorStatus
from nnhal.v1 import error_pb2
from tools.conformance.check import NotServiceSpecific, Skipped, Unsupported
from tools.conformance.target import OK, WATCHDOG_S, Answer, Target, answer_from

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
"""What a service demands of memory."""
CONSTANT = SEALS | fcntl.F_SEAL_WRITE
"""Memory that does not change either."""

_CREDENTIALS = struct.Struct("3i")
_NUMBERS = itertools.count(1)
"""Of memories: none twice in a session, also where an earlier connection has not quite ended."""


class SealedMemory:
    """A memfd with some bytes. Close it when done."""

    def __init__(self, data: bytes, seals: int = SEALS) -> None:
        self.descriptor = os.memfd_create("nnhal-conformance", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            self.write(data)
            self.seal(seals)
        except BaseException:
            self.close()
            raise

    def seal(self, seals: int) -> None:
        """Adds seals."""
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)

    def read(self, offset: int, length: int) -> bytes:
        """What is there now; less where it ends before."""
        return os.pread(self.descriptor, length, offset)

    def write(self, data: bytes, offset: int = 0) -> None:
        """Puts bytes there."""
        left = memoryview(data)
        while left:
            written = os.pwrite(self.descriptor, left, offset)
            left, offset = left[written:], offset + written

    def close(self) -> None:
        """Lets it go; the service keeps what it has taken."""
        os.close(self.descriptor)


class DataConnection:
    """A connection that has said nothing yet. Close it when done.

    Raises:
        Skipped: the service has no data socket, or not on this machine.
    """

    def __init__(self, target: Target) -> None:
        name = target.opened.data_socket
        if not name:
            raise Skipped("", "the service has no data socket")
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

    def greet(self, session: bytes, secret: bytes) -> Answer | None:
        """Says HELLO; None where the service ends the connection."""
        self.send(Frame(Kind.HELLO, body=frames.greeting(session, secret)).pack())
        answer = self.receive()
        return None if answer is None else said(answer, Kind.DONE)

    def is_of_another_user(self) -> bool:
        """Whether who listens is another user: then it need not let us in."""
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return bool(_CREDENTIALS.unpack(credentials)[1] != os.geteuid())

    def send(self, packet: bytes, *descriptors: int) -> None:
        """Sends a packet, whatever it is; where the service has gone, nothing."""
        with suppress(BrokenPipeError, ConnectionResetError):  # then no answer comes
            socket.send_fds(self._socket, [packet], descriptors)

    def receive(self) -> Frame | None:
        """The next answer; None where the service has ended the connection.

        Raises:
            NotServiceSpecific: there is none in time, or it is no frame.
        """
        try:
            packet = self._socket.recv(frames.MAX_BYTES)
            return Frame.unpack(packet) if packet else None
        except ConnectionResetError:
            return None
        except (TimeoutError, Malformed) as error:
            raise NotServiceSpecific(f"on the data socket: {error}") from None

    def ask(self, frame: Frame, *descriptors: int) -> Frame:
        """The answer to a request.

        Raises:
            NotServiceSpecific: there is none, or it is that to another request.
        """
        self.send(frame.pack(), *descriptors)
        answer = self.receive()
        if answer is None:
            raise NotServiceSpecific(f"the service ended the data connection at a {Kind(frame.kind).name}")
        if answer.number != frame.number:
            raise NotServiceSpecific(f"{Kind(frame.kind).name} {frame.number} is answered as {answer.number}")
        return answer

    def do(self, frame: Frame, *descriptors: int) -> Answer:
        """How a request that is answered by DONE ended.

        Raises:
            NotServiceSpecific: as `ask`.
        """
        return said(self.ask(frame, *descriptors), Kind.DONE)

    def share(self, memory: SealedMemory) -> tuple[Answer, int]:
        """Shares a memory: how that ended, and its number."""
        number = next(_NUMBERS)
        return self.do(Frame(Kind.SHARE, number), memory.descriptor), number


def said(answer: Frame, due: Kind) -> Answer:
    """What an answer says: OK, or its error.

    Args:
        due: its kind where it is no error.

    Raises:
        Unsupported: UNIMPLEMENTED.
        NotServiceSpecific: it is neither.
    """
    if answer.kind == due:
        return OK
    if answer.kind != Kind.ERROR:
        raise NotServiceSpecific(f"on the data socket: an answer of kind {answer.kind}, not {due.name} or ERROR")
    error = answer_from(error_pb2.ErrorDetail.FromString(answer.body))
    if error.kind == ErrorKind.UNIMPLEMENTED:
        raise Unsupported(error.reason)
    if error.status == ErrorStatus.NONE:
        raise NotServiceSpecific("on the data socket: an ERROR with the status NONE")
    return error


@contextmanager
def connected(target: Target) -> Iterator[DataConnection]:
    """A connection of a session, which has said HELLO.

    Raises:
        Skipped: the data socket is not on this machine, or another user's that lets this one not in.
        NotServiceSpecific: the session is not let in.
    """
    with DataConnection(target) as connection:
        answer = connection.greet(target.session, target.opened.data_secret)
        if answer is None and connection.is_of_another_user():
            raise Skipped("", "the data socket is another user's, who lets this one not in")
        if answer is None or answer.status:
            raise NotServiceSpecific(f"HELLO with the session's secret: {answer or 'the connection was ended'}")
        yield connection


def is_here(target: Target) -> bool:
    """Whether the service is on this machine, and its data socket takes this user."""
    try:
        with connected(target):
            return True
    except Skipped:
        return False
