"""Probes: a new model is prepared and run in a process of its own first, which may crash without harm (`--probe`).

The worker copies the model into a memfd, and asks its supervisor for a process, which is forked from the template. The
process notes its work in a table that the worker can read after a crash, and reports its end over a socket.
"""

import faulthandler
import logging
import mmap
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import numpy as np

from nnhal import wire
from nnhal.cpu import available_cpus
from nnhal.errors import HalError
from nnhal.lru import LruDict
from nnhal.types import (
    DTYPES,
    DataLocation,
    Memory,
    Model,
    Request,
    RequestArgument,
    ReturnedPool,
    is_extension,
    is_fully_specified,
)
from nnhal.v1 import types_pb2
from nnhal_cache.file_io import write_all
from nnhal_driver.activity import TABLE_BYTES, ActivityTable, read_activities
from nnhal_driver.device import Device
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.preparation.launch import GivenModel, PreparationLaunch
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.quarantine import Probe
from nnhal_driver.scheduling.deadline import now_ns
from nnhal_service import log
from nnhal_service.channel import Channel
from nnhal_service.log import event
from nnhal_service.memory_limits import limit_memory, tune_malloc
from nnhal_service.quarantine import Crash, QuarantineFile
from nnhal_service.sandbox.profile import profile_of
from nnhal_service.sandbox.restriction import enter_sandbox
from nnhal_service.server import Server
from nnhal_service.serving.hosting import Hosting
from nnhal_service.settings import Settings
from nnhal_service.supervisor.adoption import end_with, end_with_other_end
from nnhal_service.supervisor.template import ChildArguments
from nnhal_service.supervisor.worker_output import redirect_output

_TIMEOUT_S = 60.0
"""Seconds after which a probe counts as hanging."""
_EXECUTION_S = 2
"""Seconds for its execution. A longer one is ended: other probes wait."""
_THREADS = 24
"""Threads of its process besides those of engines."""
_POLL_S = 0.05
_STDOUT = 1
"""Descriptor of the output of the worker, which is a pipe to the supervisor."""
_MAX_KNOWN = 4096
"""Number of models that a worker remembers as probed."""
_MAX_CRASHES = 3
"""Number of probes of one model. The quarantine refuses it before."""


class Prober:
    """Probes of one worker. Thread safe.

    Args:
        quarantine: receives the models that crash.
    """

    def __init__(self, supervisor: Channel, settings: Settings, quarantine: QuarantineFile) -> None:
        self._supervisor = supervisor
        self._settings = settings
        self._quarantine = quarantine
        self._known: LruDict[tuple[str, bytes], None] = LruDict(_MAX_KNOWN)
        self._lock = threading.Lock()

    def begin(self, device: str, model: Model, digest: bytes) -> Probe | None:
        """Copy a model, and return the probe of it: see `ModelProbe`."""
        with self._lock:
            if (device, digest) in self._known:
                return None
        # a file object, so that it is closed even if the preparation never begins
        memory = os.fdopen(os.memfd_create("nnhal-probe"), "wb", buffering=0)
        write_all(memory.fileno(), wire.model_message(model).SerializeToString())
        return lambda check: self._probe(device, memory, digest, check)

    def _probe(self, device: str, memory: IO[bytes], digest: bytes, check: Callable[[], None]) -> None:
        began = time.monotonic()
        with memory:
            for _ in range(_MAX_CRASHES):
                if self._quarantine.verdict(digest).refusal:
                    break
                with TemporaryDirectory(prefix="probe-") as temporary:
                    has_survived = self._run_process(device, memory.fileno(), digest, check, temporary)
                if has_survived:
                    event("probed", digest=digest.hex(), ms=(time.monotonic() - began) * 1e3)
                    break
        with self._lock:
            self._known.put((device, digest), None)

    def _run_process(self, device: str, memory: int, digest: bytes, check: Callable[[], None], temporary: str) -> bool:
        """Run one probe. Return whether its process survived. A crash is recorded."""
        table = os.memfd_create("nnhal-probe-table")
        os.ftruncate(table, TABLE_BYTES)
        own, other = Channel.pair()
        try:
            message = {
                "probe": device,
                "temporary": temporary,
                "digest": digest.hex(),
                "settings": self._settings.model_dump(mode="json", exclude_unset=True),
            }
            self._supervisor.send(message, [other.fileno(), memory, table, _STDOUT])
            other.close()
            how, backends = _await_end(own, check)
            if how:
                with mmap.mmap(table, TABLE_BYTES) as mapped:
                    activities = read_activities(memoryview(bytes(mapped)), backends)
                backend = activities[0].backend if activities else ""
                event("probe-crashed", digest=digest.hex(), backend=backend or "-", how=how)
                self._quarantine.record(digest, Crash(backend, time.time(), f"in a probe: {how}", sure=True))
            return not how
        finally:
            own.close()
            os.close(table)


