"""Faults in the validation of requests."""

from itertools import pairwise
from typing import Any

from nnhal.types import ErrorStatus, byte_size
from nnhal.v1 import types_pb2
from tests.tools.conformance.selftest.fault import (
    EXECUTE,
    PREPARE,
    edit_detail,
    fake_result,
    fault,
    invalid_argument,
    remember_models,
    replace_errors,
)
from tests.tools.conformance.selftest.proxy import ProxyCall


@fault("VALREQ-01", "VALREQ-03", "VALREQ-07", on=(PREPARE, EXECUTE))
def missing_input_accepted(call: ProxyCall, request: Any) -> Any:
    """Accept a request that lacks an input."""
    if call.streams_responses:
        return remember_models(call, request)
    return fake_result() if _is_short_of(call, request, "inputs") else call.forward(request)


@fault("VALREQ-02", on=(PREPARE, EXECUTE))
def missing_output_accepted(call: ProxyCall, request: Any) -> Any:
    """Accept a request that lacks an output."""
    if call.streams_responses:
        return remember_models(call, request)
    return fake_result() if _is_short_of(call, request, "outputs") else call.forward(request)


@fault("VALREQ-03", "VALREQ-07", on=(EXECUTE,))
def bad_request_as_general_failure(call: ProxyCall, request: Any) -> Any:
    """Reject invalid requests with GENERAL_FAILURE."""

    def change(detail: Any) -> None:
        detail.status = ErrorStatus.GENERAL_FAILURE

    return replace_errors(call, request, edit_detail(change))


@fault("VALREQ-11", on=("PreparedModel.ExecuteSynchronously",), select=("gather_out_of_range",))
def failing_vector_succeeds(call: ProxyCall, request: Any) -> Any:
    """Report success for an execution that must fail, and return no outputs."""
    return fake_result()


@fault("EXTRA-15", on=(EXECUTE,))
def unknown_pool_accepted(call: ProxyCall, request: Any) -> Any:
    """Replace a pool index out of range by the first pool for inputs and the last for outputs."""
    count = len(request.request.pools)
    for arguments, pool in ((request.request.inputs, 0), (request.request.outputs, count - 1)):
        for argument in arguments:
            if not 0 <= argument.location.pool_index < count:
                argument.location.pool_index = pool
    return call.forward(request)


@fault("EXTRA-16", on=(EXECUTE,))
def overlapping_outputs_accepted(call: ProxyCall, request: Any) -> Any:
    """Accept overlapping outputs."""
    regions = sorted((o.location.pool_index, o.location.offset, o.location.length) for o in request.request.outputs)
    overlaps = any(a[0] == b[0] and a[1] + a[2] > b[1] for a, b in pairwise(regions))
    return fake_result() if overlaps else call.forward(request)


@fault("EXTRA-17", on=(PREPARE, EXECUTE))
def region_of_any_size_accepted(call: ProxyCall, request: Any) -> Any:
    """Accept a region of any size for a fully specified output."""
    if call.streams_responses:
        return remember_models(call, request)
    operands = call.state[request.prepared_model].outputs if request.prepared_model in call.state else []
    for operand, argument in zip(operands, request.request.outputs, strict=False):
        size = byte_size(operand.type, operand.dimensions)
        if size and argument.location.length and argument.location.length != size:
            return fake_result()
    return call.forward(request)


@fault("EXTRA-18", on=(EXECUTE, "MemoryService.Read"))
def memory_scribbled_on(call: ProxyCall, request: Any) -> Any:
    """Change the last byte of each memory that an execution used."""
    if not call.streams_responses:
        call.state.update({pool.pool.mapped.memory: True for pool in request.request.pools})
        return call.forward(request)
    return _read_changed(call, request) if request.memory in call.state else call.forward(request)


def _read_changed(call: ProxyCall, request: Any) -> Any:
    chunks = list(call.forward(request))
    chunks[-1].data = chunks[-1].data[:-1] + bytes([chunks[-1].data[-1] ^ 0xFF])
    return chunks


@fault("NNHAL-17", on=(EXECUTE,))
def outputs_into_inline_pools(call: ProxyCall, request: Any) -> Any:
    """Accept outputs in inline pools, and lose them."""
    pools: list[types_pb2.RequestMemoryPool] = list(request.request.pools)
    for output in request.request.outputs:
        i = output.location.pool_index
        if 0 <= i < len(pools) and pools[i].pool.HasField("inline"):
            return fake_result()
    return call.forward(request)


@fault("NNHAL-18", on=(EXECUTE,))
def unset_pool_is_empty(call: ProxyCall, request: Any) -> Any:
    """Accept a pool whose union is unset."""
    kinds = [pool.WhichOneof("kind") for pool in request.request.pools]
    return fake_result() if None in kinds else call.forward(request)


@fault("EXTRA-12", on=("PreparedModel.ExecuteSynchronouslyWithConfig",))
def unknown_hint_refused(call: ProxyCall, request: Any) -> Any:
    """Reject an execution hint of an unknown extension."""
    if request.config.execution_hints:
        raise invalid_argument("unknown hint")
    return call.forward(request)


@fault("NNHAL-04", on=(EXECUTE,))
def reason_of_a_request_missing(call: ProxyCall, request: Any) -> Any:
    """Omit the reason and the rule when a request is rejected."""

    def change(detail: Any) -> None:
        detail.reason = detail.rule = ""

    return replace_errors(call, request, edit_detail(change))


def _is_short_of(call: ProxyCall, request: Any, arguments: str) -> bool:
    """Return whether a request has fewer inputs or outputs than its model."""
    model = call.state.get(request.prepared_model)
    return model is not None and len(getattr(request.request, arguments)) < len(getattr(model, arguments))
