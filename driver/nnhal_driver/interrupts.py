"""Interrupts of the user, as opposed to exceptions of a backend."""

import threading


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception is a Ctrl-C, which must end what the program does.

    Python raises KeyboardInterrupt for a signal in the main thread only. So there it counts as the user's, even while
    code of a backend runs. In any other thread a backend raised it, and it is a failure of that backend like any other
    exception. The same holds for SystemExit in every thread: a backend must not end the process. An embedding program
    that wants to end on a signal raises KeyboardInterrupt in its handler.
    """
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()
