"""The suite `basic` (COM, BASIC, STATIC): what a device says of itself, cyclic models, constants of the contract."""

import math
import time

from nnhal.types import HAL_HASH, HAL_VERSION, ErrorStatus, OperandType
from nnhal.v1 import device_pb2, enums_pb2, prepared_model_pb2, types_pb2
from tools.conformance.check import CheckFailed, Judge
from tools.conformance.registry import check
from tools.conformance.samples import prepared, request_of
from tools.conformance.target import Answer, Run, Target, called

DEFAULT_LOOP_TIMEOUT_NS = 2_000_000_000
MAXIMUM_LOOP_TIMEOUT_NS = 15_000_000_000

OPERAND_TYPES = """FLOAT32 INT32 UINT32 TENSOR_FLOAT32 TENSOR_INT32 TENSOR_QUANT8_ASYMM BOOL TENSOR_QUANT16_SYMM
    TENSOR_FLOAT16 TENSOR_BOOL8 FLOAT16 TENSOR_QUANT8_SYMM_PER_CHANNEL TENSOR_QUANT16_ASYMM TENSOR_QUANT8_SYMM
    TENSOR_QUANT8_ASYMM_SIGNED"""
OPERATION_TYPES = """ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE
    EMBEDDING_LOOKUP FLOOR FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION
    LOGISTIC LSH_PROJECTION LSTM MAX_POOL_2D MUL RELU RELU1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH
    SVDF TANH BATCH_TO_SPACE_ND DIV MEAN PAD SPACE_TO_BATCH_ND SQUEEZE STRIDED_SLICE SUB TRANSPOSE ABS ARGMAX ARGMIN
    AXIS_ALIGNED_BBOX_TRANSFORM BIDIRECTIONAL_SEQUENCE_LSTM BIDIRECTIONAL_SEQUENCE_RNN BOX_WITH_NMS_LIMIT CAST
    CHANNEL_SHUFFLE DETECTION_POSTPROCESSING EQUAL EXP EXPAND_DIMS GATHER GENERATE_PROPOSALS GREATER GREATER_EQUAL
    GROUPED_CONV_2D HEATMAP_MAX_KEYPOINT INSTANCE_NORMALIZATION LESS LESS_EQUAL LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR
    LOG_SOFTMAX MAXIMUM MINIMUM NEG NOT_EQUAL PAD_V2 POW PRELU QUANTIZE QUANTIZED_16BIT_LSTM RANDOM_MULTINOMIAL
    REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN REDUCE_PROD REDUCE_SUM ROI_ALIGN ROI_POOLING RSQRT SELECT SIN SLICE
    SPLIT SQRT TILE TOPK_V2 TRANSPOSE_CONV_2D UNIDIRECTIONAL_SEQUENCE_LSTM UNIDIRECTIONAL_SEQUENCE_RNN
    RESIZE_NEAREST_NEIGHBOR"""
"""Names in the order of the HAL's numbers, from 0 on, as the test vectors have them."""


def _asked(target: Target) -> device_pb2.DeviceRequest:
    return device_pb2.DeviceRequest(device=target.name)


@check("COM-01")
def device_is_offered(target: Target, judge: Judge) -> None:
    """The server's list has the device."""
    answer, listed = called(target.device.ListDevices, device_pb2.ListDevicesRequest())
    devices = list(listed.devices) if listed else []
    offered = target.name in devices if target.name else bool(devices)
    wanted = repr(target.name) if target.name else "at least one"
    judge.expect("COM-01", offered, "ListDevices", wanted, f"{answer}: {devices}")


@check("COM-02")
def device_answers(target: Target, judge: Judge) -> None:
    """Also asked before every other check."""
    target.ping()
    judge.checks["COM-02"] = None


@check("COM-03")
def interface_versions(target: Target, judge: Judge) -> None:
    """Of the device and of a prepared model."""
    answer, of_device = called(target.device.GetInterfaceVersion, _asked(target))
    _expect_version(judge, answer, of_device, "of the device")
    with prepared(target, "add_float") as model:
        request = prepared_model_pb2.PreparedModelRequest(session=target.session, prepared_model=model)
        answer, of_model = called(target.prepared_model.GetInterfaceVersion, request)
        _expect_version(judge, answer, of_model, "of a prepared model")


