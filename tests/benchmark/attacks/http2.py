"""HTTP/2 frames as bytes, for connections that no well-behaved library would make (RFC 9113)."""

import contextlib
import socket
import struct

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RST_STREAM, _SETTINGS, _PING = 0, 1, 3, 4, 6
_END_STREAM, _END_HEADERS = 1, 4
_CANCEL = 8


class Http2Connection:
    """Client side of one connection. It reads nothing unless it is asked to.

    Args:
        target: HOST:PORT or unix:PATH.
        greet: whether to send the preface and the settings.
        window: bytes of each stream that the peer may send before it must wait.
    """

    def __init__(self, target: str, *, greet: bool = True, window: int = 65535) -> None:
        if target.startswith("unix:"):
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(target.removeprefix("unix:"))
        else:
            host, port = target.rsplit(":", 1)
            self.socket = socket.create_connection((host, int(port)))
        if greet:
            self.socket.sendall(_PREFACE + frame(_SETTINGS, 0, 0, struct.pack(">HI", 4, window)))

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def send_call(self, path: str, stream: int, message: bytes = b"") -> None:
        """Begin and complete the request of a unary call.

        Raises:
            OSError: the peer has closed the connection.
        """
        self.socket.sendall(call_frames(path, stream, message))
        self.discard_input()

    def send_reset_call(self, path: str, stream: int) -> bool:
        """Send a unary call and reset its stream. Return False if the peer has closed the connection."""
        reset = frame(_RST_STREAM, 0, stream, struct.pack(">I", _CANCEL))
        try:
            self.socket.sendall(call_frames(path, stream) + reset)
        except OSError:
            return False
        return self.discard_input()

    def send_pings(self, count: int) -> bool:
        """Send pings. Return False if the peer has closed the connection."""
        try:
            self.socket.sendall(count * frame(_PING, 0, 0, bytes(8)))
        except OSError:
            return False
        return self.discard_input()

    def discard_input(self) -> bool:
        """Read and drop what has arrived. Return False if the peer has closed the connection."""
        with contextlib.suppress(BlockingIOError):
            while data := self.socket.recv(1 << 16, socket.MSG_DONTWAIT):
                del data
            return False
        return True


def call_frames(path: str, stream: int, message: bytes = b"") -> bytes:
    """Return the frames of a whole request: headers, and one message of gRPC."""
    headers = {
        ":method": "POST",
        ":scheme": "http",
        ":path": path,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    block = b"".join(_literal(name, value) for name, value in headers.items())
    body = struct.pack(">BI", 0, len(message)) + message
    return frame(_HEADERS, _END_HEADERS, stream, block) + frame(_DATA, _END_STREAM, stream, body)


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return one frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def _literal(name: str, value: str) -> bytes:
    """Return a header field without indexing and without Huffman codes (RFC 7541, 6.2.2)."""
    return b"\0" + b"".join(bytes([len(text)]) + text.encode() for text in (name, value))
