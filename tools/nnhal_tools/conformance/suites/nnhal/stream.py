"""Streams of preparations: order of events, and cancellation (NNHAL-07, -08)."""

from concurrent.futures import ThreadPoolExecutor

import grpc

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.options import both_preparations
from nnhal_tools.conformance.device.results import PreparationOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.suites.extra.preparation import SITUATIONS
from nnhal_tools.conformance.vectors.builtin.writer import CaseGraph, make_case
from nnhal_tools.conformance.vectors.samples import builtin_case, builtin_request, expect_correct, supported_model

CANCELLED = 12
UNCANCELLED = 4
OPERATION_COUNT = 500
"""Number of operations of a model that takes some time to prepare."""


@check("NNHAL-07")
def order_of_events(target: Target, recorder: CheckRecorder) -> None:
    """Check that `launched` and `notify` come in this order, or only `notify` with a launch error."""
    for situation in SITUATIONS.values():
        for options in both_preparations(situation.deadline_ns):
            outcome = target.prepare(situation.model(), options)
            events = ["launched", "notify"] if situation.launched else ["notify"]
            failed = outcome.launch.status != ErrorStatus.NONE
            valid = outcome.events == events and failed != situation.launched
            got = f"{outcome.events}, launch {outcome.launch}"
            ending = "and a successful launch" if situation.launched else "and a launch error"
            recorder.expect(valid, f"{options.call}, {situation.name}", f"{events} {ending}", got)
            target.release(outcome.model)


def long_model() -> types_pb2.Model:
    """Return a chain of additions."""
    graph = CaseGraph()
    step, activation = graph.constant("TENSOR_FLOAT32", [1.0]), graph.int32(0)
    graph.chain("TENSOR_FLOAT32", (1,), [("ADD", [step, activation])] * OPERATION_COUNT)
    return make_case("long_model", graph, [[0.0]], [[float(OPERATION_COUNT)]]).model()


@check("NNHAL-08")
def _cancelled_preparations(target: Target, recorder: CheckRecorder) -> None:
    model, other_model = long_model(), supported_model(target, builtin_case("network"))

    def cancel_preparation(_: int) -> int:
        return _cancel_and_count_notifies(target, model)

    def prepare_other(_: int) -> PreparationOutcome:
        return target.prepare(other_model)

    with ThreadPoolExecutor(CANCELLED + UNCANCELLED) as threads:
        cancelled_counts = threads.map(cancel_preparation, range(CANCELLED))
        others = list(threads.map(prepare_other, range(UNCANCELLED)))
        counts = list(cancelled_counts)
    recorder.expect(max(counts) <= 1, "cancelled preparations", "at most one notify each", counts)
    for outcome in others:
        got = f"{outcome.events}, {outcome.callback}"
        valid = outcome.events == ["launched", "notify"] and bool(outcome.model)
        recorder.expect(valid, "a preparation concurrent with cancelled ones", "one notify, with a model", got)
        execution = target.execute(outcome.model, builtin_request("network"))
        expect_correct(recorder, "network", execution, "a model prepared concurrently with cancelled ones")
        target.release(outcome.model)


def _cancel_and_count_notifies(target: Target, model: types_pb2.Model) -> int:
    """Cancel a preparation at its first event, and return how often notify came."""
    stream = target.launch_preparation(model)
    count = 0
    try:
        for event in stream:
            count += event.WhichOneof("event") == "notify"
            stream.cancel()  # type: ignore[attr-defined]
    except grpc.RpcError:
        pass  # CANCELLED, as requested.
    return count