def _expect_version(
    judge: Judge, answer: Answer, response: device_pb2.GetInterfaceVersionResponse | None, of_what: str
) -> None:
    right = response is not None and response.version >= HAL_VERSION and bool(response.hash)
    if response is not None and response.version == HAL_VERSION:
        right = response.hash == HAL_HASH
    got = answer if response is None else f"version {response.version}, hash {response.hash!r}"
    expected = f"version {HAL_VERSION} with hash {HAL_HASH!r}, or above"
    judge.expect("COM-03", right, f"getInterfaceVersion {of_what}", expected, got)


@check("BASIC-01")
def device_is_there(target: Target, judge: Judge) -> None:
    """COM-01 and COM-02."""
    device_is_offered(target, judge)
    device_answers(target, judge)
    judge.checks["BASIC-01"] = None


def _capabilities(target: Target) -> types_pb2.Capabilities:
    answer, capabilities = called(target.device.GetCapabilities, _asked(target))
    if capabilities is None:
        raise CheckFailed("BASIC-02", "getCapabilities", "NONE", answer)
    found: types_pb2.Capabilities = capabilities
    return found


@check("BASIC-02")
def capabilities(target: Target, judge: Judge) -> None:
    """They can be had."""
    _capabilities(target)
    judge.checks["BASIC-02"] = None


def _expect_positive(judge: Judge, id_: str, info: types_pb2.PerformanceInfo, of_what: str) -> None:
    figures = (info.exec_time, info.power_usage)
    positive = all(figure > 0 and not math.isnan(figure) for figure in figures)
    judge.expect(id_, positive, f"performance {of_what}", "time and power above 0", figures)


@check("BASIC-03")
def relaxed_scalar_performance(target: Target, judge: Judge) -> None:
    """Of float32 scalars under relaxed computation."""
    info = _capabilities(target).relaxed_float32_to_float16_performance_scalar
    _expect_positive(judge, "BASIC-03", info, "of relaxed scalars")


@check("BASIC-04")
def relaxed_tensor_performance(target: Target, judge: Judge) -> None:
    """Of float32 tensors under relaxed computation."""
    info = _capabilities(target).relaxed_float32_to_float16_performance_tensor
    _expect_positive(judge, "BASIC-04", info, "of relaxed tensors")


@check("BASIC-05")
def operand_performance(target: Target, judge: Judge) -> None:
    """Of every operand type that is listed."""
    judge.checks["BASIC-05"] = None
    for entry in _capabilities(target).operand_performance:
        _expect_positive(judge, "BASIC-05", entry.info, f"of operand type {int(entry.type)}")


@check("BASIC-06")
def operand_performance_is_sorted(target: Target, judge: Judge) -> None:
    """By type number."""
    types = [int(entry.type) for entry in _capabilities(target).operand_performance]
    judge.expect("BASIC-06", types == sorted(types), "operandPerformance", "types in rising order", types)


@check("BASIC-07")
def no_performance_of_subgraphs(target: Target, judge: Judge) -> None:
    """SUBGRAPH is no type of data."""
    types = [int(entry.type) for entry in _capabilities(target).operand_performance]
    judge.expect("BASIC-07", OperandType.SUBGRAPH not in types, "operandPerformance", "no SUBGRAPH", types)


@check("BASIC-08")
def control_flow_performance(target: Target, judge: Judge) -> None:
    """Of IF and WHILE."""
    capabilities = _capabilities(target)
    _expect_positive(judge, "BASIC-08", capabilities.if_performance, "of IF")
    _expect_positive(judge, "BASIC-08", capabilities.while_performance, "of WHILE")


