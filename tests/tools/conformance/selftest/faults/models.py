"""Faults in the validation of models: invalid models that are accepted or rejected wrongly."""

from typing import Any

from nnhal.types import ErrorStatus, OperandLifeTime, OperandType
from tests.tools.conformance.selftest.fault import PREPARE, SUPPORTED, accept_model, edit_detail, fault, replace_errors
from tests.tools.conformance.selftest.proxy import ProxyCall

_SCALED = (OperandType.TENSOR_QUANT8_ASYMM, OperandType.TENSOR_QUANT16_SYMM, OperandType.TENSOR_QUANT8_ASYMM_SIGNED)


@fault("BASIC-09", "VALMODEL-01", on=(SUPPORTED,))
def every_model_supported(call: ProxyCall, request: Any) -> Any:
    """Accept every model in getSupportedOperations."""
    return accept_model(call, request)


@fault("VALMODEL-01", "BASIC-09", on=(SUPPORTED,))
def refused_with_another_status(call: ProxyCall, request: Any) -> Any:
    """Reject invalid models in getSupportedOperations with GENERAL_FAILURE."""

    def change(detail: Any) -> None:
        detail.status = ErrorStatus.GENERAL_FAILURE

    return replace_errors(call, request, edit_detail(change))


@fault("VALMODEL-03", on=("Device.PrepareModelWithConfig",))
def configured_models_unchecked(call: ProxyCall, request: Any) -> Any:
    """Accept every model in prepareModelWithConfig."""
    return accept_model(call, request)


@fault("VALMODEL-15", "VALMODEL-16", on=(SUPPORTED, PREPARE))
def dangling_operand_accepted(call: ProxyCall, request: Any) -> Any:
    """Accept operations whose operand indexes are out of range."""
    main = request.model.main
    used = [i for operation in main.operations for i in (*operation.inputs, *operation.outputs)]
    return accept_model(call, request) if max(used, default=0) >= len(main.operands) else call.forward(request)


@fault("VALMODEL-08", on=(SUPPORTED, PREPARE))
def scale_of_zero_accepted(call: ProxyCall, request: Any) -> Any:
    """Accept a quantized operand with scale 0."""
    operands = request.model.main.operands
    flawed = any(operand.type in _SCALED and operand.scale == 0 for operand in operands)
    return accept_model(call, request) if flawed else call.forward(request)


@fault("VALMODEL-09", on=(SUPPORTED, PREPARE))
def zero_point_out_of_range_accepted(call: ProxyCall, request: Any) -> Any:
    """Take the zero point of a TENSOR_QUANT8_ASYMM modulo 256 instead of rejecting it."""
    for operand in request.model.main.operands:
        if operand.type == OperandType.TENSOR_QUANT8_ASYMM:
            operand.zero_point %= 256
    return call.forward(request)


@fault("VALMODEL-12", on=(SUPPORTED, PREPARE))
def operand_written_twice_accepted(call: ProxyCall, request: Any) -> Any:
    """Accept two operations that write the same operand."""
    written = [i for operation in request.model.main.operations for i in operation.outputs]
    return accept_model(call, request) if len(set(written)) < len(written) else call.forward(request)


@fault("VALMODEL-21", on=(SUPPORTED, PREPARE))
def operation_without_outputs_accepted(call: ProxyCall, request: Any) -> Any:
    """Accept an operation without outputs."""
    flawed = not all(operation.outputs for operation in request.model.main.operations)
    return accept_model(call, request) if flawed else call.forward(request)


@fault("VALMODEL-25", on=(PREPARE,))
def unknown_priority_is_medium(call: ProxyCall, request: Any) -> Any:
    """Treat an unknown priority as MEDIUM."""
    options = request.config if request.DESCRIPTOR.name == "PrepareModelWithConfigRequest" else request
    if options.priority not in (0, 1, 2):
        options.priority = 1
    return call.forward(request)


@fault("EXTRA-14", on=(SUPPORTED, PREPARE))
def constant_outside_its_pool_accepted(call: ProxyCall, request: Any) -> Any:
    """Pad operandValues with zeros if a constant ends after them, instead of rejecting the model."""
    model = request.model
    copies = (o for o in model.main.operands if o.lifetime == OperandLifeTime.CONSTANT_COPY)
    end = max((o.location.offset + o.location.length for o in copies), default=0)
    if len(model.operand_values) < end < 2**20:
        model.operand_values += bytes(end - len(model.operand_values))
    return call.forward(request)


@fault("NNHAL-03", on=(SUPPORTED, PREPARE))
def rule_of_a_model_missing(call: ProxyCall, request: Any) -> Any:
    """Omit the broken rule when a model is rejected."""
    if call.streams_responses:
        return _without_rule(call, request)
    return replace_errors(call, request, edit_detail(_clear_rule))


def _without_rule(call: ProxyCall, request: Any) -> Any:
    for event in replace_errors(call, request, edit_detail(_clear_rule)):
        if event.notify.rule:
            _clear_rule(event.notify)
        yield event


def _clear_rule(message: Any) -> None:
    message.rule = ""
    message.reason = "invalid model"
