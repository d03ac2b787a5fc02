"""Faults in bursts."""

from collections.abc import Iterator
from typing import Any

import grpc

from nnhal.types import ErrorStatus
from nnhal.v1 import burst_pb2
from tools.conformance.selftest.fault import changed_detail, fault, invalid_argument, with_errors
from tools.conformance.selftest.proxy import Call, Refusal

EXECUTE, RELEASE, STREAM = "Burst.Execute*", "Burst.ReleaseMemoryResource", "Burst.Stream"

_NOT_KEPT = -1


@fault("EXTRA-20", on=(RELEASE,), select=())
def slot_served_after_release(call: Call, request: Any) -> Any:
    """A memory is kept although its identifier was released."""
    if request.memory_identifier_token < _NOT_KEPT:
        return call.forward(request)
    return burst_pb2.ReleaseMemoryResourceResponse()


@fault("EXTRA-20", on=(EXECUTE,), select=())
def slots_shared_by_bursts(call: Call, request: Any) -> Any:
    """An identifier stands for the same memory in all bursts."""
    for pool, identifier in zip(request.request.pools, request.memory_identifier_tokens, strict=False):
        if identifier <= _NOT_KEPT:
            continue
        if pool.WhichOneof("kind") is None and identifier in call.kept:
            pool.pool.CopyFrom(call.kept[identifier])
        elif pool.WhichOneof("kind") == "pool":
            call.kept[identifier] = pool.pool
    return call.forward(request)


@fault("EXTRA-20", on=(STREAM,), select=())
def answers_of_a_stream_out_of_order(call: Call, requests: Any) -> Any:
    """A stream is answered backwards."""
    return reversed(list(call.forward(requests)))


@fault("EXTRA-20", on=(STREAM,), select=())
def stream_ends_with_the_first_error(call: Call, requests: Any) -> Iterator[Any]:
    """A call that fails ends its stream."""
    for answer in call.forward(requests):
        yield answer
        if answer.HasField("error"):
            return


@fault("BURST-02", on=(EXECUTE,))
def impossible_identifier_accepted(call: Call, request: Any) -> Any:
    """An identifier below -1 counts as -1 in an execution."""
    request.memory_identifier_tokens[:] = [max(i, _NOT_KEPT) for i in request.memory_identifier_tokens]
    return call.forward(request)


@fault("BURST-05", on=(RELEASE,))
def release_of_an_impossible_identifier_accepted(call: Call, request: Any) -> Any:
    """An identifier below -1 counts as -1 when it is released."""
    request.memory_identifier_token = max(request.memory_identifier_token, _NOT_KEPT)
    return call.forward(request)


@fault("BURST-03", on=(EXECUTE,))
def missing_identifiers_accepted(call: Call, request: Any) -> Any:
    """Identifiers that are missing count as -1."""
    missing = len(request.request.pools) - len(request.memory_identifier_tokens)
    request.memory_identifier_tokens.extend([_NOT_KEPT] * missing)
    return call.forward(request)


@fault("BURST-04", on=(EXECUTE,))
def superfluous_identifiers_accepted(call: Call, request: Any) -> Any:
    """Identifiers that are too many are passed over."""
    del request.memory_identifier_tokens[len(request.request.pools) :]
    return call.forward(request)


@fault("GEN-05", "BURST-01", on=("PreparedModel.ConfigureExecutionBurst",))
def burst_without_a_handle(call: Call, request: Any) -> Any:
    """A burst is made, and nobody is told which."""
    response = call.forward(request)
    response.burst = b""
    return response


@fault("GEN-06", on=("Burst.Execute*",))
def burst_error_without_details(call: Call, request: Any) -> Any:
    """An execution of a burst fails without a service-specific error."""
    raise Refusal(grpc.StatusCode.INTERNAL)


@fault("GEN-07", on=(RELEASE,))
def release_of_a_slot_refused(call: Call, request: Any) -> Any:
    """A memory that a burst keeps cannot be released."""
    if request.memory_identifier_token >= 0:
        raise invalid_argument("it is in use")
    return call.forward(request)


@fault("VALREQ-05", "VALREQ-09", "BURST-02", on=(EXECUTE,))
def bad_burst_request_as_general_failure(call: Call, request: Any) -> Any:
    """An invalid request to a burst is refused with GENERAL_FAILURE."""

    def change(detail: Any) -> None:
        detail.status = ErrorStatus.GENERAL_FAILURE

    return with_errors(call, request, changed_detail(change))


@fault("QOS-16", on=(EXECUTE,))
def burst_deadline_of_32_bits(call: Call, request: Any) -> Any:
    """A deadline of a burst's execution that does not fit 32 bits counts as 0."""
    if request.HasField("deadline_ns") and request.deadline_ns >= 2**31:
        request.deadline_ns = 0
    return call.forward(request)
