"""IF and WHILE. Nothing can interrupt a loop in the engine, so that a WHILE must count up to a constant."""

from collections.abc import Sequence
from dataclasses import dataclass

from nnhal_driver.backends.litert.submodel.model import SubModelGraph, SubModelTensor
from nnhal_driver.backends.litert.submodel.operator_check import OperatorCheck, rule
from nnhal_driver.backends.litert.submodel.rules.shapes import ANY

_INT_MAX = {"INT32": 2**31 - 1, "INT64": 2**63 - 1}


def _callee(op: OperatorCheck, name: str, inputs: Sequence[SubModelTensor | None]) -> SubModelGraph:
    """Return a called subgraph, after checking its number and its inputs."""
    number, graphs = op.option(name), op.model.graphs
    op.require_range(name, number, 1, len(graphs) - 1)
    graph = graphs[number]
    _check_same(op, f"the inputs of subgraph {number}", [graph.tensors[i] for i in graph.inputs], inputs)
    return graph


def _check_same(
    op: OperatorCheck, name: str, tensors: Sequence[SubModelTensor], expected: Sequence[SubModelTensor | None]
) -> None:
    """Check that tensors have the types, shapes and quantization of others."""
    op.require(len(tensors) == len(expected), f"{name} are {len(tensors)}; expected {len(expected)}")
    for index, (tensor, other) in enumerate(zip(tensors, expected, strict=True)):
        if other is None:
            op.fail(f"input {index} is missing")
        if (tensor.type, tensor.shape) != (other.type, other.shape):
            op.fail(f"{name}: number {index} is {_text(tensor)}; expected {_text(other)}")
        op.same_quantization(tensor, other)


def _text(tensor: SubModelTensor) -> str:
    return f"{tensor.type} {list(tensor.shape)}"


def _outputs(graph: SubModelGraph) -> list[SubModelTensor]:
    return [graph.tensors[o] for o in graph.outputs]


def _check_condition(op: OperatorCheck, tensor: SubModelTensor, name: str) -> None:
    op.require(
        tensor.type == "BOOL" and tensor.elements == 1, f"{name} is {_text(tensor)}; expected one element of BOOL"
    )


@rule("IF", types=[f"bool {ANY}?* -> {ANY}*"], options="IfOptions", quantized=False)
def if_(op: OperatorCheck) -> None:
    """Check an IF: both branches take the inputs and give the outputs."""
    _check_condition(op, op.input(0), "input 0")
    for name in ("then_subgraph_index", "else_subgraph_index"):
        graph = _callee(op, name, op.inputs[1:])
        _check_same(op, f"the outputs of subgraph {op.option(name)}", _outputs(graph), op.outputs)
        op.calls.append((op.option(name), 1))


@rule("WHILE", types=[f"{ANY}* -> {ANY}*"], options="WhileOptions", quantized=False)
def while_(op: OperatorCheck) -> None:
    """Check a WHILE: condition and body take the inputs, the body gives them, and the trips are bounded."""
    condition = _callee(op, "cond_subgraph_index", op.inputs)
    body = _callee(op, "body_subgraph_index", op.inputs)
    op.require(len(condition.outputs) == 1, f"the condition has {len(condition.outputs)} outputs; expected 1")
    _check_condition(op, _outputs(condition)[0], "the output of the condition")
    _check_same(op, "the outputs of the body", _outputs(body), op.inputs)
    _check_same(op, "outputs", op.outputs, op.inputs)
    op.deferred.append(lambda: _check_trips(op, condition, body))


def _check_trips(op: OperatorCheck, condition: SubModelGraph, body: SubModelGraph) -> None:
    """Check that the number of trips of a WHILE is bounded, and add its calls."""
    trips = _Trips(op, condition, body).count(condition.outputs[0])
    if trips is None:
        op.fail("the number of trips is not bounded; expected a counter that a constant step raises to a constant")
    op.require(trips <= op.limits.trips, f"{trips} trips are possible; at most {op.limits.trips} are supported")
    op.calls.append((op.option("cond_subgraph_index"), trips + 1))
    op.calls.append((op.option("body_subgraph_index"), trips))
    op.work += trips * sum(tensor.elements for tensor in op.outputs)


@dataclass(frozen=True, slots=True)
class _Trips:
    """Analysis of the number of times that a body can run."""

    op: OperatorCheck
    condition: SubModelGraph
    body: SubModelGraph

    def count(self, tensor: int) -> int | None:
        """Return the largest number of trips while a tensor of the condition is true, or None if it is not known."""
        writers = {o: operator for operator in self.condition.operators for o in operator.outputs}
        required, seen, counts = [tensor], {tensor}, []
        for name in required:  # the tensors that must all be true, which grows
            operator = writers.get(name)
            if operator is None or len(operator.inputs) != 2:
                continue
            first, second = operator.inputs
            if operator.name == "LOGICAL_AND":
                required += {first, second} - seen
                seen |= {first, second}
            elif operator.name in ("LESS", "LESS_EQUAL"):
                counts.append(self._trips(first, second, inclusive=operator.name == "LESS_EQUAL"))
            elif operator.name in ("GREATER", "GREATER_EQUAL"):
                counts.append(self._trips(second, first, inclusive=operator.name == "GREATER_EQUAL"))
        return min((count for count in counts if count is not None), default=None)

    def _trips(self, counter: int, bound: int, *, inclusive: bool) -> int | None:
        """Return the number of trips while counter < bound, or counter <= bound."""
        limit = self._bound(bound)
        if counter not in self.condition.inputs or limit is None:
            return None
        position = self.condition.inputs.index(counter)
        start, step = _constant(self.op.input(position)), self._step(position)
        if start is None or step is None:
            return None
        limit += inclusive
        if limit - 1 + step > _INT_MAX[self.op.input(position).type]:
            return None
        return max(-(-(limit - start) // step), 0)

    def _bound(self, tensor: int) -> int | None:
        """Return the value of a tensor of the condition that is the same in each trip."""
        if tensor not in self.condition.inputs:
            return _constant(self.condition.tensors[tensor])
        position = self.condition.inputs.index(tensor)
        unchanged = self.body.outputs[position] == self.body.inputs[position]
        return _constant(self.op.input(position)) if unchanged else None

    def _step(self, position: int) -> int | None:
        """Return the positive constant that the body adds to an input."""
        counter, result = self.body.inputs[position], self.body.outputs[position]
        for operator in self.body.operators:
            if result in operator.outputs and operator.name == "ADD" and counter in operator.inputs:
                first, second = operator.inputs
                step = _constant(self.body.tensors[second if first == counter else first])
                return (
                    step
                    if step is not None and step > 0 and not operator.options["fused_activation_function"]
                    else None
                )
        return None


def _constant(tensor: SubModelTensor) -> int | None:
    """Return the value of a constant integer of one element."""
    if tensor.data is None or tensor.type not in _INT_MAX or tensor.elements != 1:
        return None
    return int(tensor.values().reshape(-1)[0])
