"""Process of one engine: it runs one model for one worker, ends with it, and has nothing else.

The worker sends `RUN`, `RESET_AND_RUN`, or new shapes of the inputs as JSON. Each answer is JSON: the forms of the
inputs, those of the outputs, or an error.
"""

import faulthandler
import json
import os
import pkgutil
from functools import partial

from nnhal.shm.spin_wait import SpinThenBlock
from nnhal.types import AnyArray
from nnhal_service.channel import Message
from nnhal_service.memory_limits import limit_growth, tune_malloc
from nnhal_service.sandbox.profile import engine_profile
from nnhal_service.sandbox.restriction import restrict
from nnhal_service.supervisor.adoption import end_with, end_with_other_end, name_process
from nnhal_service.supervisor.engine.engine_memory import EngineMemory, TensorForm
from nnhal_service.supervisor.template import ChildArguments
from nnhal_service.supervisor.worker_output import redirect_output

RUN, RESET_AND_RUN = b"0", b"1"
MAX_MESSAGE_BYTES = 2**17
MAX_ERROR = 2**12
SPIN_S = 50e-6
"""Seconds for which both sides spin before they block. Most small models run in less."""
_NICE = 5
ERRORS = (RuntimeError, ValueError, TypeError, OSError, MemoryError, OverflowError)


def run_engine(arguments: ChildArguments) -> None:
    """Serve an interpreter until its worker closes the channel.

    Args:
        arguments: its message has the fields of `EngineModel` but the file, and whether there is a sandbox. The
            descriptors are a pipe that the worker holds open, the file of the model, that of the tensors, that for the
            stacks of a crash, and the pipe for the output of the worker.
    """
    message, channel = arguments.message, arguments.channel
    lifeline, model, memory, stacks, output = arguments.descriptors
    end_with(message["supervisor"])
    name_process(message["kind"])
    end_with_other_end(lifeline)
    arguments.scoreboard.close()
    redirect_output(output)
    faulthandler.enable(stacks)
    os.nice(_NICE)
    tune_malloc()
    if message["sandbox"]:
        restrict(engine_profile())
    limit_growth(message["size"], message["threads"], message["shared"])
    end = channel.socket
    try:
        server = EngineServer(message, model, EngineMemory(memory))
    except ERRORS as error:
        end.send(_encode_error(error))
        return
    end.send(server.description)
    waiter = SpinThenBlock(SPIN_S)
    receive = partial(end.recv, MAX_MESSAGE_BYTES)
    while request := waiter.receive(receive):
        try:
            answer = server.answer(request)
        except ERRORS as error:
            answer = _encode_error(error)
        end.send(answer)


def _encode_error(error: Exception) -> bytes:
    return json.dumps({"error": str(error)[:MAX_ERROR] or type(error).__name__}).encode()


class EngineServer:
    """An interpreter, and its tensors in memory that its worker shares.

    Attributes:
        description: the answer to new shapes: the forms of all inputs.
    """

    def __init__(self, message: Message, model: int, memory: EngineMemory) -> None:
        engine = pkgutil.resolve_name(message["engine"])
        self._interpreter = engine(f"/proc/self/fd/{model}", message["threads"])
        self._inputs, self._outputs = message["inputs"], message["outputs"]
        self._memory = memory
        self.description = self._describe()

    def _describe(self) -> bytes:
        self._forms = [_form(self._interpreter.view(tensor)) for tensor in self._inputs]
        self._results: list[TensorForm] | None = None
        return json.dumps({"inputs": self._forms}).encode()

    def answer(self, request: bytes) -> bytes:
        """Return the answer to a request of the worker. Raises `ERRORS`."""
        if request not in (RUN, RESET_AND_RUN):
            self._interpreter.resize(dict(zip(self._inputs, json.loads(request), strict=True)))
            self.description = self._describe()
            return self.description
        view = self._interpreter.view
        if self._results is None:
            self._arrays = self._memory.arrays(self._forms, may_grow=False)
        if request == RESET_AND_RUN:
            self._interpreter.reset_variables()  # before the inputs, which may be variables
        for tensor, value in zip(self._inputs, self._arrays, strict=False):
            self._interpreter.write(tensor, value)
        self._interpreter.invoke()
        results = list(map(view, self._outputs))
        forms = list(map(_form, results))
        if forms != self._results:
            self._arrays = self._memory.arrays([*self._forms, *forms], may_grow=True)
            self._results, self._answer = forms, json.dumps({"outputs": forms}).encode()
        for result, target in zip(results, self._arrays[len(self._inputs) :], strict=True):
            target[...] = result
        return self._answer


def _form(array: AnyArray) -> TensorForm:
    return array.dtype.str, array.shape
