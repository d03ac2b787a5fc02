"""Buffers: state after failures, tokens, shapes (EXTRA-09 to -11)."""

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from nnhal.types import AnyArray, ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckFailed, CheckRecorder
from nnhal_tools.conformance.device.options import DEFAULT_RUN, RunOptions
from nnhal_tools.conformance.device.preparation_gate import query_and_prepare
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths import CALLS, reachable_calls
from nnhal_tools.conformance.paths.buffers import (
    AllocatedBuffer,
    allocated_buffer,
    buffer_role,
    copy_from,
    copy_to,
    move_to_buffer,
)
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.suites.extra.fences import WaitingLauncher
from nnhal_tools.conformance.vectors.builtin.writer import CaseGraph, make_case
from nnhal_tools.conformance.vectors.requests import inline_request
from nnhal_tools.conformance.vectors.samples import (
    builtin_case,
    builtin_input,
    builtin_request,
    prepared_model,
)

ADD, ENDLESS = "add_float", "while_without_end"

FAILURE, INVALID = ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT


def _copy_in(
    target: Target, recorder: CheckRecorder, buffer: AllocatedBuffer, array: AnyArray, shape: Sequence[int]
) -> None:
    answer = copy_from(target, buffer, types_pb2.Memory(inline=array.tobytes()), shape)
    recorder.expect_status(answer, f"copyFrom of {list(array.shape)}")


def _expect_uninitialized(
    target: Target, recorder: CheckRecorder, buffer: AllocatedBuffer, size: int, situation: str
) -> None:
    answer, _ = copy_to(target, buffer, size)
    recorder.expect_status(answer, f"copyTo after {situation}", FAILURE)


@check("EXTRA-09", "after a failed copy")
def after_a_failed_copy(target: Target, recorder: CheckRecorder) -> None:
    """Check that a failed copy makes an initialized buffer uninitialized."""
    array = builtin_input(ADD)
    with (
        prepared_model(target, ADD) as model,
        allocated_buffer(target, recorder, [model], [buffer_role(0, 0)]) as buffer,
    ):
        for situation, memory, shape in (
            ("a copy of too few bytes", types_pb2.Memory(inline=bytes(array.nbytes - 1)), ()),
            ("a copy with another shape", types_pb2.Memory(inline=bytes(array.nbytes)), (3, 2)),
        ):
            _copy_in(target, recorder, buffer, array, ())
            answer = copy_from(target, buffer, memory, shape)
            recorder.expect_status(answer, situation, INVALID)
            _expect_uninitialized(target, recorder, buffer, array.nbytes, situation)


MISSED = (ErrorStatus.MISSED_DEADLINE_TRANSIENT, ErrorStatus.MISSED_DEADLINE_PERSISTENT)

FAILURES = {
    "a failed execution": (ENDLESS, RunOptions(loop_timeout_ns=1_000_000), MISSED),
    "a refused launch": (ADD, RunOptions(deadline_ns=-2), (INVALID,)),
}
"""Vector, options and statuses of executions that fail, and then have made their output buffer uninitialized."""


def _register_failure(situation: str, name: str, run: RunOptions, statuses: Sequence[ErrorStatus]) -> None:
    @check("EXTRA-09", f"after {situation}")
    def after_a_failure(target: Target, recorder: CheckRecorder) -> None:
        array = builtin_case(name).outputs[0].array
        with (
            prepared_model(target, name) as model,
            allocated_buffer(target, recorder, [model], (), [buffer_role(0, 0)]) as buffer,
        ):
            for path, execute in reachable_calls(target).items():
                _copy_in(target, recorder, buffer, array, ())
                request = builtin_request(name)
                move_to_buffer(request, request.outputs[0], buffer.token)
                answer = execute(target, model, request, run).outcome
                recorder.expect_status(answer, f"{path}, {situation}", *statuses)
                _expect_uninitialized(target, recorder, buffer, array.nbytes, f"{situation} by {path}")


for _situation, _failure in FAILURES.items():
    _register_failure(_situation, *_failure)


@check("EXTRA-10", "unique tokens, unknown after release")
def tokens(target: Target, recorder: CheckRecorder) -> None:
    """Check that live buffers have unique tokens, and that every call rejects the token of a released buffer."""
    with prepared_model(target, ADD) as model, ExitStack() as stack:
        buffers = [
            stack.enter_context(allocated_buffer(target, recorder, [model], [buffer_role(0, 0)])) for _ in range(5)
        ]
        all_tokens = [buffer.token for buffer in buffers]
        recorder.expect(len(set(all_tokens)) == len(all_tokens), "tokens of live buffers", "unique tokens", all_tokens)
        array = builtin_input(ADD)
        _copy_in(target, recorder, buffers[0], array, ())
        target.release(buffers[0].handle)
        for path, execute in reachable_calls(target).items():
            request = builtin_request(ADD)
            move_to_buffer(request, request.inputs[0], buffers[0].token)
            answer = execute(target, model, request, DEFAULT_RUN).outcome
            stimulus = f"{path}, the token of a released buffer"
            recorder.expect_status(answer, stimulus, INVALID)


