"""Resource variables as inputs and outputs: streaming models become models without side effects.

VAR_HANDLE, READ_VARIABLE, ASSIGN_VARIABLE and CALL_ONCE disappear. Each variable that the graph reads and assigns
becomes an additional input, the value before an execution, and an additional output, the value after it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnhal.tflite.errors import TfliteError, prefix_errors
from nnhal.tflite.fold import fold
from nnhal.tflite.graph import TENSOR_DTYPES, Operator, Tensor, TfliteGraph
from nnhal.tflite_schema import BuiltinOperator, TensorType
from nnhal.types import AnyArray

VARIABLE_OPERATORS = frozenset(
    {
        BuiltinOperator.VAR_HANDLE,
        BuiltinOperator.READ_VARIABLE,
        BuiltinOperator.ASSIGN_VARIABLE,
        BuiltinOperator.CALL_ONCE,
    }
)


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of the main subgraph.

    Attributes:
        before: the tensor with its value before an execution, an input of the graph.
        after: the tensor with its value after an execution, an output of the graph.
        initial: the value before the first execution.
    """

    name: str
    before: int
    after: int
    initial: AnyArray


def expose_variables(graphs: Sequence[TfliteGraph]) -> tuple[TfliteGraph, list[Operator], list[Variable]]:
    """Replace the resource variables of the main subgraph by inputs and outputs.

    Returns:
        The graph, the operators that disappeared, and the variables.

    Raises:
        TfliteError: an initial value is not a constant, or a variable has no name.
    """
    graph = graphs[0]
    removed = [operator for operator in graph.operators if operator.code in VARIABLE_OPERATORS]
    if not removed:
        return graph, [], []
    rewriter = _Rewriter(graph)
    for operator in graph.operators:
        with prefix_errors(str(operator)):
            if operator.code == BuiltinOperator.CALL_ONCE:
                rewriter.initialize(_initial_values(graphs, operator))
            else:
                rewriter.visit(operator)
    graph, variables = rewriter.finish()
    return graph, removed, variables


def _variable_name(operator: Operator) -> str:
    name = "/".join(filter(None, (operator.options.get(part) for part in ("container", "shared_name"))))
    if not name:
        raise TfliteError("a variable has no name")
    return name


def _initial_values(graphs: Sequence[TfliteGraph], operator: Operator) -> dict[str, AnyArray]:
    """Return what the subgraph of a CALL_ONCE assigns."""
    index = operator.options.get("init_subgraph_index", 0)
    if not 0 < index < len(graphs):
        raise TfliteError(f"initializes with subgraph {index} of {len(graphs)}")
    graph = fold(graphs[index]).graph
    handles: dict[int, str] = {}
    values: dict[str, AnyArray] = {}
    for step in graph.operators:
        if step.code == BuiltinOperator.VAR_HANDLE:
            handles[step.outputs[0]] = _variable_name(step)
        elif step.code == BuiltinOperator.ASSIGN_VARIABLE and step.inputs[0] in handles:
            values[handles[step.inputs[0]]] = graph.values(step.inputs[1])
        else:
            raise TfliteError(f"initializes variables with {step.name}; expected assignments of constants")
    return values


class _Rewriter:
    def __init__(self, graph: TfliteGraph) -> None:
        self._graph = graph
        self._tensors = list(graph.tensors)
        self._operators: list[Operator] = []
        self._handles: dict[int, str] = {}
        self._initial: dict[str, AnyArray] = {}
        self._before: dict[str, int] = {}
        self._current: dict[str, int] = {}
        self._aliases: dict[int, int] = {}

    def initialize(self, values: dict[str, AnyArray]) -> None:
        """Set initial values."""
        self._initial.update(values)

    def visit(self, operator: Operator) -> None:
        """Follow the variables through one operator."""
        inputs = tuple(self._aliases.get(index, index) for index in operator.inputs)
        if operator.code == BuiltinOperator.VAR_HANDLE:
            self._handles[operator.outputs[0]] = _variable_name(operator)
        elif operator.code == BuiltinOperator.READ_VARIABLE:
            self._aliases[operator.outputs[0]] = self._read(self._handle(inputs[0]), operator.outputs[0])
        elif operator.code == BuiltinOperator.ASSIGN_VARIABLE:
            self._current[self._handle(inputs[0])] = inputs[1]
        else:
            self._operators.append(replace(operator, inputs=inputs))

    def _handle(self, index: int) -> str:
        if index not in self._handles:
            raise TfliteError(f"{self._tensors[index]} is not the handle of a variable")
        return self._handles[index]

    def _read(self, name: str, like: int) -> int:
        if name not in self._current:
            tensor = replace(self._tensors[like], index=len(self._tensors), name=name, data=None)
            if name in self._initial:  # LiteRT ignores the shape in the file
                tensor = replace(tensor, shape=self._initial[name].shape)
            if not all(length > 0 for length in tensor.shape) or tensor.type == TensorType.RESOURCE:
                raise TfliteError(f"variable {name!r} has no known shape")
            self._tensors.append(tensor)
            self._before[name] = self._current[name] = tensor.index
        return self._current[name]

    def finish(self) -> tuple[TfliteGraph, list[Variable]]:
        """Return the graph and its variables. A variable that is never assigned is a constant."""
        variables = []
        for name, before in self._before.items():
            initial = self._initial_value(name, self._tensors[before])
            if self._current[name] == before:
                self._tensors[before] = replace(self._tensors[before], folded=initial)
            else:
                variables.append(Variable(name, before, self._current[name], initial))
        outputs = tuple(self._aliases.get(index, index) for index in self._graph.outputs)
        graph = TfliteGraph(
            self._graph.data,
            tuple(self._tensors),
            tuple(self._operators),
            (*self._graph.inputs, *(variable.before for variable in variables)),
            (*outputs, *(variable.after for variable in variables)),
        )
        return graph, variables

    def _initial_value(self, name: str, tensor: Tensor) -> AnyArray:
        dtype = TENSOR_DTYPES.get(tensor.type)
        value = self._initial.get(name)
        if value is None:
            return np.zeros(tensor.shape, dtype)
        if value.shape != tensor.shape or value.dtype != dtype:
            raise TfliteError(f"variable {name!r} starts as {value.dtype} {list(value.shape)}; expected {dtype}")
        return value
