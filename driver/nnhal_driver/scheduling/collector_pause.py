"""Pause of Python's garbage collector while a large model is analysed or compiled.

A full collection looks at every object, and nothing else of the process runs meanwhile, health checks included. The
objects of a large model are many, form few cycles, and cause several collections while they are created.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_pausing = threading.Lock()


@contextmanager
def pause_collector() -> Iterator[None]:
    """Pause the collector during the context, unless another one does. So work without end cannot stop it for ever."""
    if not gc.isenabled() or not _pausing.acquire(blocking=False):
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        _pausing.release()
