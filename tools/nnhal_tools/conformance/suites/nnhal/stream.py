"""Streams of preparations: order of events, and cancellation (NNHAL-07, -08)."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc

from nnhal.types import ErrorStatus
from nnhal.v1 import device_pb2, types_pb2
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.calls import WATCHDOG_S
from nnhal_tools.conformance.device.options import PreparationOptions
from nnhal_tools.conformance.device.results import PreparationOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.suites.extra.preparation import invalid_model, unsupported_model
from nnhal_tools.conformance.vectors.builtin.writer import CaseGraph, make_case
from nnhal_tools.conformance.vectors.samples import builtin_case, builtin_request, expect_correct, require_supported

CANCELLED = 12
UNCANCELLED = 4
OPERATION_COUNT = 500
"""Number of operations of a model that takes some time to prepare."""

OUTCOMES: dict[str, tuple[Callable[[], types_pb2.Model], int | None, bool]] = {
    "a valid model": (lambda: builtin_case("add_float").model(), None, True),
    "an unsupported model": (unsupported_model, None, True),
    "a deadline that has passed": (lambda: builtin_case("add_float").model(), 0, True),
    "an invalid model": (invalid_model, None, False),
}
"""Model, deadline, and whether the launch succeeds, by situation."""


@check("NNHAL-07")
def order_of_events(target: Target, recorder: CheckRecorder) -> None:
    """Check that `launched` and `notify` come in this order, or only `notify` with a launch error."""
    for situation, (model, deadline, launched) in OUTCOMES.items():
        for with_config in (False, True):
            options = PreparationOptions(with_config, deadline_ns=deadline)
            outcome = target.prepare(model(), options)
            events = ["launched", "notify"] if launched else ["notify"]
            failed = outcome.launch.status != ErrorStatus.NONE
            valid = outcome.events == events and failed != launched
            got = f"{outcome.events}, launch {outcome.launch}"
            ending = "and a successful launch" if launched else "and a launch error"
            recorder.expect("NNHAL-07", valid, f"{options.call}, {situation}", f"{events} {ending}", got)
            target.release(outcome.model)


def long_model() -> types_pb2.Model:
    """Return a chain of additions."""
    graph = CaseGraph()
    step, activation = graph.constant("TENSOR_FLOAT32", [1.0]), graph.int32(0)
    value = graph.input("TENSOR_FLOAT32", (1,))
    for i in range(OPERATION_COUNT):
        add = graph.output if i == OPERATION_COUNT - 1 else graph.temporary
        result = add("TENSOR_FLOAT32", (1,))
        graph.apply("ADD", [value, step, activation], [result])
        value = result
    return make_case("long_model", graph, [[0.0]], [[float(OPERATION_COUNT)]]).model()


@check("NNHAL-08")
def cancelled_preparations(target: Target, recorder: CheckRecorder) -> None:
    """Check that cancelling preparations as soon as they are launched does not affect concurrent ones."""
    model, other_model = long_model(), require_supported(target, builtin_case("network"))

    def cancel_preparation(_: int) -> int:
        request = device_pb2.PrepareModelRequest(session=target.session, device=target.device_name, model=model)
        return _cancel_and_count_notifies(target, request)

    def prepare_other(_: int) -> PreparationOutcome:
        return target.prepare(other_model.model())

    with ThreadPoolExecutor(CANCELLED + UNCANCELLED) as threads:
        cancelled_counts = threads.map(cancel_preparation, range(CANCELLED))
        others = list(threads.map(prepare_other, range(UNCANCELLED)))
        counts = list(cancelled_counts)
    recorder.expect("NNHAL-08", max(counts) <= 1, "cancelled preparations", "at most one notify each", counts)
    for outcome in others:
        got = f"{outcome.events}, {outcome.callback}"
        valid = outcome.events == ["launched", "notify"] and bool(outcome.model)
        recorder.expect(
            "NNHAL-08", valid, "a preparation concurrent with cancelled ones", "one notify, with a model", got
        )
        execution = target.execute(outcome.model, builtin_request("network"))
        expect_correct(recorder, "NNHAL-08", "network", execution, "a model prepared concurrently with cancelled ones")
        target.release(outcome.model)


def _cancel_and_count_notifies(target: Target, request: device_pb2.PrepareModelRequest) -> int:
    """Cancel a preparation at its first event, and return how often notify came."""
    stream = target.device.PrepareModel(request, timeout=WATCHDOG_S)
    count = 0
    try:
        for event in stream:
            count += event.WhichOneof("event") == "notify"
            stream.cancel()
    except grpc.RpcError:
        pass  # CANCELLED, as requested.
    return count
