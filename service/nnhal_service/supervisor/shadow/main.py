"""The process of the shadow: a child of the supervisor, which repeats executions with low priority.

It ends when the shadow does not answer, and its successor begins anew.
"""

import faulthandler
import os
import select
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from nnhal.client import connect
from nnhal.errors import HalError
from nnhal_service.channel import Channel
from nnhal_service.memory_limits import limit_memory, tune_malloc
from nnhal_service.metrics import catalog
from nnhal_service.packets import receive
from nnhal_service.recording.archives import Archives
from nnhal_service.recording.shadow.repeater import TIMEOUT_S, Repeater, ShadowLostError
from nnhal_service.sandbox.profile import profile_of
from nnhal_service.sandbox.restriction import restrict
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from nnhal_service.supervisor.adoption import begin_process
from nnhal_service.supervisor.template import ChildArguments

_NICE = 19
_REPORT_S = 1.0
_HANG_S = 2 * TIMEOUT_S + 10
"""Seconds for one execution after which the process ends, even if a backend holds the GIL."""
_KEPT_SETTINGS = ("dynamic_backends_path", "merge_partitions", "allocator", "process_bytes", "disabled_extensions")


def run_shadow(arguments: ChildArguments) -> None:
    """Repeat executions of workers until the end of the supervisor, or of the shadow.

    Args:
        arguments: the descriptor is that of the socket with the executions of workers.

    Raises:
        SystemExit: the shadow does not start, or does not answer any more. The supervisor has the reason.
    """
    os.nice(_NICE)
    settings, folder = begin_process(arguments)
    tune_malloc()
    address = f"unix:{folder}/socket"
    if settings.sandbox != "off":
        os.environ["TMPDIR"] = str(folder)
        restrict(replace(profile_of(settings, (address,), folder), outgoing=True))
    counts = _Counts(arguments.channel)
    try:
        with ExitStack() as stack, socket.socket(fileno=arguments.descriptors[0]) as executions:
            target = settings.shadow_target
            if target is None:
                target = stack.enter_context(_serve(settings, address, folder))
            device = stack.enter_context(connect(target, transport="grpc", client_name="nnhal-shadow"))
            archives = Archives.of(settings, {"shadow": settings.shadow, "backends": {}})
            _run(executions, Repeater(device, counts.add, archives), counts)
    except (HalError, ShadowLostError, ValueError, ImportError) as error:
        counts.send()
        arguments.channel.send({"failed": str(error)})
        raise SystemExit(1) from None


@contextmanager
def _serve(settings: Settings, address: str, folder: Path) -> Iterator[str]:
    """Run a service with the backends of the shadow in this process. Yield its address."""
    assert settings.shadow is not None
    options = {name: values for name, values in settings.backend_options.items() if "/" not in name}
    own = Settings(
        listen=(address,),
        backends=tuple(name.strip() for name in settings.shadow.split(",")),
        backend_options=options,
        cache_bytes=0,
        state_dir=folder,
        **{name: getattr(settings, name) for name in _KEPT_SETTINGS},
    )
    with Server(own) as server:
        limit_memory(own.process_bytes, server.threads)
        yield server.addresses[0]


def _run(executions: socket.socket, repeater: Repeater, counts: "_Counts") -> None:
    """Repeat executions as they come."""
    poll = select.poll()
    poll.register(executions, select.POLLIN)
    while True:
        poll.poll(_REPORT_S * 1e3)
        if (received := receive(executions)) is not None:
            faulthandler.dump_traceback_later(_HANG_S, exit=True)
            message, files = received
            try:
                repeater.repeat(message, files)
            finally:
                for file in files:
                    os.close(file)
            faulthandler.cancel_dump_traceback_later()
        counts.send_if_due()


class _Counts:
    """Counts of results, which the supervisor gets about once a second."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._counts: Counter[tuple[str, str]] = Counter()
        self._send_at = 0.0

    def add(self, label: str, result: str) -> None:
        """Count a result for a model."""
        self._counts[label, result] += 1

    def send(self) -> None:
        """Send the counts since the last time."""
        self._send_at = time.monotonic() + _REPORT_S
        counts, self._counts = self._counts, Counter()
        if counts:
            self._channel.send({"counts": [(catalog.SHADOW.name, labels, count) for labels, count in counts.items()]})

    def send_if_due(self) -> None:
        """Send them if it is time."""
        if time.monotonic() >= self._send_at:
            self.send()
