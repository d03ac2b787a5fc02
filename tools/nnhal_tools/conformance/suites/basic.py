"""Suite `basic` (COM, BASIC, STATIC): description of the device, cyclic models, constants of the contract."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nnhal.types import (
    DEFAULT_LOOP_TIMEOUT_NS,
    HAL_HASH,
    HAL_VERSION,
    MAXIMUM_LOOP_TIMEOUT_NS,
    ErrorStatus,
    OperandType,
    OperationType,
)
from nnhal.v1 import device_pb2, enums_pb2, types_pb2
from nnhal_tools.conformance.check import CheckFailed, CheckRecorder
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.results import CallOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors.samples import builtin_request, prepared_model


@check("COM-01")
def _device_is_listed(target: Target, recorder: CheckRecorder) -> None:
    outcome, listed = target.call("Device.ListDevices")
    devices = list(listed.devices) if listed else []
    offered = target.device_name in devices if target.device_name else bool(devices)
    expected = repr(target.device_name) if target.device_name else "at least one"
    recorder.expect(offered, "ListDevices", expected, f"{outcome}: {devices}", check="COM-01")


@check("COM-02")
def device_responds(target: Target, recorder: CheckRecorder) -> None:
    """Check that the device responds. The harness also pings it before every other check."""
    target.ping()
    recorder.mark("COM-02")


@check("COM-03")
def interface_versions(target: Target, recorder: CheckRecorder) -> None:
    """Check the interface versions of the device and of a prepared model."""
    answer, of_device = target.call("Device.GetInterfaceVersion")
    _expect_version(recorder, answer, of_device, "the device")
    with prepared_model(target, "add_float") as model:
        answer, of_model = target.call("PreparedModel.GetInterfaceVersion", prepared_model=model)
        _expect_version(recorder, answer, of_model, "a prepared model")


def _expect_version(
    recorder: CheckRecorder, answer: CallOutcome, response: device_pb2.GetInterfaceVersionResponse | None, subject: str
) -> None:
    right = response is not None and response.version >= HAL_VERSION and bool(response.hash)
    if response is not None and response.version == HAL_VERSION:
        right = response.hash == HAL_HASH
    got = answer if response is None else f"version {response.version}, hash {response.hash!r}"
    expected = f"version {HAL_VERSION} with hash {HAL_HASH!r}, or a newer version"
    recorder.expect(right, f"getInterfaceVersion of {subject}", expected, got)


@check("BASIC-01")
def device_is_present(target: Target, recorder: CheckRecorder) -> None:
    """Run COM-01 and COM-02."""
    _device_is_listed(target, recorder)
    device_responds(target, recorder)
    recorder.mark("BASIC-01")


def _capabilities(target: Target) -> types_pb2.Capabilities:
    answer, capabilities = target.call("Device.GetCapabilities")
    if capabilities is None:
        raise CheckFailed("BASIC-02", "getCapabilities", "NONE", answer)
    assert isinstance(capabilities, types_pb2.Capabilities)
    return capabilities


@check("BASIC-02")
def capabilities(target: Target, recorder: CheckRecorder) -> None:
    """Check that getCapabilities succeeds."""
    _capabilities(target)
    recorder.mark("BASIC-02")


Figures = Iterable[tuple[str, types_pb2.PerformanceInfo]]

PERFORMANCE: Mapping[str, Callable[[types_pb2.Capabilities], Figures]] = {
    "BASIC-03": lambda c: [("relaxed scalars", c.relaxed_float32_to_float16_performance_scalar)],
    "BASIC-04": lambda c: [("relaxed tensors", c.relaxed_float32_to_float16_performance_tensor)],
    "BASIC-05": lambda c: [(f"operand type {int(entry.type)}", entry.info) for entry in c.operand_performance],
    "BASIC-08": lambda c: [("IF", c.if_performance), ("WHILE", c.while_performance)],
}
"""Figures that must be above 0, with what they are about, by check id."""


def _register_performance(id_: str, figures_of: Callable[[types_pb2.Capabilities], Figures]) -> None:
    @check(id_)
    def performance(target: Target, recorder: CheckRecorder) -> None:
        recorder.mark(id_)
        for subject, info in figures_of(_capabilities(target)):
            figures = (info.exec_time, info.power_usage)
            positive = all(figure > 0 and not math.isnan(figure) for figure in figures)
            recorder.expect(positive, f"performance of {subject}", "time and power above 0", figures)


for _id, _figures_of in PERFORMANCE.items():
    _register_performance(_id, _figures_of)


@check("BASIC-06")
def _operand_performance_is_sorted(target: Target, recorder: CheckRecorder) -> None:
    types = [int(entry.type) for entry in _capabilities(target).operand_performance]
    recorder.expect(types == sorted(types), "operandPerformance", "types in ascending order", types)


@check("BASIC-07")
def _no_performance_of_subgraphs(target: Target, recorder: CheckRecorder) -> None:
    types = [int(entry.type) for entry in _capabilities(target).operand_performance]
    recorder.expect(OperandType.SUBGRAPH not in types, "operandPerformance", "no SUBGRAPH", types)


def cyclic_model() -> types_pb2.Model:
    """Return a model with a cycle: 3 = ADD(0, 4), 4 = ADD(1, 3), 5 = ADD(4, 0).

    Operands 0 and 1 are float inputs, operand 2 is the activation, and operand 5 is the output.
    """
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
def _cyclic_model_is_not_supported(target: Target, recorder: CheckRecorder) -> None:
    answer, supported = target.supported_operations(cyclic_model())
    refused = answer.status == ErrorStatus.INVALID_ARGUMENT
    got = f"{answer}, {supported}" if supported else answer
    recorder.expect(refused, "getSupportedOperations of a cyclic model", "INVALID_ARGUMENT", got)


@check("BASIC-10")
def _cyclic_model_fails_at_launch(target: Target, recorder: CheckRecorder) -> None:
    launch = target.prepare(cyclic_model()).launch
    recorder.expect(launch.status != ErrorStatus.NONE, "prepareModel of a cyclic model", "an error", launch)


@check("BASIC-11")
def _cyclic_model_fails_in_the_callback(target: Target, recorder: CheckRecorder) -> None:
    outcome = target.prepare(cyclic_model())
    failed = bool(outcome.callbacks) and outcome.callback.status != ErrorStatus.NONE and not outcome.model
    got = f"{len(outcome.callbacks)} callbacks, {outcome.callback}{', a model' if outcome.model else ''}"
    recorder.expect(failed, "the callback of a cyclic model", "an error and no model", got)


@check("STATIC-01")
def loop_timeouts(target: Target, recorder: CheckRecorder) -> None:
    """Check that an endless loop without a timeout ends after 2 s or more, and that a timeout of 15 s is accepted."""
    with prepared_model(target, "while_without_end") as model:
        started = time.monotonic()
        execution = target.execute(model, builtin_request("while_without_end"))
        seconds = time.monotonic() - started
        timed_out = execution.outcome.is_missed_deadline and seconds >= DEFAULT_LOOP_TIMEOUT_NS / 1e9
        got = f"{execution.outcome} after {seconds:.2f} s"
        recorder.expect(timed_out, "an endless loop, default timeout", "MISSED_DEADLINE_* after 2 s", got)
    with prepared_model(target, "while_5_turns") as model:
        run = RunOptions(loop_timeout_ns=MAXIMUM_LOOP_TIMEOUT_NS)
        answer = target.execute(model, builtin_request("while_5_turns"), run).outcome
        recorder.expect_status(answer, "a loop timeout of 15 s")


def _register_numbers(id_: str, types: type[OperandType] | type[OperationType], prefix: str, values: Any) -> None:
    @check(id_)
    def numbers(target: Target, recorder: CheckRecorder) -> None:
        for type_ in types:
            number = int(values.Value(f"{prefix}_{type_.name}"))
            recorder.expect(number == type_, f"the number of {type_.name}", str(int(type_)), number)


_register_numbers("STATIC-02", OperandType, "OPERAND_TYPE", enums_pb2.OperandType)
_register_numbers("STATIC-03", OperationType, "OPERATION_TYPE", enums_pb2.OperationType)