def cyclic_model() -> types_pb2.Model:
    """Operands 0, 1 float inputs, 2 the activation; 3 = ADD(0, 4), 4 = ADD(1, 3), 5 = ADD(4, 0) is the output."""
    model = types_pb2.Model()
    main = model.main
    lifetimes = (1, 1, 1, 0, 0, 2)
    for i, lifetime in enumerate(lifetimes):
        if i == 2:
            main.operands.add(type=enums_pb2.OPERAND_TYPE_INT32, lifetime=lifetime)
        else:
            main.operands.add(type=enums_pb2.OPERAND_TYPE_TENSOR_FLOAT32, dimensions=[1], lifetime=lifetime)
    for a, b, out in ((0, 4, 3), (1, 3, 4), (4, 0, 5)):
        main.operations.add(type=enums_pb2.OPERATION_TYPE_ADD, inputs=[a, b, 2], outputs=[out])
    main.input_indexes[:] = [0, 1, 2]
    main.output_indexes[:] = [5]
    return model


@check("BASIC-09")
def cyclic_model_is_not_supported(target: Target, judge: Judge) -> None:
    """INVALID_ARGUMENT, no list of falses."""
    answer, supported = target.supported_operations(cyclic_model())
    refused = answer.status == ErrorStatus.INVALID_ARGUMENT
    got = f"{answer} {supported}" if supported else answer
    judge.expect("BASIC-09", refused, "getSupportedOperations of a cyclic model", "INVALID_ARGUMENT", got)


@check("BASIC-10")
def cyclic_model_fails_at_launch(target: Target, judge: Judge) -> None:
    """Any error will do."""
    launch = target.prepare(cyclic_model()).launch
    judge.expect("BASIC-10", launch.status != ErrorStatus.NONE, "prepareModel of a cyclic model", "an error", launch)


@check("BASIC-11")
def cyclic_model_fails_in_the_callback(target: Target, judge: Judge) -> None:
    """Any error will do, but no model."""
    outcome = target.prepare(cyclic_model())
    failed = bool(outcome.callbacks) and outcome.callback.status != ErrorStatus.NONE and not outcome.model
    got = f"{len(outcome.callbacks)} callbacks, {outcome.callback}{', a model' if outcome.model else ''}"
    judge.expect("BASIC-11", failed, "the callback of a cyclic model", "an error and no model", got)


@check("STATIC-01")
def loop_timeouts(target: Target, judge: Judge) -> None:
    """An endless loop that has no timeout of its own ends, and not before 2 s; 15 s are accepted."""
    with prepared(target, "while_without_end") as model:
        started = time.monotonic()
        executed = target.execute(model, request_of("while_without_end"))
        seconds = time.monotonic() - started
        ended = executed.answer.is_missed_deadline and seconds >= DEFAULT_LOOP_TIMEOUT_NS / 1e9
        got = f"{executed.answer} after {seconds:.2f} s"
        judge.expect("STATIC-01", ended, "an endless loop, default timeout", "MISSED_DEADLINE_* after 2 s", got)
    with prepared(target, "while_5_turns") as model:
        run = Run(loop_timeout_ns=MAXIMUM_LOOP_TIMEOUT_NS)
        answer = target.execute(model, request_of("while_5_turns"), run).answer
        judge.expect("STATIC-01", answer.status == ErrorStatus.NONE, "a loop timeout of 15 s", "NONE", answer)


@check("STATIC-02")
def operand_type_numbers(target: Target, judge: Judge) -> None:
    """Those of the contract that the harness speaks."""
    for number, name in enumerate(OPERAND_TYPES.split()):
        got = enums_pb2.OperandType.Value(f"OPERAND_TYPE_{name}")
        judge.expect("STATIC-02", got == number, f"the number of {name}", str(number), got)


@check("STATIC-03")
def operation_type_numbers(target: Target, judge: Judge) -> None:
    """Those of the contract that the harness speaks."""
    for number, name in enumerate(OPERATION_TYPES.split()):
        got = enums_pb2.OperationType.Value(f"OPERATION_TYPE_{name}")
        judge.expect("STATIC-03", got == number, f"the number of {name}", str(number), got)
