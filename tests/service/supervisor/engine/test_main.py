"""Requests of a worker, as the process of an engine answers them."""

import json
from collections.abc import Mapping

import numpy as np

from nnhal.types import AnyArray
from nnhal_service.supervisor.engine.engine_memory import EngineMemory, create_memory
from nnhal_service.supervisor.engine.main import RESET_AND_RUN, RUN, EngineServer


class Sum:
    """Engine that adds its input, tensor 0, to a variable, tensor 1, which is an input and an output."""

    def __init__(self, path: str, threads: int) -> None:
        self._values: dict[int, AnyArray] = {0: np.zeros(2), 1: np.zeros(2)}

    def view(self, tensor: int) -> AnyArray:
        return self._values[tensor]

    def write(self, tensor: int, value: AnyArray) -> None:
        self._values[tensor][...] = value

    def resize(self, shapes: Mapping[int, tuple[int, ...]]) -> None:
        self._values = {tensor: np.zeros(shape) for tensor, shape in shapes.items()}

    def reset_variables(self) -> None:
        self._values[1][...] = 0

    def invoke(self) -> None:
        self._values[1] += self._values[0]


def server() -> tuple[EngineServer, EngineMemory]:
    """Return a server, and the memory of its worker."""
    descriptor = create_memory()
    message = {"engine": f"{__name__}:Sum", "inputs": [0, 1], "outputs": [1], "threads": 1}
    return EngineServer(message, 0, EngineMemory(descriptor)), EngineMemory(descriptor)


def test_variables_are_reset_before_inputs_are_written() -> None:
    engine, memory = server()
    forms = json.loads(engine.description)["inputs"]
    first, state = memory.arrays(forms, may_grow=True)
    for request in (RUN, RESET_AND_RUN):
        first[...], state[...] = 1, 5
        answer = json.loads(engine.answer(request))
        *_, result = memory.arrays([*forms, *answer["outputs"]], may_grow=False)
        assert result.tolist() == [6, 6]


def test_new_shapes() -> None:
    engine, memory = server()
    forms = json.loads(engine.answer(b"[[3],[3]]"))["inputs"]
    assert forms == [["<f8", [3]], ["<f8", [3]]]
    first, state = memory.arrays(forms, may_grow=True)
    first[...], state[...] = [1, 2, 3], 1
    answer = json.loads(engine.answer(RUN))
    assert engine.answer(RUN) == json.dumps(answer).encode()
    *_, result = memory.arrays([*forms, *answer["outputs"]], may_grow=False)
    assert result.tolist() == [2, 3, 4]
