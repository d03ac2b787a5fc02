"""Output of engines, plug-ins and libraries on stdout and stderr, in workers and other processes: as events of the log.

The supervisor reads it from a pipe, so that the last lines of a worker that crashes are not lost.
"""

import fcntl
import logging
import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TextIO

from nnhal.lru import LruDict
from nnhal_service.log import event
from nnhal_service.tls.grpc_trace import HandshakeTrace

_PIPE_BYTES = 2**20
"""Size of the pipe. A worker waits when it is full, which it is only while the supervisor does not run."""
_CHUNK_BYTES = 2**16
_CHUNKS = 16
"""Largest number of chunks to read at once, so that the supervisor has time for other things."""
_MAX_LINE_BYTES = 4096
"""Length from which a line is cut into several."""
_INTERVAL_S = 60.0
"""Seconds in which at most so many lines are logged as `_EQUAL`, `_ALIKE` and `_ALL` say. Others are counted."""
_EQUAL, _ALIKE, _ALL = 1, 20, 600
"""Numbers of equal lines, of lines that differ only in numbers, such as the port of a client, and of all lines."""
_NUMBER = re.compile(rb"[0-9a-fA-F]+")
_MAX_KNOWN = 512
_LEVEL = re.compile(r"(?:(?P<word>INFO|WARNING|ERROR|FATAL)\b|(?P<letter>[IWEF])\d{4} \d\d:\d\d:\d\d)")
"""Start of a line of TensorFlow Lite or XNNPACK; or of gRPC and others that use absl."""
_LEVELS = {"I": logging.INFO, "W": logging.WARNING, "E": logging.ERROR, "F": logging.ERROR}


class WorkerOutput:
    """Pipe for the output of a worker and its probes, or of another process. Close it when the process has ended.

    Args:
        process: number of the worker, or the kind of another process.

    Attributes:
        write_end: descriptor for the worker. The supervisor closes its own copy with `close_write_end`.
        trace: takes the lines about TLS handshakes; None without TLS.
    """

    def __init__(self, process: int | str) -> None:
        self._process: Mapping[str, object] = {"process" if isinstance(process, str) else "worker": process}
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        with suppress(OSError):  # more than this user may have
            fcntl.fcntl(self._read_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._is_closed = False
        self._rest = b""
        self.trace: HandshakeTrace | None = None
        self._known: LruDict[tuple[int, bytes], tuple[float, int, int]] = LruDict(_MAX_KNOWN)

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._read_end

    def close_write_end(self) -> None:
        """Close the descriptor for the worker, once it has its own."""
        os.close(self.write_end)

    def read(self) -> bool:
        """Log the lines that have arrived. Return whether more can follow; True if it is closed."""
        if self._is_closed:  # since the caller has waited for it
            return True
        for _ in range(_CHUNKS):
            try:
                chunk = os.read(self._read_end, _CHUNK_BYTES)
            except BlockingIOError:
                return True
            if not chunk:
                return False
            *lines, self._rest = (self._rest + chunk).split(b"\n")
            while len(self._rest) > _MAX_LINE_BYTES:
                lines.append(self._rest[:_MAX_LINE_BYTES])
                self._rest = self._rest[_MAX_LINE_BYTES:]
            for line in lines:
                self._log(line)
        return True

    def close(self) -> None:
        """Log what has arrived, and close the pipe."""
        self.read()
        self._log(self._rest)
        self._is_closed = True
        os.close(self._read_end)

    def _log(self, line: bytes) -> None:
        """Log a line, unless it is empty or there were too many like it. Then count it."""
        if not (line := line.rstrip()):
            return
        if self.trace is not None and self.trace.take(line.decode(errors="replace")):
            return
        now, omitted = time.monotonic(), 0
        for allowed, kind in ((_EQUAL, line), (_ALIKE, _NUMBER.sub(b"", line)), (_ALL, b"")):
            since, lines, before = self._known.pop((allowed, kind), (now, 0, 0))
            omitted += before
            if now - since >= _INTERVAL_S:
                since, lines = now, 0
            is_full = lines >= allowed
            self._known.put((allowed, kind), (since, lines, omitted + 1) if is_full else (since, lines + 1, 0))
            if is_full:
                return
        text = line[:_MAX_LINE_BYTES].decode(errors="backslashreplace")
        fields = {**self._process, "line": text, **({"omitted": omitted} if omitted else {})}
        event("worker-output", _level(text), **fields)


def redirect_output(output: int) -> TextIO:
    """Have all that this process prints go to a pipe. Return a stream to the stderr of the service, for the log."""
    stream = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace", buffering=1)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    return stream


def _level(text: str) -> int:
    """Return the severity that a line of an engine starts with; INFO if it has none."""
    match = _LEVEL.match(text)
    return _LEVELS[(match["word"] or match["letter"])[0]] if match else logging.INFO
