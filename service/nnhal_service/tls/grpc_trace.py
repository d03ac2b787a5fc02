"""Trace of gRPC's TLS handshakes: the only place where gRPC tells which ones of a server failed, and why.

gRPC writes it to stderr, for each connection and not for calls. The supervisor reads it with all other output. The
tests run with the oldest and the newest supported version of gRPC, whose lines differ.
"""

import os
import re
from collections.abc import Callable
from urllib.parse import unquote

_TRACE, _VERBOSITY = "GRPC_TRACE", "GRPC_VERBOSITY"
_FIRST_LINE = re.compile(
    r"[IW]\d{4} [0-9:.]+ +\d+ (?:handshaker\.cc|channel_trace\.h|ssl_transport_security\.cc|trace\.cc|log\.cc):\d+\] "
)
_NEXT_LINE = re.compile(r"=== Source Location Trace: ===|src/core/\S+:\d+$| shutdown=")
_ERROR = re.compile(r" CallNextHandshakerLocked: error=(?!OK )(.*?)(?: shutdown=|$)")
_SERVER = re.compile(r"endpoint_peer_address=([^,}]*).*server_credentials=")
"""The address of the client, if this process is the server. It is empty if the connection has been reset already."""


def prepare_trace() -> None:
    """Have gRPC trace handshakes, unless the operator has chosen a lower verbosity. Call it before gRPC is imported."""
    os.environ[_TRACE] = ",".join(filter(None, (os.environ.get(_TRACE), "handshaker")))
    os.environ.setdefault(_VERBOSITY, "INFO")


class HandshakeTrace:
    """Reader of the traces of one process.

    Args:
        note: called with the address of a client and the error of its handshake.
    """

    def __init__(self, note: Callable[[str, str], None]) -> None:
        self._note = note
        self._error = ""

    def take(self, line: str) -> bool:
        """Read a line of output. Return whether it belongs to a trace, and need not be logged."""
        if _FIRST_LINE.match(line):
            error = _ERROR.search(line)
            self._error = error[1] if error else ""
        elif not _NEXT_LINE.match(line):
            return False
        if self._error and (server := _SERVER.search(line)):
            self._note(unquote(server[1]), self._error)
            self._error = ""
        return _VERBOSITY not in os.environ
