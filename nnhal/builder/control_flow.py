"""IF and WHILE: whether the subgraphs that they run have the form that they need (V-OPERATION-06 to 13).

Unknown shapes are allowed on all sides, as by the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from nnhal.types import Operand, OperandType, OperationType, type_name

FIRST_VALUE = {OperationType.IF: 3, OperationType.WHILE: 2}
"""The first input that is a value for the subgraphs, by operation."""

_USAGE = {
    OperationType.IF: "inputs (condition, then, else, values...); at least one output",
    OperationType.WHILE: "inputs (condition, body, values...) with at least one value; at least one output",
}
_ROLES = {OperationType.IF: {1: "then", 2: "else"}, OperationType.WHILE: {0: "condition", 1: "body"}}


@dataclass(frozen=True)
class Callee:
    """A subgraph that is run. `name`: what a person calls it."""

    name: str
    inputs: Sequence[Operand]
    outputs: Sequence[Operand]


def complaint(
    type_: OperationType, inputs: Sequence[Operand], callees: Sequence[Callee | None], outputs: Sequence[Operand]
) -> tuple[str, str] | None:
    """What is wrong with an IF or WHILE.

    Args:
        inputs: all of its inputs.
        callees: the subgraph behind each input, or None.

    Returns:
        the rule that it breaks, and what it has and should have; or None.
    """
    rule = "V-OPERATION-06" if type_ == OperationType.IF else "V-OPERATION-09"
    if len(inputs) < 3 or not outputs:
        return rule, f"has {len(inputs)} inputs and {len(outputs)} outputs; it takes {_USAGE[type_]}"
    for position, role in _ROLES[type_].items():
        if callees[position] is None:
            return rule, f"input {position} ({role}) is {type_name(inputs[position].type)}, not a subgraph"
    run = {role: callee for position, role in _ROLES[type_].items() if (callee := callees[position])}
    values = inputs[FIRST_VALUE[type_] :]
    for role, callee in run.items():
        if len(callee.inputs) != len(values):
            rule = {"condition": "V-OPERATION-10", "body": "V-OPERATION-11"}.get(role, "V-OPERATION-07")
            return rule, f"gives {len(values)} values to its {role}, but {callee.name} takes {len(callee.inputs)}"
    wrong = _if(inputs[0], run, outputs) if type_ == OperationType.IF else _while(run, values, outputs)
    return wrong or _unlike_values(run, values, FIRST_VALUE[type_])


def _if(condition: Operand, run: dict[str, Callee], outputs: Sequence[Operand]) -> tuple[str, str] | None:
    if not _is_condition(condition):
        return "V-OPERATION-06", f"input 0 (condition) is {described(condition)}; it must be TENSOR_BOOL8 [1]"
    for role, callee in run.items():
        if len(callee.outputs) != len(outputs):
            text = f"has {len(outputs)} outputs, but its {role}, {callee.name}, gives {len(callee.outputs)}"
            return "V-OPERATION-07", text
        if wrong := _unlike(outputs, "output", 0, callee.outputs, f"output of its {role}, {callee.name}"):
            return wrong
    return None


def _while(run: dict[str, Callee], values: Sequence[Operand], outputs: Sequence[Operand]) -> tuple[str, str] | None:
    condition, body = run["condition"], run["body"]
    if len(condition.outputs) != 1 or not _is_condition(condition.outputs[0]):
        found = ", ".join(map(described, condition.outputs))
        return "V-OPERATION-10", f"condition, {condition.name}, gives {found}; it must give one TENSOR_BOOL8 [1]"
    if not len(outputs) <= len(body.outputs) <= len(values):
        counts = f"has {len(outputs)} outputs and {len(values)} values, but its body, {body.name}, gives"
        return "V-OPERATION-11", f"{counts} {len(body.outputs)}; that must be between the two"
    return _unlike(outputs, "output", 0, body.outputs, f"output of its body, {body.name}") or _unlike(
        body.outputs, f"in its body, {body.name}, output", 0, body.inputs, "input of the same body"
    )


def _unlike_values(run: dict[str, Callee], values: Sequence[Operand], first: int) -> tuple[str, str] | None:
    for role, callee in run.items():
        if wrong := _unlike(values, "input", first, callee.inputs, f"input of its {role}, {callee.name}"):
            return wrong
    return None


def _unlike(
    ours: Sequence[Operand], name: str, first: int, theirs: Sequence[Operand], their_name: str
) -> tuple[str, str] | None:
    """Compares operands as far as both go (V-OPERATION-13)."""
    for i, (one, other) in enumerate(zip(ours, theirs, strict=False)):
        if not _match(one, other):
            here, there = f"{name} {first + i} is {described(one)}", f"{i}. {their_name}, is {described(other)}"
            return "V-OPERATION-13", f"{here}, but the {there}; they must match"
    return None


def _match(one: Operand, other: Operand) -> bool:
    if (one.type, one.scale, one.zero_point, one.extra_params) != (
        other.type,
        other.scale,
        other.zero_point,
        other.extra_params,
    ):
        return False
    if not one.dimensions or not other.dimensions:
        return True
    return len(one.dimensions) == len(other.dimensions) and all(
        0 in pair or pair[0] == pair[1] for pair in zip(one.dimensions, other.dimensions, strict=True)
    )


def _is_condition(operand: Operand) -> bool:
    return operand.type == OperandType.TENSOR_BOOL8 and operand.dimensions == (1,)


def described(operand: Operand) -> str:
    """Type, dimensions and quantisation in words."""
    words = [type_name(operand.type)]
    if operand.dimensions:
        words.append(str(list(operand.dimensions)))
    if operand.scale:
        words.append(f"scale {operand.scale:g} zero point {operand.zero_point}")
    return " ".join(words)