@check("EXTRA-10", "unique tokens in the service")
def tokens_of_the_service(target: Target, recorder: CheckRecorder) -> None:
    """Check that live buffers of several sessions, and of all devices of the service, have unique tokens."""
    tokens: dict[int, str] = {}
    listed = recorder.require_response(target.call("Device.ListDevices"), "ListDevices")
    with ExitStack() as stack:
        for name in listed.devices:
            for number in range(2):
                session = stack.enter_context(Target(target.address, name))
                model = stack.enter_context(prepared_model(session, ADD))
                roles = [buffer_role(0, 0)]
                buffer = stack.enter_context(allocated_buffer(session, recorder, [model], roles))
                owner = f"session {number + 1} on {name}"
                first = tokens.setdefault(buffer.token, owner)
                recorder.expect(first == owner, f"allocate, {owner}", "a new token", f"that of {first}")


@check("EXTRA-10", "released during an execution")
def released_during_an_execution(target: Target, recorder: CheckRecorder) -> None:
    """Check that an execution can still use a buffer that was released after its launch."""
    array = builtin_input(ADD)
    with (
        prepared_model(target, ADD) as model,
        allocated_buffer(target, recorder, [model], [buffer_role(0, 0)]) as buffer,
    ):
        _copy_in(target, recorder, buffer, array, ())
        request = builtin_request(ADD)
        move_to_buffer(request, request.inputs[0], buffer.token)
        launcher = WaitingLauncher(target, recorder)
        with launcher.launch(model, ADD, request=request) as execution:
            target.release(buffer.handle)
            execution.signal()
            execution.expect_correct("an execution whose input's buffer was released")


# ---- Shapes ---------------------------------------------------------------------------------------------


def _prepare_open_model(target: Target, operation: str) -> bytes:
    """Prepare a model of one operation on any number of rows of 3 elements."""
    graph = CaseGraph()
    graph.apply(operation, [graph.input("TENSOR_FLOAT32", (0, 3))], [graph.output("TENSOR_FLOAT32", (0, 3))])
    empty = np.empty((0, 3), np.float32)
    return query_and_prepare(target, make_case(operation, graph, [empty], [empty]).model(), CheckRecorder()).model


def _rows(count: int) -> AnyArray:
    return np.arange(-3, 3 * count - 3, dtype=np.float32).reshape(count, 3)


def _request(array: AnyArray) -> types_pb2.Request:
    """Return a request that specifies the shape of the input. The output has the same size."""
    request = inline_request([array], [array.nbytes])
    request.inputs[0].dimensions[:] = array.shape
    return request


@check("EXTRA-11", "several shapes in turn, two models")
def shapes_over_time(target: Target, recorder: CheckRecorder) -> None:
    """Check that one model reads the shape that another wrote last, and that other shapes are rejected."""
    first, second = _prepare_open_model(target, "RELU"), _prepare_open_model(target, "NEG")
    try:
        roles = [buffer_role(1, 0)], [buffer_role(0, 0)]
        with allocated_buffer(target, recorder, [first, second], *roles) as buffer:
            for path in ("SYNC", "BURST", "SYNC-R"):
                for count in (2, 4, 1):
                    _write_and_read(target, recorder, path, (first, second), buffer, _rows(count))
            array = _rows(3)
            _copy_in(target, recorder, buffer, array, array.shape)
            _expect_content(target, recorder, "SYNC", second, buffer, array, "copied in")
    finally:
        target.release(first, second)


def _write_and_read(
    target: Target,
    recorder: CheckRecorder,
    path: str,
    models: tuple[bytes, bytes],
    buffer: AllocatedBuffer,
    array: AnyArray,
) -> None:
    """Write an array to a buffer with one model and read it with the other."""
    request = _request(array)
    move_to_buffer(request, request.outputs[0], buffer.token)
    answer = CALLS[path](target, models[0], request, DEFAULT_RUN).outcome
    stimulus = f"{path}, an output of {list(array.shape)} into a buffer of unknown shape"
    recorder.expect_status(answer, stimulus)
    _expect_content(target, recorder, path, models[1], buffer, np.maximum(array, 0), "written by another model")


def _expect_content(
    target: Target,
    recorder: CheckRecorder,
    path: str,
    model: bytes,
    buffer: AllocatedBuffer,
    array: AnyArray,
    origin: str,
) -> None:
    """Expect that a negating model reads `array` from a buffer, and rejects another shape."""
    for rows in (array.shape[0] + 1, array.shape[0]):
        request = _request(np.zeros((rows, 3), np.float32))
        move_to_buffer(request, request.inputs[0], buffer.token)
        execution = CALLS[path](target, model, request, DEFAULT_RUN)
        stimulus = f"{path}, a buffer with {list(array.shape)}, {origin}, read as {[rows, 3]}"
        if rows != array.shape[0]:
            recorder.expect_status(execution.outcome, stimulus, INVALID)
            continue
        recorder.expect_status(execution.outcome, stimulus)
        got = execution.outputs[0]
        if got is None or not np.array_equal(got.view(np.float32), -array.ravel()):
            raise CheckFailed("EXTRA-11", stimulus, "the values written last", "other values")
