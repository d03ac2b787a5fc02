"""Performance figures of a device (NNHAL-41)."""

from nnhal.types import ErrorStatus, OperandType
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors import builtin


@check("NNHAL-41")
def performance_of_supported_types(target: Target, recorder: CheckRecorder) -> None:
    """Check that the type of the first input of a supported operation is listed.

    A type that is missing counts as infinitely slow, so that no client would use the operation.
    """
    answer, capabilities = target.call("Device.GetCapabilities")
    recorder.expect(capabilities is not None, "getCapabilities", "NONE", answer)
    listed = {int(entry.type) for entry in capabilities.operand_performance}
    for case in builtin.cases():
        model = case.model()
        outcome, supported = target.supported_operations(model)
        if outcome.status != ErrorStatus.NONE:
            continue  # PREP-01 reports it.
        for operation, is_supported in zip(model.main.operations, supported, strict=True):
            type_ = int(model.main.operands[operation.inputs[0]].type)
            if is_supported and OperandType(type_).name.startswith("TENSOR_"):
                stimulus = f"getCapabilities of a device that supports an operation of {case.name}"
                expected = f"the performance of {OperandType(type_).name}"
                recorder.expect(type_ in listed, stimulus, expected, "no entry")
