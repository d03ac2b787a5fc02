"""Stacks of all threads of this process, as text."""

import sys
import threading
import traceback


def all_stacks() -> str:
    """Return the stacks of all threads that run Python code, those of this program first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sorted(sys._current_frames().items(), key=lambda item: names.get(item[0], "~")):
        stack = "".join(traceback.format_stack(frame))
        parts.append(f"Thread {names.get(ident, ident)}:\n{stack}")
    return "\n".join(parts)