def _await_end(channel: Channel, check: Callable[[], None]) -> tuple[str, list[str]]:
    """Wait for the end of a probe. Return how it crashed, or "", and the ids of its backends. `check` may raise."""
    end = time.monotonic() + _TIMEOUT_S
    backends, started, done = list[str](), False, False
    while time.monotonic() < end:
        if not channel.poll(_POLL_S):
            check()
            continue
        received = channel.receive()
        if received is None:
            if not started:
                event("probe-not-started", logging.WARNING)
            return ("" if done or not started else "the process crashed"), backends
        started = True
        backends = received[0].get("backends", backends)
        done = done or "done" in received[0]
    return "the process did not end", backends


def run_probe(arguments: ChildArguments) -> None:
    """Prepare and run a model in this process, which was forked from the template for it.

    Args:
        arguments: its message is the request of the worker, and its channel leads there. The descriptors are the memory
            with the model, the memory for the table of activities, and the pipe for the output of the worker.
    """
    message, channel = arguments.message, arguments.channel
    memory, table, output = arguments.descriptors
    end_with(message["supervisor"])
    end_with_other_end(channel.fileno())
    stream = redirect_output(output)
    faulthandler.enable()
    tune_malloc()
    given = Settings.model_validate(message["settings"])
    settings = given.model_copy(update={"cache_bytes": 0, "warm": 0})
    log.configure(settings.log_level, settings.log_format, stream, fields={"process": "probe"})
    temporary = Path(message["temporary"])
    enter_sandbox(settings, temporary, lambda: profile_of(settings, (), temporary))
    activities = ActivityTable(memoryview(mmap.mmap(table, TABLE_BYTES)))
    hosting = Hosting((), activities=activities, quarantine=QuarantineFile(settings.state_dir))
    server = Server(settings, hosting)
    limit_memory(settings.process_bytes, available_cpus() + _THREADS)
    channel.send({"backends": activities.backends})
    with mmap.mmap(memory, 0, access=mmap.ACCESS_READ) as mapped:
        model = wire.to_model(types_pb2.Model.FromString(mapped[:]))
    outcome = _prepare(server.devices.get(message["probe"]), model, bytes.fromhex(message["digest"]))
    if outcome.prepared_model is not None:
        _execute(outcome.prepared_model)
    channel.send({"done": int(outcome.status)})


def _prepare(device: Device, model: Model, digest: bytes) -> Outcome:
    outcomes: list[Outcome] = []
    done = threading.Event()

    def notify(outcome: Outcome) -> None:
        outcomes.append(outcome)
        done.set()

    device.prepare_model(PreparationLaunch(GivenModel(model, digest), notify))
    done.wait()
    return outcomes[0]


def _execute(prepared: PreparedModel) -> None:
    """Execute a model on zeros, if the shapes of its inputs are known."""
    if any(
        is_extension(operand.type) or not is_fully_specified(operand.type, operand.dimensions)
        for operand in prepared.inputs
    ):
        return
    values = [np.zeros(operand.dimensions, DTYPES[operand.type]) for operand in prepared.inputs]
    inputs = tuple(RequestArgument(False, DataLocation(number, 0, value.nbytes)) for number, value in enumerate(values))
    outputs = (RequestArgument(False, DataLocation(len(values))),) * len(prepared.outputs)
    pools: list[Memory | ReturnedPool] = [*(Memory.of(value.tobytes()) for value in values), ReturnedPool()]
    with suppress(HalError):  # zeros may be invalid values
        call = ExecutionCall(now_ns() + _EXECUTION_S * 10**9)
        prepared.execute_synchronously(Request(inputs, outputs, tuple(pools)), call=call)
