"""The process of the shadow: a child of the supervisor, which repeats executions with low priority.

It ends when the shadow does not answer, and its successor begins anew.
"""

import faulthandler
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from nnhal.client import connect
from nnhal.errors import HalError
from nnhal_service.channel import wait_readable
from nnhal_service.memory_limits import limit_memory, tune_malloc
from nnhal_service.metrics import catalog
from nnhal_service.metrics.pending_counts import PendingCounts
from nnhal_service.packets import receive
from nnhal_service.recording.archives import Archives
from nnhal_service.recording.shadow.repeater import TIMEOUT_S, Repeater, ShadowLostError
from nnhal_service.sandbox.profile import profile_of
from nnhal_service.sandbox.restriction import enter_sandbox
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from nnhal_service.supervisor.adoption import begin_process
from nnhal_service.supervisor.template import ChildArguments
from nnhal_service.supervisor.worker_output import redirect_output

_NICE = 19
_REPORT_S = 1.0
_HANG_S = 2 * TIMEOUT_S + 10
"""Seconds for one execution after which the process ends, even if a backend holds the GIL."""
_KEPT_SETTINGS = ("dynamic_backends_path", "merge_partitions", "allocator", "process_bytes", "disabled_extensions")


def run_shadow(arguments: ChildArguments) -> None:
    """Repeat executions of workers until the end of the supervisor, or of the shadow.

    Args:
        arguments: the descriptors are the pipe for what libraries print, and the socket with the executions of workers.

    Raises:
        SystemExit: the shadow does not start, or does not answer any more. The supervisor has the reason.
    """
    os.nice(_NICE)
    output, received = arguments.descriptors
    settings, folder = begin_process(arguments, redirect_output(output))
    tune_malloc()
    address = f"unix:{folder}/socket"
    enter_sandbox(settings, folder, lambda: replace(profile_of(settings, (address,), folder), outgoing=True))
    counts = PendingCounts()

    def report() -> None:
        if taken := counts.take():
            arguments.channel.send({"counts": taken})

    try:
        with ExitStack() as stack, socket.socket(fileno=received) as executions:
            target = settings.shadow_target
            if target is None:
                target = stack.enter_context(_serve(settings, address, folder))
            device = stack.enter_context(connect(target, transport="grpc", client_name="nnhal-shadow"))
            archives = Archives.of(settings, {"shadow": settings.shadow, "backends": {}})
            _run(executions, Repeater(device, partial(counts.count, catalog.SHADOW), archives), report)
    except (HalError, ShadowLostError, ValueError, ImportError) as error:
        report()
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


def _run(executions: socket.socket, repeater: Repeater, report: Callable[[], None]) -> None:
    """Repeat executions as they come, and report the results about once a second."""
    report_at = time.monotonic()
    while True:
        wait_readable(executions, _REPORT_S)
        if (received := receive(executions)) is not None:
            faulthandler.dump_traceback_later(_HANG_S, exit=True)
            message, files = received
            try:
                repeater.repeat(message, files)
            finally:
                for file in files:
                    os.close(file)
            faulthandler.cancel_dump_traceback_later()
        if time.monotonic() >= report_at:
            report_at = time.monotonic() + _REPORT_S
            report()
