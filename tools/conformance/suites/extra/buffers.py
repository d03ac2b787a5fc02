"""Buffers: their state after failures, their tokens, their shapes (EXTRA-09 to -11)."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np

from nnhal.types import AnyArray, ErrorStatus
from nnhal.v1 import types_pb2
from tools.conformance.builtin.writer import Graph
from tools.conformance.builtin.writer import case as written
from tools.conformance.check import CheckFailed, Judge, Skipped
from tools.conformance.gate import prepared_model
from tools.conformance.paths import CALLS, calls
from tools.conformance.paths.buffers import DeviceBuffer, allocate, copy_from, copy_to, is_allocated, place, role
from tools.conformance.paths.fenced import finish
from tools.conformance.registry import check
from tools.conformance.request import build
from tools.conformance.samples import expect_right, named, prepared, request_of
from tools.conformance.suites.extra.fences import own_fence, signal, waiting
from tools.conformance.target import PLAIN, Run, Target

ADD, ENDLESS = "add_float", "while_without_end"

FAILURE, INVALID = ErrorStatus.GENERAL_FAILURE, ErrorStatus.INVALID_ARGUMENT

Roles = Sequence[types_pb2.BufferRole]


@contextmanager
def buffer_of(
    target: Target, judge: Judge, check_: str, models: Sequence[bytes], inputs: Roles = (), outputs: Roles = ()
) -> Iterator[DeviceBuffer]:
    """A buffer; dropped at the end.

    Raises:
        Skipped: X3.
    """
    answer, buffer = allocate(target, models, inputs, outputs)
    expected = "a buffer and a token, or GENERAL_FAILURE"
    judge.expect(check_, is_allocated(answer, buffer), "a valid allocation", expected, f"{answer}, {buffer}")
    if buffer is None:
        raise Skipped("X3", str(answer))
    try:
        yield buffer
    finally:
        target.release(buffer.handle)


def with_buffer(request: types_pb2.Request, argument: types_pb2.RequestArgument, token: int) -> None:
    """Lets an argument of a request lie in a buffer."""
    place(argument, len(request.pools))
    request.pools.add().token = token


def _fill(
    target: Target, judge: Judge, check_: str, buffer: DeviceBuffer, array: AnyArray, shape: Sequence[int]
) -> None:
    answer = copy_from(target, buffer, types_pb2.Memory(inline=array.tobytes()), shape)
    judge.expect(check_, answer.status == ErrorStatus.NONE, f"copyFrom of {list(array.shape)}", "NONE", answer)


def _expect_uninitialised(target: Target, judge: Judge, buffer: DeviceBuffer, size: int, what: str) -> None:
    answer, _ = copy_to(target, buffer, size)
    judge.expect("EXTRA-09", answer.status == FAILURE, f"copyTo after {what}", "GENERAL_FAILURE", answer)


@check("EXTRA-09", "after a failed copy")
def after_a_failed_copy(target: Target, judge: Judge) -> None:
    """It was initialised before, by a copy."""
    array = named(ADD).inputs[0]
    assert array is not None
    with prepared(target, ADD) as model, buffer_of(target, judge, "EXTRA-09", [model], [role(0, 0)]) as buffer:
        for what, memory, shape in (
            ("a copy of too few bytes", types_pb2.Memory(inline=bytes(array.nbytes - 1)), ()),
            ("a copy with another shape", types_pb2.Memory(inline=bytes(array.nbytes)), (3, 2)),
        ):
            _fill(target, judge, "EXTRA-09", buffer, array, ())
            answer = copy_from(target, buffer, memory, shape)
            judge.expect("EXTRA-09", answer.status == INVALID, what, "INVALID_ARGUMENT", answer)
            _expect_uninitialised(target, judge, buffer, array.nbytes, what)


@check("EXTRA-09", "after a failed execution")
def after_a_failed_execution(target: Target, judge: Judge) -> None:
    """It was initialised before; an endless loop was to write into it, by every call."""
    array = named(ENDLESS).outputs[0].array
    with (
        prepared(target, ENDLESS) as model,
        buffer_of(target, judge, "EXTRA-09", [model], (), [role(0, 0)]) as buffer,
    ):
        for path, execute in calls(target).items():
            _fill(target, judge, "EXTRA-09", buffer, array, ())
            request = request_of(ENDLESS)
            with_buffer(request, request.outputs[0], buffer.token)
            answer = execute(target, model, request, Run(loop_timeout_ns=1_000_000)).answer
            judge.expect("EXTRA-09", answer.is_missed_deadline, f"{path}, an endless loop", "MISSED_DEADLINE_*", answer)
            _expect_uninitialised(target, judge, buffer, array.nbytes, f"a failed execution by {path}")


@check("EXTRA-10", "unique, and unknown after release")
def tokens(target: Target, judge: Judge) -> None:
    """Of five live buffers; a token that was released is refused by every call."""
    with prepared(target, ADD) as model, ExitStack() as stack:
        many = [stack.enter_context(buffer_of(target, judge, "EXTRA-10", [model], [role(0, 0)])) for _ in range(5)]
        found = [buffer.token for buffer in many]
        judge.expect("EXTRA-10", len(set(found)) == len(found), "tokens of live buffers", "each once", found)
        array = named(ADD).inputs[0]
        assert array is not None
        _fill(target, judge, "EXTRA-10", many[0], array, ())
        target.release(many[0].handle)
        for path, execute in calls(target).items():
            request = request_of(ADD)
            with_buffer(request, request.inputs[0], many[0].token)
            answer = execute(target, model, request, PLAIN).answer
            what = f"{path}, the token of a released buffer"
            judge.expect("EXTRA-10", answer.status == INVALID, what, "INVALID_ARGUMENT", answer)


@check("EXTRA-10", "released during an execution")
def released_during_an_execution(target: Target, judge: Judge) -> None:
    """The execution keeps what it needs."""
    array = named(ADD).inputs[0]
    assert array is not None
    gate = own_fence(target)
    with prepared(target, ADD) as model, buffer_of(target, judge, "EXTRA-10", [model], [role(0, 0)]) as buffer:
        _fill(target, judge, "EXTRA-10", buffer, array, ())
        request = request_of(ADD)
        with_buffer(request, request.inputs[0], buffer.token)
        with waiting(target, judge, "EXTRA-10", model, request, [gate]) as (made, fence):
            target.release(buffer.handle)
            signal(target, gate)
            executed = finish(target, fence, made)
            expect_right(judge, "EXTRA-10", ADD, executed, "an execution whose input's buffer was released")


# ---- Shapes ---------------------------------------------------------------------------------------------


def _open_model(target: Target, operation: str) -> bytes:
    """A model of one operation whose input and output have any number of rows of 3."""
    graph = Graph()
    graph.apply(operation, [graph.input("TENSOR_FLOAT32", (0, 3))], [graph.output("TENSOR_FLOAT32", (0, 3))])
    empty = np.empty((0, 3), np.float32)
    return prepared_model(target, written(operation, graph, [empty], [empty]).model(), Judge()).model


def _rows(count: int) -> AnyArray:
    return np.arange(-3, 3 * count - 3, dtype=np.float32).reshape(count, 3)


def _request(array: AnyArray) -> types_pb2.Request:
    """An input of open shape, whose shape the request gives; the output has the same size."""
    request, data = build([array], [array.nbytes])
    request.pools[0].pool.inline = data
    request.inputs[0].dimensions[:] = array.shape
    return request


@check("EXTRA-11", "several shapes over time, two models")
def shapes_over_time(target: Target, judge: Judge) -> None:
    """What one model wrote is what the other reads; another shape than the last is refused."""
    first, second = _open_model(target, "RELU"), _open_model(target, "NEG")
    try:
        roles = [role(1, 0)], [role(0, 0)]
        with buffer_of(target, judge, "EXTRA-11", [first, second], *roles) as buffer:
            for path in ("SYNC", "BURST", "SYNC-R"):
                for count in (2, 4, 1):
                    _pass_on(target, judge, path, (first, second), buffer, _rows(count))
            array = _rows(3)
            _fill(target, judge, "EXTRA-11", buffer, array, array.shape)
            _read_by(target, judge, "SYNC", second, buffer, array, "copied in")
    finally:
        target.release(first, second)


def _pass_on(
    target: Target, judge: Judge, path: str, models: tuple[bytes, bytes], buffer: DeviceBuffer, array: AnyArray
) -> None:
    request = _request(array)
    with_buffer(request, request.outputs[0], buffer.token)
    answer = CALLS[path](target, models[0], request, PLAIN).answer
    what = f"{path}, an output of {list(array.shape)} into a buffer of open shape"
    judge.expect("EXTRA-11", answer.status == ErrorStatus.NONE, what, "NONE", answer)
    _read_by(target, judge, path, models[1], buffer, np.maximum(array, 0), "written by another model")


def _read_by(
    target: Target, judge: Judge, path: str, model: bytes, buffer: DeviceBuffer, array: AnyArray, what: str
) -> None:
    """The buffer holds `array`: a model that negates reads it, and no other shape."""
    for wrong in (array.shape[0] + 1, array.shape[0]):
        request = _request(np.zeros((wrong, 3), np.float32))
        with_buffer(request, request.inputs[0], buffer.token)
        executed = CALLS[path](target, model, request, PLAIN)
        stimulus = f"{path}, a buffer with {list(array.shape)}, {what}, read as {[wrong, 3]}"
        if wrong != array.shape[0]:
            judge.expect("EXTRA-11", executed.answer.status == INVALID, stimulus, "INVALID_ARGUMENT", executed.answer)
            continue
        judge.expect("EXTRA-11", executed.answer.status == ErrorStatus.NONE, stimulus, "NONE", executed.answer)
        got = executed.outputs[0]
        if got is None or not np.array_equal(got.view(np.float32), -array.ravel()):
            raise CheckFailed("EXTRA-11", stimulus, "the values last written", "others")
