"""The stream of a preparation: the order of its events, and cancelling it (NNHAL-07, -08)."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc

from nnhal.types import ErrorStatus
from nnhal.v1 import device_pb2, types_pb2
from tools.conformance.builtin.writer import Graph, case
from tools.conformance.check import Judge
from tools.conformance.registry import check
from tools.conformance.samples import expect_right, named, request_of, taken
from tools.conformance.suites.extra.preparation import invalid_model, with_unknown_operation
from tools.conformance.target import WATCHDOG_S, Prepared, Preparing, Target

CANCELLED = 12
BESIDE = 4
LENGTH = 500
"""Operations of a model that takes a while to prepare."""

ENDINGS: dict[str, tuple[Callable[[], types_pb2.Model], int | None, bool]] = {
    "a valid model": (lambda: named("add_float").model(), None, True),
    "an unsupported model": (with_unknown_operation, None, True),
    "a deadline that has passed": (lambda: named("add_float").model(), 0, True),
    "an invalid model": (invalid_model, None, False),
}
"""Model, deadline, and whether the launch is OK."""


@check("NNHAL-07")
def order_of_events(target: Target, judge: Judge) -> None:
    """`launched` and `notify`; or, with a launch error, `notify` alone."""
    for what, (model, deadline, launched) in ENDINGS.items():
        for with_config in (False, True):
            how = Preparing(with_config, deadline_ns=deadline)
            outcome = target.prepare(model(), how)
            wanted = ["launched", "notify"] if launched else ["notify"]
            failed = outcome.launch.status != ErrorStatus.NONE
            right = outcome.order == wanted and failed != launched
            got = f"{outcome.order}, launch {outcome.launch}"
            ending = "and OK" if launched else "and the launch error"
            judge.expect("NNHAL-07", right, f"{how.call}, {what}", f"{wanted} {ending}", got)
            target.release(outcome.model)


def long_model() -> types_pb2.Model:
    """A chain of additions."""
    graph = Graph()
    one, none, value = graph.constant("TENSOR_FLOAT32", [1.0]), graph.int32(0), graph.input("TENSOR_FLOAT32", (1,))
    for i in range(LENGTH):
        add = graph.output if i == LENGTH - 1 else graph.temporary
        result = add("TENSOR_FLOAT32", (1,))
        graph.apply("ADD", [value, one, none], [result])
        value = result
    return case("long_model", graph, [[0.0]], [[float(LENGTH)]]).model()


@check("NNHAL-08")
def cancelled_preparations(target: Target, judge: Judge) -> None:
    """Some are cancelled as soon as they are launched; those beside them do not suffer."""
    model, beside = long_model(), taken(target, named("network"))

    def cancel(_: int) -> int:
        request = device_pb2.PrepareModelRequest(session=target.session, device=target.name, model=model)
        return _notified_after_cancelling(target, request)

    def keep(_: int) -> Prepared:
        return target.prepare(beside.model())

    with ThreadPoolExecutor(CANCELLED + BESIDE) as threads:
        cancelled = threads.map(cancel, range(CANCELLED))
        kept = list(threads.map(keep, range(BESIDE)))
        counts = list(cancelled)
    judge.expect("NNHAL-08", max(counts) <= 1, "cancelled preparations", "at most one notify each", counts)
    for outcome in kept:
        got = f"{outcome.order}, {outcome.callback}"
        right = outcome.order == ["launched", "notify"] and bool(outcome.model)
        judge.expect("NNHAL-08", right, "a preparation beside cancelled ones", "one notify, with a model", got)
        executed = target.execute(outcome.model, request_of("network"))
        expect_right(judge, "NNHAL-08", "network", executed, "a model prepared beside cancelled ones")
        target.release(outcome.model)


def _notified_after_cancelling(target: Target, request: device_pb2.PrepareModelRequest) -> int:
    """How often notify came before and after cancelling at the first event."""
    stream = target.device.PrepareModel(request, timeout=WATCHDOG_S)
    count = 0
    try:
        for event in stream:
            count += event.WhichOneof("event") == "notify"
            stream.cancel()
    except grpc.RpcError:
        pass  # CANCELLED, as asked
    return count
