"""Operations: their type, their operands and their signature (V-OPERATION-01 to 05).

For an operation of an extension, only the operands are checked (V-OPERATION-03). The same holds for a type without a
signature. An operand may be given to several inputs (V-OPERATION-05).
"""

from dataclasses import dataclass
from functools import partial
from math import prod

from nnhal.operations import SIGNATURES
from nnhal.rules.control_flow import CONTROL_FLOW_RULES, Callee, ControlFlow
from nnhal.rules.rule import Rules
from nnhal.types import Model, Operand, OperandType, Operation, OperationType, Subgraph, is_extension
from nnhal_driver.validation.error_location import operation_location, subgraph_location
from nnhal_driver.validation.rank import check_shape_elements

_LAST_TYPE = max(OperationType)


@dataclass(frozen=True, slots=True)
class SubgraphOperation:
    """An operation and the subgraph that holds its operands."""

    subgraph: Subgraph
    operation: Operation


OPERATION_RULES = Rules[SubgraphOperation]()


def check_operation(model: Model, subgraph: Subgraph, number: int, index: int) -> None:
    """Check operation `index` of subgraph `number`, whose operands and callees are valid.

    Raises:
        HalError: INVALID_ARGUMENT, V-OPERATION-01 to 13; GENERAL_FAILURE: an argument describes more dimensions than
            this device takes.
    """
    operation = subgraph.operations[index]
    name = partial(operation_location, model, number, index)
    OPERATION_RULES.check(SubgraphOperation(subgraph, operation), name)
    if (signature := SIGNATURES.get(operation.type)) is not None and signature.shape_arguments:
        for position, argument in signature.shape_arguments.items():
            operand = subgraph.operands[operation.inputs[position]]
            if operand.type == OperandType.TENSOR_INT32:  # else the form has another argument there
                check_shape_elements(prod(operand.dimensions), f"{name()}: {argument}")
    if (rules := CONTROL_FLOW_RULES.get(operation.type)) is not None:
        inputs = [subgraph.operands[i] for i in operation.inputs]
        outputs = [subgraph.operands[i] for i in operation.outputs]
        rules.check(ControlFlow(inputs, outputs, [_callee(model, operand) for operand in inputs]), name)


def _callee(model: Model, operand: Operand) -> Callee | None:
    if operand.type != OperandType.SUBGRAPH:
        return None
    number = operand.location.offset
    callee = model.referenced[number]
    inputs = [callee.operands[i] for i in callee.input_indexes]
    return Callee(subgraph_location(number + 1), inputs, [callee.operands[i] for i in callee.output_indexes])


# V-MODEL-07 has no function: a device of version 4 has every type, so no type is too new.
@OPERATION_RULES.forbid("V-OPERATION-01")
def _unassigned_type(subject: SubgraphOperation) -> str | None:
    if subject.operation.type <= _LAST_TYPE or is_extension(subject.operation.type):
        return None
    return f"has a type that is not assigned, must be 0 to {_LAST_TYPE} or above 65535"


@OPERATION_RULES.forbid("V-OPERATION-02")
def _unknown_operand(subject: SubgraphOperation) -> str | None:
    count = len(subject.subgraph.operands)
    for name, indexes in (("input", subject.operation.inputs), ("output", subject.operation.outputs)):
        if (highest := max(indexes, default=0)) >= count:
            return f"has {name} index {highest} of {count} operands"
    return None


@OPERATION_RULES.forbid("V-OPERATION-04")
def _arguments_outside_the_signature(subject: SubgraphOperation) -> str | None:
    signature = SIGNATURES.get(subject.operation.type)
    if signature is None:
        return None
    operands = subject.subgraph.operands
    bound = signature.bind(
        [operands[i] for i in subject.operation.inputs], [operands[i] for i in subject.operation.outputs]
    )
    return bound if isinstance(bound, str) else None
