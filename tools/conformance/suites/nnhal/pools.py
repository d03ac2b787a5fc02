"""Pools of requests beyond the HAL's: returned, inline, read-only, unset (NNHAL-14 to -18), and NaN (-27)."""

import numpy as np

from nnhal.types import AnyArray, ErrorStatus
from nnhal.v1 import types_pb2
from tools.conformance.builtin.writer import Graph, case
from tools.conformance.check import Judge
from tools.conformance.gate import prepared_model, refused
from tools.conformance.registry import check
from tools.conformance.request import too_small
from tools.conformance.samples import expect_right, named, prepared, request_of
from tools.conformance.suites.extra.requests import READ_ONLY, expect_refused
from tools.conformance.target import Target, mapped
from tools.conformance.vectors import Case

LARGE = 1_200_000
"""Elements of an output that fits no message."""


def _as_large_as_needed(name: str) -> types_pb2.Request:
    request = request_of(name)
    request.pools[1].returned.ClearField("size")
    for output in request.outputs:
        output.location.Clear()
        output.location.pool_index = 1
    return request


@check("NNHAL-14")
def returned_pool_without_a_size(target: Target, judge: Judge) -> None:
    """Several outputs may share it; their locations are 0; inputs have no place in it."""
    for name in ("split_int32", "topk_float", "no_boxes"):
        for unspecified in (False, True):
            with prepared(target, name, unspecified=unspecified) as model:
                executed = target.execute(model, _as_large_as_needed(name))
                what = f"{name}{', dimensions unspecified' if unspecified else ''}, in a ReturnedPool without a size"
                expect_right(judge, "NNHAL-14", name, executed, what)
    with prepared(target, "add_float") as model:
        for field in ("offset", "length", "padding"):
            request = _as_large_as_needed("add_float")
            setattr(request.outputs[0].location, field, 4)
            expect_refused(target, judge, model, request, "NNHAL-14", f"a ReturnedPool without a size and {field} 4")
        request = _as_large_as_needed("add_float")
        request.inputs[0].location.CopyFrom(request.outputs[0].location)
        expect_refused(target, judge, model, request, "NNHAL-14", "an input in a ReturnedPool")


@check("NNHAL-15")
def returned_pool_of_a_fixed_size(target: Target, judge: Judge) -> None:
    """Regions lie inside it; what does not fit is not returned."""
    name = "split_int32"
    with prepared(target, name) as model:
        executed = target.execute(model, request_of(name))
        expect_right(judge, "NNHAL-15", name, executed, f"{name}, in a ReturnedPool of fixed size")
        for size in (request_of(name).pools[1].returned.size - 1, 0, -1):
            request = request_of(name)
            request.pools[1].returned.size = size
            expect_refused(target, judge, model, request, "NNHAL-15", f"a ReturnedPool of {size} bytes")
    with prepared(target, name, unspecified=True) as model:
        executed = target.execute(model, too_small(request_of(name)))
        insufficient = executed.answer.status == ErrorStatus.OUTPUT_INSUFFICIENT_SIZE
        what = "output 0 a byte too small"
        judge.expect("NNHAL-15", insufficient, what, "OUTPUT_INSUFFICIENT_SIZE", executed.answer)
        returned = [output for output in executed.outputs if output is not None and output.size]
        judge.expect("NNHAL-15", not returned, what, "no bytes returned", f"{len(returned)} outputs")


def _large() -> Case:
    """x + 1 with 4.8 MB on each side."""
    graph = Graph()
    x = np.arange(LARGE, dtype=np.float32)
    inputs = [graph.input("TENSOR_FLOAT32", (LARGE,)), graph.constant("TENSOR_FLOAT32", [1.0]), graph.int32(0)]
    graph.apply("ADD", inputs, [graph.output("TENSOR_FLOAT32", (LARGE,))])
    return case("large", graph, [x], [x + 1])


@check("NNHAL-16")
def large_outputs_come_as_memory(target: Target, judge: Judge) -> None:
    """Read with MemoryService.Read."""
    large = _large()
    array = large.inputs[0]
    assert array is not None
    model = prepared_model(target, large.model(), Judge()).model
    request = types_pb2.Request()
    handle = target.filled(array.tobytes())
    request.pools.add().pool.CopyFrom(mapped(handle))
    request.pools.add().returned.SetInParent()
    request.inputs.add().location.length = array.nbytes
    request.outputs.add().location.pool_index = 1
    executed = target.execute(model, request)
    what = f"an output of {array.nbytes} bytes"
    judge.expect("NNHAL-16", executed.answer.status == ErrorStatus.NONE, what, "NONE", executed.answer)
    output = executed.outputs[0] if executed.outputs else None
    right = output is not None and output.tobytes() == large.outputs[0].array.tobytes()
    judge.expect("NNHAL-16", right, what, "x + 1", "nothing" if output is None else "other bytes")
    target.release(model, handle)


@check("NNHAL-17")
def outputs_need_writable_memory(target: Target, judge: Judge) -> None:
    """Inline bytes would be lost, and memory without the write bit may not be written."""
    request = request_of("add_float")
    size = request.pools[1].returned.size
    handle = target.filled(bytes(size))
    pools = {"an inline pool": types_pb2.Memory(inline=bytes(size)), "read-only memory": mapped(handle, prot=READ_ONLY)}
    with prepared(target, "add_float") as model:
        for what, pool in pools.items():
            request.pools[1].pool.CopyFrom(pool)
            expect_refused(target, judge, model, request, "NNHAL-17", f"an output in {what}")
    target.release(handle)


@check("NNHAL-18")
def unset_unions_are_refused(target: Target, judge: Judge) -> None:
    """Pools of models and requests, and extra parameters."""
    judge.checks["NNHAL-18"] = None
    pool, parameters = named("network").model(), named("add_float").model()
    pool.pools[0].Clear()
    parameters.main.operands[0].extra_params.SetInParent()
    for what, model in (("a pool that is nothing", pool), ("extra parameters that are nothing", parameters)):
        problem = refused(target, model, "NNHAL-18", what)
        if problem is not None:
            raise problem
    with prepared(target, "add_float") as prepared_:
        for i in range(2):
            request = request_of("add_float")
            request.pools[i].Clear()
            expect_refused(target, judge, prepared_, request, "NNHAL-18", f"request pool {i} is nothing")
            request.pools[i].pool.SetInParent()
            expect_refused(target, judge, prepared_, request, "NNHAL-18", f"request pool {i} is a Memory of nothing")


def _with_nan(values: AnyArray) -> bytes:
    changed = values.copy()
    changed.flat[1] = np.nan
    return changed.tobytes()


@check("NNHAL-27")
def nan_reaches_the_outputs(target: Target, judge: Judge) -> None:
    """x * 3 with a NaN in element 1 has a NaN there, and nowhere else."""
    array = named("mul_float").inputs[0]
    assert array is not None
    request = request_of("mul_float")
    data = _with_nan(array)
    request.pools[0].pool.inline = data + bytes(-len(data) % 64)
    with prepared(target, "mul_float") as model:
        executed = target.execute(model, request)
    what = "a NaN in element 1 of x * 3"
    judge.expect("NNHAL-27", executed.answer.status == ErrorStatus.NONE, what, "NONE", executed.answer)
    output = executed.outputs[0] if executed.outputs else None
    found = [] if output is None else np.flatnonzero(np.isnan(output.view(np.float32))).tolist()
    judge.expect("NNHAL-27", found == [1], what, "a NaN in element 1 alone", f"in elements {found}")
