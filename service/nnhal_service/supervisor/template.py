"""Template: a process that has imported everything, runs one thread, and is forked for each worker.

A fork takes milliseconds, where the imports take most of a second. A worker is a child of a child that exits at once,
so that the supervisor adopts it and learns how it ends.
"""

import gc
import os
import pkgutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from nnhal.version import find_revision
from nnhal_service.channel import Channel, Message
from nnhal_service.supervisor.scoreboard import Scoreboard
from nnhal_service.tls.grpc_trace import prepare_trace


class ChildKind(StrEnum):
    """Kinds of processes that are forked from the template."""

    WORKER = "worker"
    PROBE = "probe"
    ENGINE = "engine"
    ADMIN = "admin"
    SHARE = "share"
    SHADOW = "shadow"
    MIRROR = "mirror"


_MAINS: Mapping[ChildKind, str] = {
    ChildKind.WORKER: "nnhal_service.supervisor.worker:run_worker",
    ChildKind.PROBE: "nnhal_service.supervisor.probe:run_probe",
    ChildKind.ENGINE: "nnhal_service.supervisor.engine.main:run_engine",
    ChildKind.ADMIN: "nnhal_service.supervisor.admin.main:run_admin",
    ChildKind.SHARE: "nnhal_service.supervisor.share.main:run_share",
    ChildKind.SHADOW: "nnhal_service.supervisor.shadow.main:run_shadow",
    ChildKind.MIRROR: "nnhal_service.supervisor.mirror.main:run_mirror",
}
"""Main function of each kind. Names, because the supervisor must not import these modules."""


@dataclass(frozen=True, slots=True)
class ChildArguments:
    """Arguments of the main function of a forked process.

    Attributes:
        message: values of its kind; and "kind" and "supervisor", its kind and the process that adopts it.
        descriptors: further descriptors of its kind.
    """

    message: Message
    channel: Channel
    descriptors: Sequence[int]
    scoreboard: Scoreboard


class Template:
    """Template process of a supervisor, which must run one thread and must not have used gRPC. Close it when done.

    Args:
        traces_handshakes: whether gRPC writes what `HandshakeTrace` reads, in all processes.
    """

    def __init__(self, scoreboard: Scoreboard, *, traces_handshakes: bool = False) -> None:
        self.channel, other = Channel.pair()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            if traces_handshakes:
                prepare_trace()
            _run_child(lambda: _run_template(other, scoreboard))
        other.close()

    def fork(self, kind: ChildKind, message: Message, descriptors: Sequence[int]) -> None:
        """Have a process forked. If the template has ended, nothing happens.

        The first descriptor is its end of its channel; the others are those that its main function expects. The caller
        may close them afterwards.
        """
        self.channel.send({**message, "kind": kind, "supervisor": os.getpid()}, descriptors)

    def failure(self) -> ImportError | None:
        """Return the error for which the process cannot import the service, if it has reported one."""
        while self.channel.poll() and (received := self.channel.receive()) is not None:
            message = received[0]
            if "missing" in message:
                return ImportError(message["text"], name=message["missing"])
        return None

    def close(self) -> None:
        """End the process."""
        self.channel.close()
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with suppress(ChildProcessError):  # it has been waited for already
            os.waitpid(self.pid, 0)


def _run_child(run: Callable[[], object]) -> None:
    """Run a function and exit without the exit handlers of the parent process. Never returns."""
    code = 1
    try:
        run()
        code = 0
    except SystemExit as exit_:
        code = exit_.code if isinstance(exit_.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _run_template(channel: Channel, scoreboard: Scoreboard) -> None:
    """Import everything, then fork a process for each message until the supervisor has ended."""
    _close_descriptors_except(channel.fileno())
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the supervisor
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    try:
        from nnhal_driver.backends import registry  # noqa: PLC0415

        for kind in (ChildKind.WORKER, ChildKind.PROBE, ChildKind.ENGINE):
            pkgutil.resolve_name(_MAINS[kind])
    except ImportError as error:
        channel.send({"missing": error.name or "", "text": str(error)})
        raise SystemExit(1) from None

    registry.import_engines()
    find_revision()  # it is kept: the sandbox does not let a worker ask git
    gc.collect()
    gc.freeze()  # the workers share the pages of these objects as long as no collection writes to them
    while (received := channel.receive()) is not None:
        message, descriptors = received
        pid = os.fork()
        if pid == 0:
            if os.fork():
                os._exit(0)
            channel.close()
            arguments = ChildArguments(message, Channel.from_descriptor(descriptors[0]), descriptors[1:], scoreboard)
            _run_child(partial(_run_main, arguments))
        os.waitpid(pid, 0)
        for descriptor in descriptors:
            os.close(descriptor)
        if not channel.poll():  # the workers start first: these imports take 40 ms
            with suppress(ImportError):  # the admin process reports it
                pkgutil.resolve_name(_MAINS[ChildKind.ADMIN])


def _run_main(arguments: ChildArguments) -> None:
    pkgutil.resolve_name(_MAINS[arguments.message["kind"]])(arguments)


def _close_descriptors_except(kept: int) -> None:
    """Close the descriptors of the supervisor: a child that keeps them would keep its sockets open."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            with suppress(OSError):  # that of the folder itself
                os.close(int(name))
