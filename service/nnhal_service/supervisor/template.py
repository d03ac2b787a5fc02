"""Template: a process that has imported everything, runs one thread, and is forked for each worker.

A fork takes milliseconds, where the imports take most of a second. A worker is a child of a child that exits at once,
so that the supervisor adopts it and learns how it ends.
"""

import gc
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from nnhal_service.supervisor.channel import Channel, Message
from nnhal_service.supervisor.scoreboard import Scoreboard
from nnhal_service.supervisor.spec import WorkerSpec


class Template:
    """Template process of a supervisor, which must run one thread and must not have used gRPC. Close it when done.

    Args:
        scoreboard: memory that the workers share.

    Attributes:
        pid: id of the process.
        channel: channel to the process.
    """

    def __init__(self, scoreboard: Scoreboard) -> None:
        self.channel, other = Channel.pair()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _run_child(lambda: _run_template(other, scoreboard))
        other.close()

    def fork_worker(
        self,
        spec: WorkerSpec,
        channel: Channel,
        crash_log: int,
        output: int,
        requests: int,
        sockets: Sequence[int] = (),
    ) -> None:
        """Have a worker forked. If the template has ended, nothing happens, and the other end of `channel` is closed.

        Args:
            spec: describes the worker.
            channel: the worker's end of its channel. The caller may close it afterwards.
            crash_log: descriptor of the file for the stacks of a crash.
            output: descriptor of the pipe for the output of engines and plug-ins.
            requests: descriptor of the socket to the process of the cache share.
            sockets: the inherited sockets, in the order of `spec.inherited`.
        """
        self.channel.send(spec.to_json(), [channel.fileno(), crash_log, output, requests, *sockets])

    def fork_probe(self, message: Message, descriptors: Sequence[int]) -> None:
        """Have a probe forked, as a worker has requested it. The caller may close the descriptors afterwards."""
        self.channel.send(message, descriptors)

    def fork_share(self, message: Message, descriptors: Sequence[int]) -> None:
        """Have the process of the cache share forked. The caller may close the descriptors afterwards.

        Args:
            message: tells the process what it must know.
            descriptors: the process's end of its channel, and the socket with its requests.
        """
        self.channel.send(message, descriptors)

    def fork_admin(self, message: Message, descriptors: Sequence[int]) -> None:
        """Have the admin process forked. The caller may close the descriptors afterwards.

        Args:
            message: tells the process what it must know.
            descriptors: the process's end of its channel, the pipe for its output, and its listening sockets.
        """
        self.channel.send(message, descriptors)

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
    """Import everything, then fork a worker or a probe for each message until the supervisor has ended."""
    _close_descriptors_except(channel.fileno())
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the supervisor
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    try:
        from nnhal_driver.backends import registry  # noqa: PLC0415
        from nnhal_service.supervisor.probe import run_probe  # noqa: PLC0415
        from nnhal_service.supervisor.worker import run_worker  # noqa: PLC0415
    except ImportError as error:
        channel.send({"missing": error.name or "", "text": str(error)})
        raise SystemExit(1) from None

    for id_ in registry.registered_ids():
        with suppress(ImportError, ValueError):  # a worker that needs the backend reports it
            registry.create([id_])  # imports its engine
    gc.collect()
    gc.freeze()  # the workers share the pages of these objects as long as no collection writes to them
    while (received := channel.receive()) is not None:
        message, descriptors = received
        pid = os.fork()
        if pid == 0:
            if os.fork():
                os._exit(0)
            channel.close()
            if "probe" in message:
                memory, table, own, output = descriptors
                _run_child(partial(run_probe, message, memory, table, Channel.from_descriptor(own), output))
            if "admin" in message:
                from nnhal_service.supervisor.admin.main import run_admin  # noqa: PLC0415

                own, output, *sockets = descriptors
                _run_child(partial(run_admin, message, Channel.from_descriptor(own), output, sockets))
            if "share" in message:
                from nnhal_service.supervisor.share.main import run_share  # noqa: PLC0415

                own, requests = descriptors
                _run_child(partial(run_share, message, Channel.from_descriptor(own), requests))
            own, crash_log, output, requests, *sockets = descriptors
            spec = WorkerSpec.from_json(message)
            channels = Channel.from_descriptor(own), crash_log, output, scoreboard, requests, sockets
            _run_child(partial(run_worker, spec, *channels))
        os.waitpid(pid, 0)
        for descriptor in descriptors:
            os.close(descriptor)
        if not channel.poll():  # the workers start first: these imports take 40 ms
            with suppress(ImportError):  # the admin process reports it
                importlib.import_module("nnhal_service.supervisor.admin.main")


def _close_descriptors_except(kept: int) -> None:
    """Close the descriptors of the supervisor: a child that keeps them would keep its sockets open."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != kept:
            with suppress(OSError):  # that of the folder itself
                os.close(int(name))
