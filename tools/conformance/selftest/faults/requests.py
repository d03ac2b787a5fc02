"""Faults in what is refused of requests."""

from itertools import pairwise
from typing import Any

from nnhal.types import ErrorStatus, byte_size
from nnhal.v1 import types_pb2
from tools.conformance.selftest.fault import (
    EXECUTE,
    PREPARE,
    changed_detail,
    executed,
    fault,
    invalid_argument,
    kept_models,
    with_errors,
)
from tools.conformance.selftest.proxy import Call


@fault("VALREQ-01", "VALREQ-03", "VALREQ-07", on=(PREPARE, EXECUTE))
def missing_input_accepted(call: Call, request: Any) -> Any:
    """A request may lack an input."""
    if call.streams:
        return kept_models(call, request)
    return executed() if _lacks(call, request, "inputs") else call.forward(request)


@fault("VALREQ-02", on=(PREPARE, EXECUTE))
def missing_output_accepted(call: Call, request: Any) -> Any:
    """A request may lack an output."""
    if call.streams:
        return kept_models(call, request)
    return executed() if _lacks(call, request, "outputs") else call.forward(request)


@fault("VALREQ-03", "VALREQ-07", on=(EXECUTE,))
def bad_request_as_general_failure(call: Call, request: Any) -> Any:
    """An invalid request is refused with GENERAL_FAILURE."""

    def change(detail: Any) -> None:
        detail.status = ErrorStatus.GENERAL_FAILURE

    return with_errors(call, request, changed_detail(change))


@fault("VALREQ-11", on=("PreparedModel.ExecuteSynchronously",), select=("gather_out_of_range",))
def failing_vector_succeeds(call: Call, request: Any) -> Any:
    """What must fail when it is executed succeeds, with nothing in the outputs."""
    return executed()


@fault("EXTRA-15", on=(EXECUTE,))
def unknown_pool_accepted(call: Call, request: Any) -> Any:
    """An argument may name a pool that does not exist: inputs get the first, outputs the last."""
    count = len(request.request.pools)
    for arguments, pool in ((request.request.inputs, 0), (request.request.outputs, count - 1)):
        for argument in arguments:
            if not 0 <= argument.location.pool_index < count:
                argument.location.pool_index = pool
    return call.forward(request)


@fault("EXTRA-16", on=(EXECUTE,))
def overlapping_outputs_accepted(call: Call, request: Any) -> Any:
    """Outputs may overlap."""
    places = sorted((o.location.pool_index, o.location.offset, o.location.length) for o in request.request.outputs)
    overlaps = any(a[0] == b[0] and a[1] + a[2] > b[1] for a, b in pairwise(places))
    return executed() if overlaps else call.forward(request)


@fault("EXTRA-17", on=(PREPARE, EXECUTE))
def region_of_any_size_accepted(call: Call, request: Any) -> Any:
    """The region of a fully specified output may have any size: the right one is taken for it."""
    if call.streams:
        return kept_models(call, request)
    known = call.kept[request.prepared_model].outputs if request.prepared_model in call.kept else []
    for operand, argument in zip(known, request.request.outputs, strict=False):
        size = byte_size(operand.type, operand.dimensions)
        if size and argument.location.length and argument.location.length != size:
            return executed()
    return call.forward(request)


@fault("EXTRA-18", on=(EXECUTE, "MemoryService.Read"))
def memory_scribbled_on(call: Call, request: Any) -> Any:
    """The last byte of each memory that an execution used is changed."""
    if not call.streams:
        call.kept.update({pool.pool.mapped.memory: True for pool in request.request.pools})
        return call.forward(request)
    return _scribbled(call, request) if request.memory in call.kept else call.forward(request)


def _scribbled(call: Call, request: Any) -> Any:
    chunks = list(call.forward(request))
    chunks[-1].data = chunks[-1].data[:-1] + bytes([chunks[-1].data[-1] ^ 0xFF])
    return chunks


@fault("NNHAL-17", on=(EXECUTE,))
def outputs_into_inline_pools(call: Call, request: Any) -> Any:
    """An output may lie in a pool of inline bytes; it is lost."""
    pools: list[types_pb2.RequestMemoryPool] = list(request.request.pools)
    for output in request.request.outputs:
        i = output.location.pool_index
        if 0 <= i < len(pools) and pools[i].pool.HasField("inline"):
            return executed()
    return call.forward(request)


@fault("NNHAL-18", on=(EXECUTE,))
def unset_pool_is_empty(call: Call, request: Any) -> Any:
    """A pool of which nothing is said counts as one of no interest."""
    kinds = [pool.WhichOneof("kind") for pool in request.request.pools]
    return executed() if None in kinds else call.forward(request)


@fault("EXTRA-12", on=("PreparedModel.ExecuteSynchronouslyWithConfig",))
def unknown_hint_refused(call: Call, request: Any) -> Any:
    """An execution hint of an unknown extension is refused."""
    if request.config.execution_hints:
        raise invalid_argument("a hint that this device does not know")
    return call.forward(request)


@fault("NNHAL-04", on=(EXECUTE,))
def reason_of_a_request_missing(call: Call, request: Any) -> Any:
    """A refusal of a request says nothing but its status."""

    def change(detail: Any) -> None:
        detail.reason = detail.rule = ""

    return with_errors(call, request, changed_detail(change))


def _lacks(call: Call, request: Any, what: str) -> bool:
    """Whether a request has fewer inputs or outputs than its model."""
    model = call.kept.get(request.prepared_model)
    return model is not None and len(getattr(request.request, what)) < len(getattr(model, what))
