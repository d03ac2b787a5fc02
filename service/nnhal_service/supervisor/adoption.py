"""Start of a process that was forked for a supervisor, and its tie to it: it ends when the supervisor ends."""

import fcntl
import os
import signal
import time
from pathlib import Path
from typing import TextIO

from nnhal_service import log
from nnhal_service.dead_threads import end_with_threads
from nnhal_service.sandbox.system_calls import process_control
from nnhal_service.settings import Settings
from nnhal_service.supervisor.template import ChildArguments

_POLL_S = 0.001
_PR_SET_PDEATHSIG = 1
_NAME_FILE = Path("/proc/self/comm")


def begin_process(arguments: ChildArguments, stream: TextIO | None = None) -> tuple[Settings, Path]:
    """Begin a process of which a service has one: tie it to its supervisor, name it, and configure its log.

    Return its settings and its private folder. Without a stream, the log goes to stderr.
    """
    message = arguments.message
    end_with(message["supervisor"])
    name_process(message["kind"])
    arguments.channel.send({"pid": os.getpid()})
    settings = Settings.model_validate(message["settings"])
    log.configure(settings.log_level, settings.log_format, stream, fields={"process": message["kind"]})
    end_with_threads()
    return settings, Path(message["folder"])


def name_process(kind: str) -> None:
    """Name this process after its kind, in the tables of the system."""
    _NAME_FILE.write_text(f"nnhal-{kind}")


def end_with_other_end(descriptor: int) -> None:
    """Have the kernel end this process when the other end of a pipe or socket closes, even if a backend holds the GIL.

    Nothing may arrive there, which would end it too.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(descriptor, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(descriptor, fcntl.F_SETFL, os.O_ASYNC)


def end_with(supervisor: int) -> None:
    """Have the kernel kill this process when the supervisor, which adopts it, ends, however that happens.

    Raises:
        SystemExit: it has ended.
    """
    while os.getppid() != supervisor:  # the process between is about to exit, which must not count as that end
        try:
            os.kill(supervisor, 0)
        except ProcessLookupError:
            raise SystemExit(1) from None
        time.sleep(_POLL_S)
    process_control(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        raise SystemExit(1)
