"""Rules for IF and WHILE and the subgraphs that they run (V-OPERATION-06 to 13).

Unknown shapes match every shape: V-OPERATION-08 and -12 are not enforced.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nnhal.rules.rule import Rules
from nnhal.types import Operand, OperandType, OperationType, type_name

FIRST_VALUE: Mapping[int, int] = {OperationType.IF: 3, OperationType.WHILE: 2}
"""Position of the first input that is passed to the subgraphs, by operation."""


@dataclass(frozen=True, slots=True)
class Callee:
    """A subgraph that an operation runs. `name` denotes it in messages."""

    name: str
    inputs: Sequence[Operand]
    outputs: Sequence[Operand]


@dataclass(frozen=True, slots=True)
class ControlFlow:
    """An IF or WHILE operation.

    Attributes:
        callees: the subgraph behind each input of type SUBGRAPH, None for the other inputs.
    """

    inputs: Sequence[Operand]
    outputs: Sequence[Operand]
    callees: Sequence[Callee | None]

    def callee(self, role: str, position: int) -> Callee:
        """Return the subgraph behind an input, with its role in its name."""
        callee = self.callees[position]
        assert callee is not None, "an earlier rule rejects other operands"
        return Callee(f"its {role} ({callee.name})", callee.inputs, callee.outputs)


IF_RULES = Rules[ControlFlow]()
WHILE_RULES = Rules[ControlFlow]()
CONTROL_FLOW_RULES: Mapping[int, Rules[ControlFlow]] = {OperationType.IF: IF_RULES, OperationType.WHILE: WHILE_RULES}


# ---- IF -------------------------------------------------------------------------------------------------


@IF_RULES.forbid("V-OPERATION-06")
def _malformed_if(operation: ControlFlow) -> str | None:
    if problem := _too_few(operation):
        return problem
    condition, *branches = operation.inputs[:3]
    if not _is_condition(condition):
        return f"has {_describe(condition)} as input 0, must be TENSOR_BOOL8 with dimensions (1,)"
    return _no_subgraph(branches, 1)


@IF_RULES.forbid("V-OPERATION-07")
def _branch_with_wrong_counts(operation: ControlFlow) -> str | None:
    for branch in _branches(operation):
        if problem := _wrong_counts(branch, len(operation.inputs) - 3, len(operation.outputs)):
            return problem
    return None


@IF_RULES.forbid("V-OPERATION-13")
def _branch_that_does_not_match(operation: ControlFlow) -> str | None:
    for branch in _branches(operation):
        problem = _mismatch("input", 3, operation.inputs[3:], branch.inputs, branch) or _mismatch(
            "output", 0, operation.outputs, branch.outputs, branch
        )
        if problem:
            return problem
    return None


def _branches(operation: ControlFlow) -> Iterator[Callee]:
    yield operation.callee("then branch", 1)
    yield operation.callee("else branch", 2)


# ---- WHILE ----------------------------------------------------------------------------------------------


@WHILE_RULES.forbid("V-OPERATION-09")
def _malformed_while(operation: ControlFlow) -> str | None:
    return _too_few(operation) or _no_subgraph(operation.inputs[:2], 0)


@WHILE_RULES.forbid("V-OPERATION-10")
def _malformed_condition(operation: ControlFlow) -> str | None:
    condition = operation.callee("condition", 0)
    if problem := _wrong_counts(condition, len(operation.inputs) - 2, 1):
        return problem
    (result,) = condition.outputs
    if _is_condition(result):
        return None
    return f"has {_describe(result)} as output of {condition.name}, must be TENSOR_BOOL8 with dimensions (1,)"


@WHILE_RULES.forbid("V-OPERATION-11")
def _body_with_wrong_counts(operation: ControlFlow) -> str | None:
    body = operation.callee("body", 1)
    inputs, outputs = len(body.inputs), len(body.outputs)
    if inputs != len(operation.inputs) - 2:
        return f"has {len(operation.inputs) - 2} values, but {body.name} takes {inputs}"
    if not len(operation.outputs) <= outputs <= inputs:
        return (
            f"has {len(operation.outputs)} outputs and {inputs} values, but {body.name} gives {outputs}, "
            "must be between the two"
        )
    return None


@WHILE_RULES.forbid("V-OPERATION-13")
def _loop_that_does_not_match(operation: ControlFlow) -> str | None:
    condition, body = operation.callee("condition", 0), operation.callee("body", 1)
    values = operation.inputs[2:]
    return (
        _mismatch("input", 2, values, condition.inputs, condition)
        or _mismatch("input", 2, values, body.inputs, body)
        or _mismatch("output", 0, operation.outputs, body.outputs, body)
        or _changed_by_body(body)
    )


def _changed_by_body(body: Callee) -> str | None:
    for i, (result, value) in enumerate(zip(body.outputs, body.inputs, strict=False)):
        if problem := _difference(result, value):
            return f"has output {i} of {body.name} unlike its input {i}: {problem}"
    return None


# ---- Both -----------------------------------------------------------------------------------------------


def _difference(operand: Operand, other: Operand) -> str | None:
    """Return the first property in which two operands do not match (V-OPERATION-13), or None."""
    if operand.type != other.type:
        return f"type {type_name(operand.type)}, not {type_name(other.type)}"
    for name in ("scale", "zero_point", "extra_params"):
        value, expected = getattr(operand, name), getattr(other, name)
        if value != expected:
            return f"{name.replace('_', ' ')} {value}, not {expected}"
    return _shape_difference(operand.dimensions, other.dimensions)


def _shape_difference(dimensions: Sequence[int], other: Sequence[int]) -> str | None:
    """Compare the dimensions that are known on both sides."""
    if not dimensions or not other:
        return None
    if len(dimensions) != len(other):
        return f"rank {len(dimensions)}, not {len(other)}"
    for axis, (length, expected) in enumerate(zip(dimensions, other, strict=True)):
        if length and expected and length != expected:
            return f"dimension {axis} is {length}, not {expected}"
    return None


def _too_few(operation: ControlFlow) -> str | None:
    inputs, outputs = len(operation.inputs), len(operation.outputs)
    if inputs < 3 or outputs < 1:
        return f"has {inputs} inputs and {outputs} outputs, must have at least 3 and 1"
    return None


def _no_subgraph(operands: Sequence[Operand], first: int) -> str | None:
    for position, operand in enumerate(operands, first):
        if operand.type != OperandType.SUBGRAPH:
            return f"has {type_name(operand.type)} as input {position}, must be SUBGRAPH"
    return None


def _is_condition(operand: Operand) -> bool:
    return operand.type == OperandType.TENSOR_BOOL8 and operand.dimensions == (1,)


def _describe(operand: Operand) -> str:
    return f"{type_name(operand.type)} with dimensions {operand.dimensions}"


def _wrong_counts(callee: Callee, inputs: int, outputs: int) -> str | None:
    if len(callee.inputs) != inputs:
        return f"has {inputs} values, but {callee.name} takes {len(callee.inputs)}"
    if len(callee.outputs) != outputs:
        return f"needs {outputs} outputs, but {callee.name} gives {len(callee.outputs)}"
    return None


def _mismatch(kind: str, first: int, outer: Sequence[Operand], inner: Sequence[Operand], callee: Callee) -> str | None:
    """Compare operands of the operation, from position `first` on, with those of a callee; excess ones are ignored."""
    for i, (operand, other) in enumerate(zip(outer, inner, strict=False)):
        if problem := _difference(operand, other):
            return f"has {kind} {first + i} unlike {kind} {i} of {callee.name}: {problem}"
    return None
