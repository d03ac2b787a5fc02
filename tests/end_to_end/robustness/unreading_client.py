"""HTTP/2 client that reads no responses: its window is 0, so responses stay in the service."""

import socket
import struct
import threading
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType

from nnhal.address import Address

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING = 0, 1, 3, 4, 6
_END_STREAM, _ACK, _END_HEADERS = 1, 1, 4
_MAX_CONCURRENT_STREAMS, _INITIAL_WINDOW_SIZE = 3, 4


class UnreadingClient:
    """One connection, which sends gRPC requests and answers pings. Use it as a context manager. Thread safe.

    Attributes:
        cancelled: numbers of the streams that the service has reset.
        rejected: numbers of the streams that the service has ended with an error, which needs no window.
        max_streams: number of streams that the service allows at once; 0 until it has said so.
    """

    def __init__(self, target: str) -> None:
        address = Address.parse(target)
        self._socket = socket.create_connection((address.host, address.port))
        self._lock = threading.Lock()
        self._next_stream = 1
        self.cancelled: set[int] = set()
        self.rejected: set[int] = set()
        self.max_streams = 0
        self._socket.sendall(_PREFACE)
        self._send(_SETTINGS, 0, 0, struct.pack(">HI", _INITIAL_WINDOW_SIZE, 0))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def call(self, method: str, request: bytes) -> int:
        """Send a request, for example to "Session/Open", and return the number of its stream."""
        fields = (
            (":method", "POST"),
            (":scheme", "http"),
            (":path", f"/nnhal.v1.{method}" if "." not in method else f"/{method}"),
            (":authority", "test"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        )
        with self._lock:
            stream, self._next_stream = self._next_stream, self._next_stream + 2
            self._send(_HEADERS, _END_HEADERS, stream, _encode(fields))
            self._send(_DATA, _END_STREAM, stream, struct.pack(">BI", 0, len(request)) + request)
        return stream

    def _send(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        self._socket.sendall(struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload)

    def _read(self) -> None:
        """Read frames until the connection ends."""
        with suppress(ConnectionError), self._socket.makefile("rb") as frames:
            while len(head := frames.read(9)) == 9:
                kind, flags, stream = struct.unpack(">BBI", head[3:])
                payload = frames.read(int.from_bytes(head[:3], "big"))
                if kind == _RST_STREAM:
                    self.cancelled.add(stream)
                elif kind == _HEADERS and flags & _END_STREAM:
                    self.rejected.add(stream)
                elif kind in (_SETTINGS, _PING) and not flags & _ACK:
                    if kind == _SETTINGS:
                        self._note_settings(payload)
                    with self._lock:
                        self._send(kind, _ACK, 0, payload if kind == _PING else b"")

    def _note_settings(self, payload: bytes) -> None:
        settings: dict[int, int] = dict(struct.iter_unpack(">HI", payload))
        self.max_streams = settings.get(_MAX_CONCURRENT_STREAMS, self.max_streams)

    def __enter__(self) -> "UnreadingClient":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._socket.close()


def _encode(fields: Iterable[tuple[str, str]]) -> bytes:
    """Return header fields as HPACK literals without indexing."""
    return b"".join(
        bytes([0, len(name)]) + name.encode() + bytes([len(value)]) + value.encode() for name, value in fields
    )
