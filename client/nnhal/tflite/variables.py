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
from nnhal.tflite_schema import ActivationFunctionType, BuiltinOperator, TensorType
from nnhal.types import AnyArray

VARIABLE_OPERATORS = frozenset(
    {
        BuiltinOperator.VAR_HANDLE,
        BuiltinOperator.READ_VARIABLE,
        BuiltinOperator.ASSIGN_VARIABLE,
        BuiltinOperator.CALL_ONCE,
    }
)

CELL_STATE = "state in tensor "
"""First words of the names of states of recurrent layers, which have a tensor in place of a name."""
_LSTM, _RNN, _SVDF = ((18, 19), range(1, 5)), ((4,), range(5)), ((4,), range(6))
_STATES: dict[int, tuple[tuple[int, ...], range]] = {
    BuiltinOperator.LSTM: _LSTM,
    BuiltinOperator.RNN: _RNN,
    BuiltinOperator.SVDF: _SVDF,
    BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_LSTM: _LSTM,
    BuiltinOperator.UNIDIRECTIONAL_SEQUENCE_RNN: _RNN,
}
"""Inputs of recurrent layers that are states, and activations, if NNAPI's operation returns the states."""


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


def expose_variables(
    graphs: Sequence[TfliteGraph], subgraph: int = 0
) -> tuple[TfliteGraph, list[Operator], list[Variable]]:
    """Replace the resource variables of a subgraph by inputs and outputs.

    Returns:
        The graph, the operators that disappeared, and the variables.

    Raises:
        TfliteError: an initial value is not a constant, or a variable has no name.
    """
    graph = graphs[subgraph]
    removed = [operator for operator in graph.operators if operator.code in VARIABLE_OPERATORS]
    if not removed:
        return graph, [], []
    assigned, read = (
        _used_elsewhere(graphs, subgraph, code)
        for code in (BuiltinOperator.ASSIGN_VARIABLE, BuiltinOperator.READ_VARIABLE)
    )
    rewriter = _Rewriter(graph, assigned, read)
    for operator in graph.operators:
        with prefix_errors(str(operator)):
            if operator.code == BuiltinOperator.CALL_ONCE:
                rewriter.initialize(_initial_values(graphs, operator))
            else:
                rewriter.visit(operator)
    graph, variables = rewriter.finish()
    return graph, removed, variables


def expose_states(graph: TfliteGraph) -> tuple[TfliteGraph, list[Variable]]:
    """Make inputs and outputs of the states of recurrent layers, if NNAPI's operation returns them.

    Returns:
        The graph, whose layers have their states as further outputs, and the states as variables.
    """
    tensors, operators, variables = list(graph.tensors), [], list[Variable]()
    for operator in graph.operators:
        states = [tensors[operator.inputs[position]] for position in _state_positions(graph, operator)]
        first = len(tensors)
        for after, state in enumerate(states, first):
            tensors[state.index] = replace(state, is_variable=False)
            tensors.append(replace(state, index=after, is_variable=False))
            initial = np.zeros(state.shape, TENSOR_DTYPES[state.type])
            variables.append(Variable(f"{CELL_STATE}{state.index}", state.index, after, initial))
        operators.append(replace(operator, outputs=(*operator.outputs, *range(first, len(tensors)))))
    inputs = (*graph.inputs, *(variable.before for variable in variables))
    outputs = (*graph.outputs, *(variable.after for variable in variables))
    changed = replace(graph, tensors=tuple(tensors), operators=tuple(operators), inputs=inputs, outputs=outputs)
    return changed, variables


def _state_positions(graph: TfliteGraph, operator: Operator) -> tuple[int, ...]:
    """Return the inputs of an operator that are states, if it is a layer in float32 with the inputs of NNAPI's."""
    positions, activations = _STATES.get(operator.code, ((), range(0)))
    activation = operator.options.get("fused_activation_function", ActivationFunctionType.NONE)
    if activation not in activations or len(operator.inputs) <= max(positions):
        return ()
    if operator.options.get("diagonal_recurrent_tensors"):
        return ()
    is_float = all(graph.tensors[index].type == TensorType.FLOAT32 for index in operator.inputs if index >= 0)
    states = [graph.tensors[operator.inputs[position]] for position in positions]
    return positions if is_float and all(state.is_variable and min(state.shape) > 0 for state in states) else ()


def _variable_name(operator: Operator) -> str:
    name = "/".join(filter(None, (operator.options.get(part) for part in ("container", "shared_name"))))
    if not name:
        raise TfliteError("a variable has no name")
    return name


def _used_elsewhere(graphs: Sequence[TfliteGraph], subgraph: int, code: BuiltinOperator) -> set[str]:
    """Return the variables that other subgraphs assign or read, such as those of other signatures."""
    initial = {operator.options.get("init_subgraph_index") for graph in graphs for operator in graph.operators}
    names = set()
    for graph in (graph for i, graph in enumerate(graphs) if i not in initial | {subgraph}):
        handles = {each.outputs[0]: each for each in graph.operators if each.code == BuiltinOperator.VAR_HANDLE}
        used = {each.inputs[0] for each in graph.operators if each.code == code}
        names |= {_variable_name(handles[index]) for index in used & handles.keys()}
    return names


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
    def __init__(self, graph: TfliteGraph, assigned: set[str], read: set[str]) -> None:
        self._graph = graph
        self._assigned_elsewhere = assigned
        self._read_elsewhere = read
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
            name = self._handle(inputs[0])
            if name in self._read_elsewhere:
                self._read(name, inputs[1])  # an input, so that the value afterwards is an output
            self._current[name] = inputs[1]
        else:
            self._operators.append(replace(operator, inputs=inputs))

    def _handle(self, index: int) -> str:
        if index not in self._handles:
            raise TfliteError(f"{self._tensors[index]} is not the handle of a variable")
        return self._handles[index]

    def _read(self, name: str, like: int) -> int:
        if name not in self._current:
            tensor = replace(self._tensors[like], index=len(self._tensors), name=name, data=None, folded=None)
            if name in self._initial:  # LiteRT ignores the shape in the file
                tensor = replace(tensor, shape=self._initial[name].shape)
            if not all(length > 0 for length in tensor.shape) or tensor.type == TensorType.RESOURCE:
                raise TfliteError(f"variable {name!r} has no known shape")
            self._tensors.append(tensor)
            self._before[name] = self._current[name] = tensor.index
        return self._current[name]

    def finish(self) -> tuple[TfliteGraph, list[Variable]]:
        """Return the graph and its variables. A variable that no subgraph assigns is a constant."""
        variables = []
        for name, before in self._before.items():
            initial = self._initial_value(name, self._tensors[before])
            if self._current[name] == before and name not in self._assigned_elsewhere:
                self._tensors[before] = replace(self._tensors[before], folded=initial)
            else:
                variables.append(Variable(name, before, self._current[name], initial))
        outputs = tuple(self._aliases.get(index, index) for index in self._graph.outputs)
        graph = replace(
            self._graph,
            tensors=tuple(self._tensors),
            operators=tuple(self._operators),
            inputs=(*self._graph.inputs, *(variable.before for variable in variables)),
            outputs=(*outputs, *(variable.after for variable in variables)),
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
