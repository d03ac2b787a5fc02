"""Pools that the contract adds to the HAL's: returned, inline, read-only, unset (NNHAL-14 to -18); NaN (-27)."""

import numpy as np

from nnhal.types import AnyArray, ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.preparation_gate import expect_model_refused, query_and_prepare
from nnhal_tools.conformance.device.target import Target, mapped_pool
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.suites.extra.requests import READ_ONLY, expect_refused
from nnhal_tools.conformance.vectors.builtin.writer import CaseGraph, make_case
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.requests import with_small_output
from nnhal_tools.conformance.vectors.samples import (
    builtin_case,
    builtin_input,
    builtin_request,
    expect_correct,
    prepared_model,
)

LARGE_COUNT = 1_200_000
"""Number of elements of an output that is too large for a message."""


def request_without_size(name: str) -> types_pb2.Request:
    """Return the request of a built-in vector with its outputs in a ReturnedPool without a size."""
    request = builtin_request(name)
    request.pools[1].returned.ClearField("size")
    for output in request.outputs:
        output.location.Clear()
        output.location.pool_index = 1
    return request


@check("NNHAL-14")
def returned_pool_without_a_size(target: Target, recorder: CheckRecorder) -> None:
    """Check that several outputs can share the pool, that their locations must be 0, and that inputs are rejected."""
    for name in ("split_int32", "topk_float", "no_boxes"):
        for unspecified in (False, True):
            with prepared_model(target, name, unspecified=unspecified) as model:
                execution = target.execute(model, request_without_size(name))
                stimulus = (
                    f"{name}{', dimensions unspecified' if unspecified else ''}, in a ReturnedPool without a size"
                )
                expect_correct(recorder, name, execution, stimulus)
    with prepared_model(target, "add_float") as model:
        for field in ("offset", "length", "padding"):
            request = request_without_size("add_float")
            setattr(request.outputs[0].location, field, 4)
            expect_refused(target, recorder, model, request, f"a ReturnedPool without a size and {field} 4")
        request = request_without_size("add_float")
        request.inputs[0].location.CopyFrom(request.outputs[0].location)
        expect_refused(target, recorder, model, request, "an input in a ReturnedPool")


@check("NNHAL-15")
def returned_pool_of_a_fixed_size(target: Target, recorder: CheckRecorder) -> None:
    """Check that regions must lie inside the pool, and that an output that does not fit is not returned."""
    name = "split_int32"
    with prepared_model(target, name) as model:
        execution = target.execute(model, builtin_request(name))
        expect_correct(recorder, name, execution, f"{name}, in a ReturnedPool of fixed size")
        for size in (builtin_request(name).pools[1].returned.size - 1, 0, -1):
            request = builtin_request(name)
            request.pools[1].returned.size = size
            expect_refused(target, recorder, model, request, f"a ReturnedPool of {size} bytes")
    with prepared_model(target, name, unspecified=True) as model:
        execution = target.execute(model, with_small_output(builtin_request(name)))
        stimulus = "output 0 one byte too small"
        recorder.expect_status(execution.outcome, stimulus, ErrorStatus.OUTPUT_INSUFFICIENT_SIZE)
        returned = [output for output in execution.outputs if output is not None and output.size]
        recorder.expect(not returned, stimulus, "no bytes returned", f"{len(returned)} outputs")


def _large_case() -> Case:
    """Return x + 1 with an input and an output of 4.8 MB."""
    graph = CaseGraph()
    x = np.arange(LARGE_COUNT, dtype=np.float32)
    inputs = [graph.input("TENSOR_FLOAT32", (LARGE_COUNT,)), graph.constant("TENSOR_FLOAT32", [1.0]), graph.int32(0)]
    graph.apply("ADD", inputs, [graph.output("TENSOR_FLOAT32", (LARGE_COUNT,))])
    return make_case("large", graph, [x], [x + 1])


@check("NNHAL-16")
def _large_outputs_are_memories(target: Target, recorder: CheckRecorder) -> None:
    large = _large_case()
    array = large.inputs[0]
    assert array is not None
    model = query_and_prepare(target, large.model(), CheckRecorder()).model
    request = types_pb2.Request()
    handle = target.memory_with(array.tobytes())
    request.pools.add().pool.CopyFrom(mapped_pool(handle))
    request.pools.add().returned.SetInParent()
    request.inputs.add().location.length = array.nbytes
    request.outputs.add().location.pool_index = 1
    execution = target.execute(model, request)
    stimulus = f"an output of {array.nbytes} bytes"
    recorder.expect_status(execution.outcome, stimulus)
    right = execution.output_bytes == [large.outputs[0].array.tobytes()]
    recorder.expect(right, stimulus, "x + 1", "other bytes" if execution.output_bytes else "nothing")
    target.release(model, handle)


@check("NNHAL-17")
def _outputs_need_writable_memory(target: Target, recorder: CheckRecorder) -> None:
    request = builtin_request("add_float")
    size = request.pools[1].returned.size
    handle = target.memory_with(bytes(size))
    pools = {
        "an inline pool": types_pb2.Memory(inline=bytes(size)),
        "read-only memory": mapped_pool(handle, prot=READ_ONLY),
    }
    with prepared_model(target, "add_float") as model:
        for kind, pool in pools.items():
            request.pools[1].pool.CopyFrom(pool)
            expect_refused(target, recorder, model, request, f"an output in {kind}")
    target.release(handle)


@check("NNHAL-18")
def unset_unions_are_refused(target: Target, recorder: CheckRecorder) -> None:
    """Check pools of models and requests, and extra parameters."""
    unset_pool, unset_parameters = builtin_case("network").model(), builtin_case("add_float").model()
    unset_pool.pools[0].Clear()
    unset_parameters.main.operands[0].extra_params.SetInParent()
    for flaw, model in (("an unset pool", unset_pool), ("unset extra parameters", unset_parameters)):
        expect_model_refused(target, recorder, model, flaw)
    with prepared_model(target, "add_float") as model_handle:
        for i in range(2):
            request = builtin_request("add_float")
            request.pools[i].Clear()
            expect_refused(target, recorder, model_handle, request, f"request pool {i} unset")
            request.pools[i].pool.SetInParent()
            expect_refused(target, recorder, model_handle, request, f"request pool {i} with an unset Memory")


def _with_nan(values: AnyArray) -> bytes:
    changed = values.copy()
    changed.flat[1] = np.nan
    return changed.tobytes()


@check("NNHAL-27")
def nan_reaches_the_outputs(target: Target, recorder: CheckRecorder) -> None:
    """Check that x * 3 with a NaN in element 1 has a NaN in element 1 only."""
    array = builtin_input("mul_float")
    request = builtin_request("mul_float")
    data = _with_nan(array)
    request.pools[0].pool.inline = data + bytes(-len(data) % 64)
    with prepared_model(target, "mul_float") as model:
        execution = target.execute(model, request)
    stimulus = "a NaN in element 1 of x * 3"
    recorder.expect_status(execution.outcome, stimulus)
    output = execution.outputs[0] if execution.outputs else None
    nan_indexes = [] if output is None else np.flatnonzero(np.isnan(output.view(np.float32))).tolist()
    recorder.expect(nan_indexes == [1], stimulus, "a NaN in element 1 only", f"in elements {nan_indexes}")
