"""Faults in what is refused of models: a flaw is not seen, or named wrongly."""

from typing import Any

from nnhal.types import ErrorStatus, OperandLifeTime, OperandType
from tools.conformance.selftest.fault import PREPARE, SUPPORTED, accepted, changed_detail, fault, with_errors
from tools.conformance.selftest.proxy import Call

_SCALED = (OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT16_SYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED)


@fault("BASIC-09", "VALMODEL-01", on=(SUPPORTED,))
def every_model_supported(call: Call, request: Any) -> Any:
    """getSupportedOperations does not look at the model."""
    return accepted(call, request)


@fault("VALMODEL-01", "BASIC-09", on=(SUPPORTED,))
def refused_with_another_status(call: Call, request: Any) -> Any:
    """getSupportedOperations refuses invalid models with GENERAL_FAILURE."""

    def change(detail: Any) -> None:
        detail.status = ErrorStatus.GENERAL_FAILURE

    return with_errors(call, request, changed_detail(change))


@fault("VALMODEL-03", on=("Device.PrepareModelWithConfig",))
def configured_models_unchecked(call: Call, request: Any) -> Any:
    """prepareModelWithConfig takes every model."""
    return accepted(call, request)


@fault("VALMODEL-15", "VALMODEL-16", on=(SUPPORTED, PREPARE))
def dangling_operand_accepted(call: Call, request: Any) -> Any:
    """An operation may read and write operands that do not exist."""
    main = request.model.main
    used = [i for operation in main.operations for i in (*operation.inputs, *operation.outputs)]
    return accepted(call, request) if max(used, default=0) >= len(main.operands) else call.forward(request)


@fault("VALMODEL-08", on=(SUPPORTED, PREPARE))
def scale_of_zero_accepted(call: Call, request: Any) -> Any:
    """A quantised operand may have a scale of 0."""
    operands = request.model.main.operands
    flawed = any(operand.type in _SCALED and operand.scale == 0 for operand in operands)
    return accepted(call, request) if flawed else call.forward(request)


@fault("VALMODEL-09", on=(SUPPORTED, PREPARE))
def zero_point_out_of_range_accepted(call: Call, request: Any) -> Any:
    """The zero point of a TENSOR_QUANT8_ASYMM may be 256: it is taken modulo 256."""
    for operand in request.model.main.operands:
        if operand.type == OperandType.TENSOR_QUANT8_ASYMM:
            operand.zero_point %= 256
    return call.forward(request)


@fault("VALMODEL-12", on=(SUPPORTED, PREPARE))
def operand_written_twice_accepted(call: Call, request: Any) -> Any:
    """Two operations may write one operand."""
    written = [i for operation in request.model.main.operations for i in operation.outputs]
    return accepted(call, request) if len(set(written)) < len(written) else call.forward(request)


@fault("VALMODEL-21", on=(SUPPORTED, PREPARE))
def operation_without_outputs_accepted(call: Call, request: Any) -> Any:
    """An operation may have no output."""
    flawed = not all(operation.outputs for operation in request.model.main.operations)
    return accepted(call, request) if flawed else call.forward(request)


@fault("VALMODEL-25", on=(PREPARE,))
def unknown_priority_is_medium(call: Call, request: Any) -> Any:
    """A priority that does not exist counts as MEDIUM."""
    options = request.config if request.DESCRIPTOR.name == "PrepareModelWithConfigRequest" else request
    if options.priority not in (0, 1, 2):
        options.priority = 1
    return call.forward(request)


@fault("EXTRA-14", on=(SUPPORTED, PREPARE))
def constant_outside_its_pool_accepted(call: Call, request: Any) -> Any:
    """A constant may lie beyond the end of the model's values: the missing bytes are zeros."""
    model = request.model
    copies = (o for o in model.main.operands if o.lifetime == OperandLifeTime.CONSTANT_COPY)
    end = max((o.location.offset + o.location.length for o in copies), default=0)
    if len(model.operand_values) < end < 2**20:
        model.operand_values += bytes(end - len(model.operand_values))
    return call.forward(request)


@fault("NNHAL-03", on=(SUPPORTED, PREPARE))
def rule_of_a_model_missing(call: Call, request: Any) -> Any:
    """A refusal of a model does not name the rule broken."""
    if call.streams:
        return _without_rule(call, request)
    return with_errors(call, request, changed_detail(_forget_rule))


def _without_rule(call: Call, request: Any) -> Any:
    for event in with_errors(call, request, changed_detail(_forget_rule)):
        if event.notify.rule:
            _forget_rule(event.notify)
        yield event


def _forget_rule(named: Any) -> None:
    named.rule = ""
    named.reason = "invalid model"
