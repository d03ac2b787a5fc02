"""IF and WHILE: the form of the subgraphs that they run (V-OPERATION-06 to 13).

The operands of the calling subgraph and the whole of the called ones have been judged before, so every index exists.
Unknown shapes are allowed on all sides: V-OPERATION-08 and -12 are not enforced.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from driver.validation.place import subgraph_place
from driver.validation.rule import Rules
from nnhal.types import Model, Operand, OperandType, Operation, OperationType, Subgraph, type_name


@dataclass(frozen=True, slots=True)
class Callee:
    """A subgraph that an operation runs. `name`: what a person calls it."""

    name: str
    subgraph: Subgraph

    @property
    def inputs(self) -> list[Operand]:
        """The operands of its inputs."""
        return [self.subgraph.operands[i] for i in self.subgraph.input_indexes]

    @property
    def outputs(self) -> list[Operand]:
        """The operands of its outputs."""
        return [self.subgraph.operands[i] for i in self.subgraph.output_indexes]


@dataclass(frozen=True, slots=True)
class Call:
    """An IF or WHILE, its subgraph, and the model that holds the subgraphs it runs."""

    model: Model
    subgraph: Subgraph
    operation: Operation

    @property
    def inputs(self) -> list[Operand]:
        """The operands of its inputs."""
        return [self.subgraph.operands[i] for i in self.operation.inputs]

    @property
    def outputs(self) -> list[Operand]:
        """The operands of its outputs."""
        return [self.subgraph.operands[i] for i in self.operation.outputs]

    def callee(self, role: str, position: int) -> Callee:
        """The subgraph that input `position` refers to."""
        referenced = self.subgraph.operands[self.operation.inputs[position]].location.offset
        return Callee(f"its {role} ({subgraph_place(referenced + 1)})", self.model.referenced[referenced])


IF = Rules[Call]()
WHILE = Rules[Call]()
RULES: Mapping[int, Rules[Call]] = {OperationType.IF: IF, OperationType.WHILE: WHILE}


# ---- IF -------------------------------------------------------------------------------------------------


@IF.forbid("V-OPERATION-06")
def _if_of_another_form(call: Call) -> str | None:
    if complaint := _too_few(call):
        return complaint
    condition, *branches = call.inputs[:3]
    if not _is_condition(condition):
        return f"has {_shape(condition)} as input 0, must be TENSOR_BOOL8 with dimensions (1,)"
    return _no_subgraph(branches, 1)


@IF.forbid("V-OPERATION-07")
def _branch_of_another_form(call: Call) -> str | None:
    for branch in _branches(call):
        if complaint := _counts(branch, len(call.operation.inputs) - 3, len(call.operation.outputs)):
            return complaint
    return None


@IF.forbid("V-OPERATION-13")
def _branch_that_does_not_match(call: Call) -> str | None:
    for branch in _branches(call):
        complaint = _unlike("input", 3, call.inputs[3:], branch.inputs, branch) or _unlike(
            "output", 0, call.outputs, branch.outputs, branch
        )
        if complaint:
            return complaint
    return None


def _branches(call: Call) -> Iterator[Callee]:
    yield call.callee("then branch", 1)
    yield call.callee("else branch", 2)


# ---- WHILE ----------------------------------------------------------------------------------------------


@WHILE.forbid("V-OPERATION-09")
def _while_of_another_form(call: Call) -> str | None:
    return _too_few(call) or _no_subgraph(call.inputs[:2], 0)


@WHILE.forbid("V-OPERATION-10")
def _condition_of_another_form(call: Call) -> str | None:
    condition = call.callee("condition", 0)
    if complaint := _counts(condition, len(call.operation.inputs) - 2, 1):
        return complaint
    (result,) = condition.outputs
    if _is_condition(result):
        return None
    return f"has {_shape(result)} as output of {condition.name}, must be TENSOR_BOOL8 with dimensions (1,)"


@WHILE.forbid("V-OPERATION-11")
def _body_of_another_form(call: Call) -> str | None:
    body = call.callee("body", 1)
    inputs, outputs = len(body.subgraph.input_indexes), len(body.subgraph.output_indexes)
    if inputs != len(call.operation.inputs) - 2:
        return f"has {len(call.operation.inputs) - 2} values, but {body.name} takes {inputs}"
    if not len(call.operation.outputs) <= outputs <= inputs:
        return (
            f"has {len(call.operation.outputs)} outputs and {inputs} values, but {body.name} gives {outputs}, "
            "must be between the two"
        )
    return None


@WHILE.forbid("V-OPERATION-13")
def _loop_that_does_not_match(call: Call) -> str | None:
    condition, body = call.callee("condition", 0), call.callee("body", 1)
    values = call.inputs[2:]
    return (
        _unlike("input", 2, values, condition.inputs, condition)
        or _unlike("input", 2, values, body.inputs, body)
        or _unlike("output", 0, call.outputs, body.outputs, body)
        or _unlike_itself(body)
    )


def _unlike_itself(body: Callee) -> str | None:
    for i, (result, value) in enumerate(zip(body.outputs, body.inputs, strict=False)):
        if complaint := difference(result, value):
            return f"has output {i} of {body.name} unlike its input {i}: {complaint}"
    return None


# ---- Both -----------------------------------------------------------------------------------------------


def difference(one: Operand, other: Operand) -> str | None:
    """What keeps two operands from matching (V-OPERATION-13), or None."""
    if one.type != other.type:
        return f"type {type_name(one.type)}, not {type_name(other.type)}"
    for name in ("scale", "zero_point", "extra_params"):
        found, wanted = getattr(one, name), getattr(other, name)
        if found != wanted:
            return f"{name.replace('_', ' ')} {found}, not {wanted}"
    return _other_shape(one.dimensions, other.dimensions)


def _other_shape(one: Sequence[int], other: Sequence[int]) -> str | None:
    """Compares what both sides know."""
    if not one or not other:
        return None
    if len(one) != len(other):
        return f"rank {len(one)}, not {len(other)}"
    for axis, (length, wanted) in enumerate(zip(one, other, strict=True)):
        if length and wanted and length != wanted:
            return f"dimension {axis} is {length}, not {wanted}"
    return None


def _too_few(call: Call) -> str | None:
    inputs, outputs = len(call.operation.inputs), len(call.operation.outputs)
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


def _shape(operand: Operand) -> str:
    return f"{type_name(operand.type)} with dimensions {operand.dimensions}"


def _counts(callee: Callee, inputs: int, outputs: int) -> str | None:
    if len(callee.subgraph.input_indexes) != inputs:
        return f"has {inputs} values, but {callee.name} takes {len(callee.subgraph.input_indexes)}"
    if len(callee.subgraph.output_indexes) != outputs:
        return f"needs {outputs} outputs, but {callee.name} gives {len(callee.subgraph.output_indexes)}"
    return None


def _unlike(kind: str, first: int, outer: Sequence[Operand], inner: Sequence[Operand], callee: Callee) -> str | None:
    """Compares operands of the operation, from position `first` on, with those of a callee as far as both go."""
    for i, (one, other) in enumerate(zip(outer, inner, strict=False)):
        if complaint := difference(one, other):
            return f"has {kind} {first + i} unlike {kind} {i} of {callee.name}: {complaint}"
    return None
