"""Checks of the flow of data in a subgraph: who writes and who reads each tensor, and what exists at the same time."""

from collections.abc import Sequence
from typing import NoReturn

from nnhal_driver.backends.litert.submodel.model import InvalidSubModel, SubModelGraph, SubModelOperator, operator_path
from nnhal_driver.backends.litert.submodel.operator_check import RULES


def check_data_flow(graph: SubModelGraph, number: int) -> int:
    """Check the indices of tensors and the flow of data, and return the bytes that exist at the same time.

    Raises:
        InvalidSubModel: an index is out of range; a tensor is written twice, or read before it is written.
    """
    return _Flow(graph, number).check()


class _Flow:
    """The flow of data of one subgraph."""

    def __init__(self, graph: SubModelGraph, number: int) -> None:
        self._graph = graph
        self._number = number
        self._where = f"subgraph {number}"
        self._count = len(graph.tensors)
        self._available = {i for i, tensor in enumerate(graph.tensors) if tensor.data is not None}
        self._variables = {i for i, tensor in enumerate(graph.tensors) if tensor.is_variable}
        self._last_use: dict[int, int] = {}

    def check(self) -> int:
        graph = self._graph
        if self._number and self._variables:
            raise InvalidSubModel(
                f"{self._where}: tensor {min(self._variables)} is a variable; only subgraph 0 has them"
            )
        self._check_ends("inputs", graph.inputs)
        if len(set(graph.inputs)) != len(graph.inputs):
            raise InvalidSubModel(f"{self._where}: inputs has a tensor twice")
        for tensor in graph.inputs:
            if tensor in self._available or tensor in self._variables:
                raise InvalidSubModel(f"{self._where}: inputs: tensor {tensor} is a constant or a variable")
        self._available.update(graph.inputs)
        states: set[int] = set()
        for index, operator in enumerate(graph.operators):
            self._check_operator(index, operator, states)
        self._check_outputs()
        return self._peak()

    def _check_ends(self, name: str, tensors: Sequence[int]) -> None:
        for tensor in tensors:
            if not 0 <= tensor < self._count:
                raise InvalidSubModel(f"{self._where}: {name} refers to tensor {tensor}; there are {self._count}")

    def _check_outputs(self) -> None:
        outputs = self._graph.outputs
        self._check_ends("outputs", outputs)
        written = {o for operator in self._graph.operators for o in operator.outputs}
        for tensor in outputs:
            if tensor not in self._available or (not self._number and tensor not in written):
                raise InvalidSubModel(f"{self._where}: outputs: no operator writes tensor {tensor}")
            self._last_use[tensor] = len(self._graph.operators)

    def _check_operator(self, index: int, operator: SubModelOperator, states: set[int]) -> None:
        def fail(problem: str) -> NoReturn:
            raise InvalidSubModel(f"{operator_path(self._number, index, operator.kind)}: {problem}")

        if operator.kind not in RULES:
            fail("is not supported in a sub-model")
        expected_states = RULES[operator.kind].states
        for position, tensor in enumerate(operator.inputs):
            if tensor == -1:
                continue
            if not 0 <= tensor < self._count:
                fail(f"inputs refers to tensor {tensor}; there are {self._count}")
            if (tensor in self._variables) != (position in expected_states):
                fail(f"input {position} is {'' if tensor in self._variables else 'not '}a variable")
            if tensor in self._variables:
                if tensor in states:
                    fail(f"input {position}: variable {tensor} is in use already")
                states.add(tensor)
            elif tensor not in self._available:
                fail(f"input {position}: tensor {tensor} is read, but has no value yet")
            self._last_use[tensor] = index
        for tensor in operator.outputs:
            if not 0 <= tensor < self._count:
                fail(f"outputs refers to tensor {tensor}; there are {self._count}")
            if tensor in self._available or tensor in self._variables:
                fail(f"tensor {tensor} is written, but has a value already")
            self._available.add(tensor)

    def _peak(self) -> int:
        """Return the largest number of bytes of tensors, other than constants, that exist at the same time."""
        tensors, last_use = self._graph.tensors, self._last_use
        current = sum(tensors[i].byte_size for i in {*self._graph.inputs, *self._variables})
        peak = current
        ending: dict[int, list[int]] = {}
        for tensor, index in last_use.items():
            if tensors[tensor].data is None and tensor not in self._variables and tensor not in self._graph.inputs:
                ending.setdefault(index, []).append(tensor)
        for index, operator in enumerate(self._graph.operators):
            current += sum(tensors[o].byte_size for o in operator.outputs)
            peak = max(peak, current)
            current -= sum(tensors[t].byte_size for t in ending.get(index, ()))
            current -= sum(tensors[o].byte_size for o in operator.outputs if o not in last_use)
        return peak
