"""Faults in bursts."""

from collections.abc import Iterator
from typing import Any

import grpc

from nnhal.types import ErrorStatus
from nnhal.v1 import burst_pb2
from tests.tools.conformance.selftest.fault import edit_detail, fault, invalid_argument, replace_errors
from tests.tools.conformance.selftest.proxy import InjectedError, ProxyCall

EXECUTE, RELEASE, STREAM = "Burst.Execute*", "Burst.ReleaseMemoryResource", "Burst.Stream"

_NO_IDENTIFIER = -1


@fault("EXTRA-20", on=(RELEASE,), select=())
def slot_served_after_release(call: ProxyCall, request: Any) -> Any:
    """Keep a memory in the cache of a burst after its identifier was released."""
    if request.memory_identifier_token < _NO_IDENTIFIER:
        return call.forward(request)
    return burst_pb2.ReleaseMemoryResourceResponse()


@fault("EXTRA-20", on=(EXECUTE,), select=())
def slots_shared_by_bursts(call: ProxyCall, request: Any) -> Any:
    """Share the memory identifiers between all bursts."""
    for pool, identifier in zip(request.request.pools, request.memory_identifier_tokens, strict=False):
        if identifier <= _NO_IDENTIFIER:
            continue
        if pool.WhichOneof("kind") is None and identifier in call.state:
            pool.pool.CopyFrom(call.state[identifier])
        elif pool.WhichOneof("kind") == "pool":
            call.state[identifier] = pool.pool
    return call.forward(request)


@fault("EXTRA-20", on=(STREAM,), select=())
def answers_of_a_stream_out_of_order(call: ProxyCall, requests: Any) -> Any:
    """Return the responses of a stream in reverse order."""
    return reversed(list(call.forward(requests)))


@fault("EXTRA-20", on=(STREAM,), select=())
def stream_ends_with_the_first_error(call: ProxyCall, requests: Any) -> Iterator[Any]:
    """End a stream after the first failed call."""
    for answer in call.forward(requests):
        yield answer
        if answer.HasField("error"):
            return


@fault("BURST-02", on=(EXECUTE,))
def impossible_identifier_accepted(call: ProxyCall, request: Any) -> Any:
    """Treat an identifier below -1 in an execution as -1."""
    request.memory_identifier_tokens[:] = [max(i, _NO_IDENTIFIER) for i in request.memory_identifier_tokens]
    return call.forward(request)


@fault("BURST-05", on=(RELEASE,))
def release_of_an_impossible_identifier_accepted(call: ProxyCall, request: Any) -> Any:
    """Treat an identifier below -1 in releaseMemoryResource as -1."""
    request.memory_identifier_token = max(request.memory_identifier_token, _NO_IDENTIFIER)
    return call.forward(request)


@fault("BURST-03", on=(EXECUTE,))
def missing_identifiers_accepted(call: ProxyCall, request: Any) -> Any:
    """Treat missing identifiers as -1."""
    missing = len(request.request.pools) - len(request.memory_identifier_tokens)
    request.memory_identifier_tokens.extend([_NO_IDENTIFIER] * missing)
    return call.forward(request)


@fault("BURST-04", on=(EXECUTE,))
def superfluous_identifiers_accepted(call: ProxyCall, request: Any) -> Any:
    """Ignore superfluous identifiers."""
    del request.memory_identifier_tokens[len(request.request.pools) :]
    return call.forward(request)


@fault("GEN-05", "BURST-01", on=("PreparedModel.ConfigureExecutionBurst",))
def burst_without_a_handle(call: ProxyCall, request: Any) -> Any:
    """Create a burst, but return no handle."""
    response = call.forward(request)
    response.burst = b""
    return response


@fault("GEN-06", on=("Burst.Execute*",))
def burst_error_without_details(call: ProxyCall, request: Any) -> Any:
    """Fail an execution of a burst without a service-specific error."""
    raise InjectedError(grpc.StatusCode.INTERNAL)


@fault("GEN-07", on=(RELEASE,))
def release_of_a_slot_refused(call: ProxyCall, request: Any) -> Any:
    """Reject the release of a cached memory."""
    if request.memory_identifier_token >= 0:
        raise invalid_argument("the memory is in use")
    return call.forward(request)


@fault("VALREQ-05", "VALREQ-09", "BURST-02", on=(EXECUTE,))
def bad_burst_request_as_general_failure(call: ProxyCall, request: Any) -> Any:
    """Return an invalid request to a burst is refused with GENERAL_FAILURE."""

    def change(detail: Any) -> None:
        detail.status = ErrorStatus.GENERAL_FAILURE

    return replace_errors(call, request, edit_detail(change))


@fault("QOS-16", on=(EXECUTE,))
def burst_deadline_of_32_bits(call: ProxyCall, request: Any) -> Any:
    """Return a deadline of a burst's execution that does not fit 32 bits counts as 0."""
    if request.HasField("deadline_ns") and request.deadline_ns >= 2**31:
        request.deadline_ns = 0
    return call.forward(request)
