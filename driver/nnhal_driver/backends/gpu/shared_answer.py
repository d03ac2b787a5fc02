"""Answer that the processes of a service share: the first one finds it, and the others do not ask again for a while.

It is in memory of the processes that are forked from one that has imported this module.
"""

import json
import mmap
import os
import time
from collections.abc import Callable
from typing import Any

VALID_S = 60.0
"""Seconds after which an answer is asked for again."""
_MAX_BYTES = 2**16
_POLL_S = 0.05


class SharedAnswer:
    """The last answer to a question. Create it before the processes that share it are forked.

    Args:
        clock: seconds, of the same clock in all processes.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._memory = mmap.mmap(-1, _MAX_BYTES)
        self._clock = clock

    def get(self, key: str, ask: Callable[[], Any]) -> Any:
        """Return the answer for a key, values of JSON. Other processes wait for the one that asks, unless it dies.

        Two that begin at the same instant may both ask.
        """
        while True:
            known = self._read()
            if known.get("key") == key and known.get("until", 0.0) > self._clock():
                return known["answer"]
            if not _is_other(known.get("asking", 0)):
                break
            time.sleep(_POLL_S)
        self._write({"asking": os.getpid()})
        known = {}
        try:
            answer = ask()
            known = {"key": key, "until": self._clock() + VALID_S, "answer": answer}
        finally:
            self._write(known)
        return answer

    def forget(self) -> None:
        """Have the next process ask again."""
        self._write({})

    def _read(self) -> dict[str, Any]:
        try:
            known: dict[str, Any] = json.loads(self._memory[:].partition(b"\0")[0])
        except ValueError:  # there is none, or another process writes it
            return {}
        return known

    def _write(self, known: dict[str, Any]) -> None:
        content = json.dumps(known).encode()
        if len(content) < _MAX_BYTES:
            self._memory[: len(content) + 1] = content + b"\0"


def _is_other(pid: int) -> bool:
    """Return whether another process runs that has this number."""
    return pid not in (0, os.getpid()) and os.path.exists(f"/proc/{pid}")


LAST_SELECTION = SharedAnswer()
"""The last selection of a GPU, see `nnhal_driver.backends.gpu.trial`."""
