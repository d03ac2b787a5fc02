"""Engines in processes of their own, from the side of a worker: their start, their calls, and their end.

The worker asks its supervisor for a process, which is forked from the template. The process ends when the worker closes
the channel. Its answers are not trusted: its model may have taken it over.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

import numpy as np

from nnhal.shm.spin_wait import SpinThenBlock
from nnhal.types import AnyArray
from nnhal_driver.activity import current_record
from nnhal_driver.backends.engine_process import Check, EngineDiedError, EngineModel
from nnhal_driver.operations.call import Shape
from nnhal_service.channel import Channel
from nnhal_service.log import event
from nnhal_service.quarantine import Crash, QuarantineFile
from nnhal_service.supervisor.engine.engine_memory import EngineMemory, TensorForm, checked_form, create_memory
from nnhal_service.supervisor.engine.main import MAX_MESSAGE_BYTES, RESET_AND_RUN, RUN, SPIN_S

_POLL_S = 0.01
"""Seconds between two looks at the deadline and the cancellation."""
_STDOUT = 1
"""Descriptor of the output of the worker, which is a pipe to the supervisor."""
_MAX_STACKS = 4096


class EngineProcesses:
    """Launcher of the engines of one worker. Thread safe.

    Args:
        supervisor: the channel to the supervisor of the worker.
        quarantine: receives the models that crash.
        has_sandbox: whether the processes restrict themselves.
    """

    def __init__(self, supervisor: Channel, quarantine: QuarantineFile, *, has_sandbox: bool) -> None:
        self._supervisor = supervisor
        self._quarantine = quarantine
        self._has_sandbox = has_sandbox

    def launch(self, model: EngineModel, check: Check) -> "EngineProcess":
        """Start a process for a model: see `EngineLauncher`."""
        message = {
            "engine": model.engine,
            "inputs": model.inputs,
            "outputs": model.outputs,
            "threads": model.threads,
            "size": model.size,
            "shared": model.shared,
            "sandbox": self._has_sandbox,
        }
        channel, other = Channel.pair()
        memory, stacks, (lifeline, held) = create_memory(), os.memfd_create("nnhal-engine-stacks"), os.pipe()
        process = EngineProcess(channel, (memory, stacks, held), model, partial(self._record, model.backend))
        self._supervisor.send({"engine": message}, [other.fileno(), lifeline, model.file, memory, stacks, _STDOUT])
        other.close()
        os.close(lifeline)
        process.start(check)
        return process

    def _record(self, backend: str, how: str) -> None:
        """Record the crash of a process by the model of the calling thread."""
        record = current_record()
        digest = b"" if record is None else record.digest
        event("engine-crashed", logging.WARNING, digest=digest.hex() or "-", backend=backend, how=how)
        if digest:
            with suppress(OSError):
                self._quarantine.record(digest, Crash(backend, time.time(), f"in an engine: {how}", sure=True))


class EngineProcess:
    """An engine in another process: see `Engine`. The process ends with this object.

    Args:
        files: descriptors of the memory of the tensors, of the file for the stacks of a crash, and of the pipe that
            keeps the process alive.
        record: records a crash.
    """

    def __init__(
        self, channel: Channel, files: tuple[int, int, int], model: EngineModel, record: Callable[[str], None]
    ) -> None:
        self.reservation: object = None
        self.threads = model.threads
        self._channel = channel
        self._files = files
        self._memory = EngineMemory(files[0])
        self._model = model
        self._record = record
        self._waiter = SpinThenBlock(SPIN_S)
        self._inputs: list[TensorForm] = []
        self._views: dict[int, AnyArray] = {}
        self._booleans: set[int] = set()
        self._answer = b""
        self._run = RUN

    def start(self, check: Check) -> None:
        """Wait for the process. Raises as `EngineLauncher.launch`."""
        self._map_inputs(self._receive(check))

    def write(self, tensor: int, value: AnyArray) -> None:
        """Set the value of an input in the shared memory."""
        self._views[tensor][...] = value

    def view(self, tensor: int) -> AnyArray:
        """Return the shared memory of an input or output; a copy of Booleans, which may have any bits."""
        view = self._views[tensor]
        return view.view(np.uint8) != 0 if tensor in self._booleans else view

    def resize(self, shapes: Mapping[int, Shape], check: Check) -> None:
        """Set the shapes of inputs. Raises as `Engine.resize`."""
        self._map_inputs(self._ask(json.dumps([shapes[tensor] for tensor in self._model.inputs]).encode(), check))

    def reset_variables(self) -> None:
        """Have the process set the variables to zero with the next call."""
        self._run = RESET_AND_RUN

    def invoke(self, check: Check) -> None:
        """Run the model. Raises as `Engine.invoke`."""
        answer, self._run = self._ask(self._run, check), RUN
        if answer != self._answer:
            outputs = self._forms(answer, "outputs", len(self._model.outputs))
            self._map([*self._inputs, *outputs], may_grow=False)
            self._answer = answer

    def _map_inputs(self, answer: bytes) -> None:
        self._inputs = self._forms(answer, "inputs", len(self._model.inputs))
        self._map(self._inputs, may_grow=True)
        self._answer = b""

    def _map(self, forms: list[TensorForm], *, may_grow: bool) -> None:
        try:
            arrays = self._memory.arrays(forms, may_grow=may_grow)
        except (OSError, ValueError, OverflowError) as error:
            raise self._died(f"its tensors cannot be mapped: {error}") from None
        tensors = [*self._model.inputs, *self._model.outputs]
        self._views = dict(reversed(list(zip(tensors, arrays, strict=False))))  # an input may also be an output
        self._booleans = {
            tensor for tensor in self._model.outputs if tensor in self._views and self._views[tensor].dtype == np.bool_
        }

    def _forms(self, answer: bytes, name: str, count: int) -> list[TensorForm]:
        """Return the forms in an answer, or raise the error in it."""
        try:
            content = json.loads(answer)
            if "error" in content:
                raise RuntimeError(str(content["error"]))
            forms = [checked_form(*form) for form in content[name]]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise self._died(f"its answer is invalid: {error}") from None
        if len(forms) != count:
            raise self._died(f"its answer has {len(forms)} {name}; expected {count}")
        return forms

    def _ask(self, request: bytes, check: Check) -> bytes:
        try:
            self._channel.socket.send(request)
        except (BrokenPipeError, ConnectionResetError):
            raise self._died() from None
        return self._receive(check)

    def _receive(self, check: Check) -> bytes:
        """Wait for an answer. Raises what `check` raises, or EngineDiedError."""

        def receive(flags: int) -> bytes:
            while not flags and not self._channel.poll(_POLL_S):
                check()
            return self._channel.socket.recv(MAX_MESSAGE_BYTES, flags)

        try:
            answer = self._waiter.receive(receive)
        except ConnectionResetError:
            answer = b""
        if not answer:
            raise self._died()
        return answer

    def _died(self, problem: str = "") -> EngineDiedError:
        """Return the error for a process that has ended, or must. A crash is recorded."""
        stacks = os.pread(self._files[1], _MAX_STACKS, 0).decode(errors="replace")
        crash = stacks.partition("\n")[0].removeprefix("Fatal Python error: ")
        if crash or problem:
            self._record(crash or problem)
        return EngineDiedError(f"the process of the engine ended: {crash or problem or 'it was killed'}")

    def __del__(self) -> None:
        self._channel.close()
        for descriptor in self._files:
            os.close(descriptor)
