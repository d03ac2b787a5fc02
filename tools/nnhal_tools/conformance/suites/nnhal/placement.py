"""Placement and operands that come with a prepared model (NNHAL-23), and performance figures of a device (NNHAL-41)."""

from nnhal.types import ErrorStatus, OperandType
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.preparation_gate import query_and_prepare
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors import builtin
from nnhal_tools.conformance.vectors.samples import builtin_case


@check("NNHAL-23")
def placement_and_operands(target: Target, recorder: CheckRecorder) -> None:
    """Check models with several subgraphs and with several operations."""
    for name in ("network", "while_5_turns", "topk_float"):
        model = builtin_case(name).model()
        notify = query_and_prepare(target, model, CheckRecorder()).callbacks[0]
        expected_operations = list(_operations(model))
        got = [(o.subgraph, o.operation, int(o.type)) for o in notify.placement.operations]
        recorder.expect(got == expected_operations, f"placement of {name}", str(expected_operations), got)
        backends = [o.backend for o in notify.placement.operations]
        recorder.expect(all(backends), f"placement of {name}", "a backend for each operation", backends)
        covered = sorted((p.subgraph, i) for p in notify.placement.partitions for i in p.operations)
        pairs = [(subgraph, operation) for subgraph, operation, _ in expected_operations]
        recorder.expect(covered == pairs, f"partitions of {name}", "each operation exactly once", covered)
        for direction, indexes, operands in (
            ("inputs", model.main.input_indexes, notify.inputs),
            ("outputs", model.main.output_indexes, notify.outputs),
        ):
            expected = [_shape_and_type(model.main.operands[i]) for i in indexes]
            reported = [_shape_and_type(operand) for operand in operands]
            recorder.expect(reported == expected, f"{direction} of {name}", str(expected), reported)
        target.release(notify.prepared_model)


def _operations(model: types_pb2.Model) -> "list[tuple[int, int, int]]":
    """Return subgraph, number and type of every operation, with those of main first."""
    graphs = (model.main, *model.referenced)
    return [
        (s, n, int(operation.type)) for s, graph in enumerate(graphs) for n, operation in enumerate(graph.operations)
    ]


def _shape_and_type(operand: types_pb2.Operand) -> tuple[int, tuple[int, ...], float, int]:
    return int(operand.type), tuple(operand.dimensions), operand.scale, operand.zero_point


@check("NNHAL-41")
def performance_of_supported_types(target: Target, recorder: CheckRecorder) -> None:
    """Check that the type of the first input of a supported operation is listed.

    A type that is missing counts as infinitely slow, so that no client would use the operation.
    """
    capabilities = recorder.require_response(target.call("Device.GetCapabilities"), "getCapabilities")
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
