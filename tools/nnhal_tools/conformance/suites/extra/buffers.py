"""Buffers: state after failures, tokens, shapes (EXTRA-09 to -11)."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from nnhal.types import AnyArray, ErrorStatus
from nnhal.v1 import device_pb2, types_pb2
from nnhal_tools.conformance.check import CheckFailed, CheckRecorder, Skipped
from nnhal_tools.conformance.device.calls import invoke
from nnhal_tools.conformance.device.options import DEFAULT_RUN, RunOptions
from nnhal_tools.conformance.device.preparation_gate import query_and_prepare
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths import CALLS, reachable_calls
from nnhal_tools.conformance.paths.buffers import (
    AllocatedBuffer,
    allocate,
    buffer_role,
    copy_from,
    copy_to,
    is_valid_allocation,
    place_in_pool,
)
from nnhal_tools.conformance.paths.fenced import await_execution
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.suites.extra.fences import create_fence, signal_fence, waiting_execution
from nnhal_tools.conformance.vectors.builtin.writer import CaseGraph, make_case
from nnhal_tools.conformance.vectors.requests import build_request
from nnhal_tools.conformance.vectors.samples import builtin_case, builtin_request, expect_correct, prepared_model

ADD, ENDLESS = "add_float", "while_without_end"

FAILURE, INVALID = ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT

Roles = Sequence[types_pb2.BufferRole]


@contextmanager
def allocated_buffer(
    target: Target,
    recorder: CheckRecorder,
    check_: str,
    models: Sequence[bytes],
    inputs: Roles = (),
    outputs: Roles = (),
) -> Iterator[AllocatedBuffer]:
    """Allocate a buffer, and release it at the end.

    Raises:
        Skipped: X3: the device allocates no buffer for these roles.
    """
    answer, buffer = allocate(target, models, inputs, outputs)
    expected = "a buffer and a token, or GENERAL_FAILURE"
    recorder.expect(check_, is_valid_allocation(answer, buffer), "a valid allocation", expected, f"{answer}, {buffer}")
    if buffer is None:
        raise Skipped("X3", str(answer))
    try:
        yield buffer
    finally:
        target.release(buffer.handle)


def move_to_buffer(request: types_pb2.Request, argument: types_pb2.RequestArgument, token: int) -> None:
    """Move an argument of a request to a buffer."""
    place_in_pool(argument, len(request.pools))
    request.pools.add().token = token


def _copy_in(
    target: Target, recorder: CheckRecorder, check_: str, buffer: AllocatedBuffer, array: AnyArray, shape: Sequence[int]
) -> None:
    answer = copy_from(target, buffer, types_pb2.Memory(inline=array.tobytes()), shape)
    recorder.expect(check_, answer.status == ErrorStatus.NONE, f"copyFrom of {list(array.shape)}", "NONE", answer)


def _expect_uninitialized(
    target: Target, recorder: CheckRecorder, buffer: AllocatedBuffer, size: int, situation: str
) -> None:
    answer, _ = copy_to(target, buffer, size)
    recorder.expect("EXTRA-09", answer.status == FAILURE, f"copyTo after {situation}", "GENERAL_FAILURE", answer)


@check("EXTRA-09", "after a failed copy")
def after_a_failed_copy(target: Target, recorder: CheckRecorder) -> None:
    """Check that a failed copy makes an initialized buffer uninitialized."""
    array = builtin_case(ADD).inputs[0]
    assert array is not None
    with (
        prepared_model(target, ADD) as model,
        allocated_buffer(target, recorder, "EXTRA-09", [model], [buffer_role(0, 0)]) as buffer,
    ):
        for situation, memory, shape in (
            ("a copy of too few bytes", types_pb2.Memory(inline=bytes(array.nbytes - 1)), ()),
            ("a copy with another shape", types_pb2.Memory(inline=bytes(array.nbytes)), (3, 2)),
        ):
            _copy_in(target, recorder, "EXTRA-09", buffer, array, ())
            answer = copy_from(target, buffer, memory, shape)
            recorder.expect("EXTRA-09", answer.status == INVALID, situation, "INVALID_ARGUMENT", answer)
            _expect_uninitialized(target, recorder, buffer, array.nbytes, situation)


@check("EXTRA-09", "after a failed execution")
def after_a_failed_execution(target: Target, recorder: CheckRecorder) -> None:
    """Check that an execution that fails, by any call, makes its output buffer uninitialized."""
    array = builtin_case(ENDLESS).outputs[0].array
    with (
        prepared_model(target, ENDLESS) as model,
        allocated_buffer(target, recorder, "EXTRA-09", [model], (), [buffer_role(0, 0)]) as buffer,
    ):
        for path, execute in reachable_calls(target).items():
            _copy_in(target, recorder, "EXTRA-09", buffer, array, ())
            request = builtin_request(ENDLESS)
            move_to_buffer(request, request.outputs[0], buffer.token)
            answer = execute(target, model, request, RunOptions(loop_timeout_ns=1_000_000)).outcome
            recorder.expect(
                "EXTRA-09", answer.is_missed_deadline, f"{path}, an endless loop", "MISSED_DEADLINE_*", answer
            )
            _expect_uninitialized(target, recorder, buffer, array.nbytes, f"a failed execution by {path}")


@check("EXTRA-09", "after a refused launch")
def after_a_refused_launch(target: Target, recorder: CheckRecorder) -> None:
    """Check that an execution that is refused as invalid, by any call, makes its output buffer uninitialized."""
    array = builtin_case(ADD).outputs[0].array
    with (
        prepared_model(target, ADD) as model,
        allocated_buffer(target, recorder, "EXTRA-09", [model], (), [buffer_role(0, 0)]) as buffer,
    ):
        for path, execute in reachable_calls(target).items():
            _copy_in(target, recorder, "EXTRA-09", buffer, array, ())
            request = builtin_request(ADD)
            move_to_buffer(request, request.outputs[0], buffer.token)
            answer = execute(target, model, request, RunOptions(deadline_ns=-2)).outcome
            recorder.expect(
                "EXTRA-09", answer.status == INVALID, f"{path}, a deadline of -2 ns", "INVALID_ARGUMENT", answer
            )
            _expect_uninitialized(target, recorder, buffer, array.nbytes, f"a refused launch by {path}")


@check("EXTRA-10", "unique tokens, unknown after release")
def tokens(target: Target, recorder: CheckRecorder) -> None:
    """Check that live buffers have unique tokens, and that every call rejects the token of a released buffer."""
    with prepared_model(target, ADD) as model, ExitStack() as stack:
        buffers = [
            stack.enter_context(allocated_buffer(target, recorder, "EXTRA-10", [model], [buffer_role(0, 0)]))
            for _ in range(5)
        ]
        all_tokens = [buffer.token for buffer in buffers]
        recorder.expect(
            "EXTRA-10", len(set(all_tokens)) == len(all_tokens), "tokens of live buffers", "unique tokens", all_tokens
        )
        array = builtin_case(ADD).inputs[0]
        assert array is not None
        _copy_in(target, recorder, "EXTRA-10", buffers[0], array, ())
        target.release(buffers[0].handle)
        for path, execute in reachable_calls(target).items():
            request = builtin_request(ADD)
            move_to_buffer(request, request.inputs[0], buffers[0].token)
            answer = execute(target, model, request, DEFAULT_RUN).outcome
            stimulus = f"{path}, the token of a released buffer"
            recorder.expect("EXTRA-10", answer.status == INVALID, stimulus, "INVALID_ARGUMENT", answer)


@check("EXTRA-10", "unique tokens in the service")
def tokens_of_the_service(target: Target, recorder: CheckRecorder) -> None:
    """Check that live buffers of several sessions, and of all devices of the service, have unique tokens."""
    tokens: dict[int, str] = {}
    answer, listed = invoke(target.device.ListDevices, device_pb2.ListDevicesRequest())
    recorder.expect("EXTRA-10", listed is not None, "ListDevices", "NONE", answer)
    with ExitStack() as stack:
        for name in listed.devices:
            for number in range(2):
                session = stack.enter_context(Target(target.address, name))
                model = stack.enter_context(prepared_model(session, ADD))
                roles = [buffer_role(0, 0)]
                buffer = stack.enter_context(allocated_buffer(session, recorder, "EXTRA-10", [model], roles))
                owner = f"session {number + 1} on {name}"
                first = tokens.setdefault(buffer.token, owner)
                recorder.expect("EXTRA-10", first == owner, f"allocate, {owner}", "a new token", f"that of {first}")


@check("EXTRA-10", "released during an execution")
def released_during_an_execution(target: Target, recorder: CheckRecorder) -> None:
    """Check that an execution can still use a buffer that was released after its launch."""
    array = builtin_case(ADD).inputs[0]
    assert array is not None
    own_fence = create_fence(target)
    with (
        prepared_model(target, ADD) as model,
        allocated_buffer(target, recorder, "EXTRA-10", [model], [buffer_role(0, 0)]) as buffer,
    ):
        _copy_in(target, recorder, "EXTRA-10", buffer, array, ())
        request = builtin_request(ADD)
        move_to_buffer(request, request.inputs[0], buffer.token)
        with waiting_execution(target, recorder, "EXTRA-10", model, request, [own_fence]) as (staged, fence):
            target.release(buffer.handle)
            signal_fence(target, own_fence)
            execution = await_execution(target, fence, staged)
            expect_correct(recorder, "EXTRA-10", ADD, execution, "an execution whose input's buffer was released")


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
    request, data = build_request([array], [array.nbytes])
    request.pools[0].pool.inline = data
    request.inputs[0].dimensions[:] = array.shape
    return request


@check("EXTRA-11", "several shapes in turn, two models")
def shapes_over_time(target: Target, recorder: CheckRecorder) -> None:
    """Check that one model reads the shape that another wrote last, and that other shapes are rejected."""
    first, second = _prepare_open_model(target, "RELU"), _prepare_open_model(target, "NEG")
    try:
        roles = [buffer_role(1, 0)], [buffer_role(0, 0)]
        with allocated_buffer(target, recorder, "EXTRA-11", [first, second], *roles) as buffer:
            for path in ("SYNC", "BURST", "SYNC-R"):
                for count in (2, 4, 1):
                    _write_and_read(target, recorder, path, (first, second), buffer, _rows(count))
            array = _rows(3)
            _copy_in(target, recorder, "EXTRA-11", buffer, array, array.shape)
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
    recorder.expect("EXTRA-11", answer.status == ErrorStatus.NONE, stimulus, "NONE", answer)
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
            recorder.expect(
                "EXTRA-11", execution.outcome.status == INVALID, stimulus, "INVALID_ARGUMENT", execution.outcome
            )
            continue
        recorder.expect("EXTRA-11", execution.outcome.status == ErrorStatus.NONE, stimulus, "NONE", execution.outcome)
        got = execution.outputs[0]
        if got is None or not np.array_equal(got.view(np.float32), -array.ravel()):
            raise CheckFailed("EXTRA-11", stimulus, "the values written last", "other values")
