"""Operations: their type, the operands they name, and what their signature says (V-OPERATION-01 to 05).

An operation of an extension gets no check beyond its operands (V-OPERATION-03), nor does a type without a signature.
The same operand may be given to several inputs (V-OPERATION-05).
"""

from dataclasses import dataclass
from functools import partial

from driver.validation import control_flow
from driver.validation.place import operation_place
from driver.validation.rule import Rules
from nnhal.operations import SIGNATURES
from nnhal.types import Model, Operation, OperationType, Subgraph, is_extension

_LAST_TYPE = max(OperationType)


@dataclass(frozen=True, slots=True)
class OperationIn:
    """An operation and the subgraph whose operands it names."""

    subgraph: Subgraph
    operation: Operation


OPERATION = Rules[OperationIn]()


def check_operation(model: Model, subgraph: Subgraph, number: int, index: int) -> None:
    """Judges operation `index` of a subgraph whose operands and callees are valid; `number` names the subgraph.

    Raises:
        HalError: INVALID_ARGUMENT, V-OPERATION-01 to 13.
    """
    operation = subgraph.operations[index]
    place = partial(operation_place, number, index, operation)
    OPERATION.check(OperationIn(subgraph, operation), place)
    if (rules := control_flow.RULES.get(operation.type)) is not None:
        rules.check(control_flow.Call(model, subgraph, operation), place)


# V-MODEL-07 would stand here: a device of version 4 has every type there is, so no type is too new.
@OPERATION.forbid("V-OPERATION-01")
def _unassigned_type(subject: OperationIn) -> str | None:
    if subject.operation.type <= _LAST_TYPE or is_extension(subject.operation.type):
        return None
    return f"has a type that is not assigned, must be 0 to {_LAST_TYPE} or above 65535"


@OPERATION.forbid("V-OPERATION-02")
def _argument_that_is_no_operand(subject: OperationIn) -> str | None:
    count = len(subject.subgraph.operands)
    for name, indexes in (("input", subject.operation.inputs), ("output", subject.operation.outputs)):
        if (highest := max(indexes, default=0)) >= count:
            return f"has {name} index {highest} of {count} operands"
    return None


@OPERATION.forbid("V-OPERATION-04")
def _arguments_that_no_signature_takes(subject: OperationIn) -> str | None:
    signature = SIGNATURES.get(subject.operation.type)
    if signature is None:
        return None
    operands = subject.subgraph.operands
    bound = signature.bind(
        [operands[i] for i in subject.operation.inputs], [operands[i] for i in subject.operation.outputs]
    )
    return bound if isinstance(bound, str) else None
