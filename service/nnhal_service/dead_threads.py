"""End of a process one of whose threads has died: it is logged, and the supervisor starts another process.

A thread that serves a single call has a name that ends in "-call": only its call is lost. Threads of libraries and
plug-ins, whose names do not begin with "nnhal-", are theirs to restart.
"""

import logging
import os
import signal
import threading

from nnhal.errors import exception_text
from nnhal_service.log import event


def end_with_threads() -> None:
    """Have this process end in order when one of its own threads dies of an exception, from now on."""
    threading.excepthook = _handle


def _handle(arguments: threading.ExceptHookArgs) -> None:
    name = arguments.thread.name if arguments.thread is not None else ""
    is_vital = name.startswith("nnhal-") and not name.endswith("-call")
    error = arguments.exc_value or arguments.exc_type()
    event("thread-died", logging.ERROR, thread=name, why=exception_text(error))
    logging.getLogger("nnhal.service").error("a thread has died", exc_info=error)
    if is_vital:
        os.kill(os.getpid(), signal.SIGTERM)
