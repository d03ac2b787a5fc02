"""Requests that are invalid in ways that the vendor test suite does not try (EXTRA-15 to -17)."""

from collections.abc import Callable

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from tools.conformance.check import Judge
from tools.conformance.paths import calls
from tools.conformance.registry import check
from tools.conformance.samples import named, prepared, request_of
from tools.conformance.target import Run, Target, mapped

Edit = Callable[[types_pb2.Request], None]

ADD, SPLIT = "add_float", "split_int32"
READ_ONLY = 1


def invalid(what: str, name: str = ADD, id_: str = "EXTRA-15") -> Callable[[Edit], Edit]:
    """Registers a change that makes the request of a built-in vector invalid."""

    def register(edit: Edit) -> Edit:
        def body(target: Target, judge: Judge) -> None:
            request = request_of(name)
            edit(request)
            with prepared(target, name) as model:
                expect_refused(target, judge, model, request, id_, what)

        check(id_, what)(body)
        return edit

    return register


def expect_refused(target: Target, judge: Judge, model: bytes, request: types_pb2.Request, id_: str, what: str) -> None:
    """Every path must answer INVALID_ARGUMENT."""
    for path, execute in calls(target).items():
        answer = execute(target, model, request, Run()).answer
        judge.expect(id_, answer.status == ErrorStatus.INVALID_ARGUMENT, f"{path}, {what}", "INVALID_ARGUMENT", answer)


# ---- Pools and regions ----------------------------------------------------------------------------------


@invalid("an input in a pool that is not there")
def _pool_that_is_not_there(request: types_pb2.Request) -> None:
    request.inputs[0].location.pool_index = 2


@invalid("an output in a pool that is not there")
def _output_pool_that_is_not_there(request: types_pb2.Request) -> None:
    request.outputs[0].location.pool_index = 2


@invalid("a negative pool index")
def _negative_pool(request: types_pb2.Request) -> None:
    request.inputs[0].location.pool_index = -1


@invalid("a negative offset")
def _negative_offset(request: types_pb2.Request) -> None:
    request.inputs[1].location.offset = -4


@invalid("a negative length")
def _negative_length(request: types_pb2.Request) -> None:
    request.inputs[0].location.length = -4


@invalid("a negative padding")
def _negative_padding(request: types_pb2.Request) -> None:
    request.inputs[0].location.padding = -4


@invalid("an input beyond its pool")
def _input_beyond_pool(request: types_pb2.Request) -> None:
    request.inputs[1].location.offset = len(request.pools[0].pool.inline) - 4


@invalid("an output beyond its pool")
def _output_beyond_pool(request: types_pb2.Request) -> None:
    request.outputs[0].location.offset = request.pools[1].returned.size - 4


@invalid("padding beyond the pool")
def _padding_beyond_pool(request: types_pb2.Request) -> None:
    request.inputs[1].location.padding += 1


@invalid("an offset whose end wraps around")
def _offset_that_wraps(request: types_pb2.Request) -> None:
    request.inputs[1].location.offset = 2**63 - 4


@invalid("an input of length 0")
def _empty_input(request: types_pb2.Request) -> None:
    request.inputs[0].location.length = 0


@invalid("an input too short for its shape")
def _short_input(request: types_pb2.Request) -> None:
    request.inputs[0].location.length -= 1


@invalid("an input too long for its shape")
def _long_input(request: types_pb2.Request) -> None:
    request.inputs[0].location.length += 4


# ---- Dimensions and omitted arguments -------------------------------------------------------------------


@invalid("an input of another rank")
def _input_rank(request: types_pb2.Request) -> None:
    request.inputs[0].dimensions[:] = [6]


@invalid("an input of another dimension")
def _input_dimension(request: types_pb2.Request) -> None:
    request.inputs[0].dimensions[:] = [3, 2]


@invalid("an input with a dimension 0")
def _input_dimension_0(request: types_pb2.Request) -> None:
    request.inputs[0].dimensions[:] = [0, 3]


@invalid("an input with a negative dimension")
def _input_negative_dimension(request: types_pb2.Request) -> None:
    request.inputs[0].dimensions[:] = [-2, 3]


@invalid("an output of another dimension")
def _output_dimension(request: types_pb2.Request) -> None:
    request.outputs[0].dimensions[:] = [3, 2]


@invalid("an omitted input with a location")
def _omitted_with_location(request: types_pb2.Request) -> None:
    request.inputs[0].has_no_value = True


@invalid("an omitted input with dimensions")
def _omitted_with_dimensions(request: types_pb2.Request) -> None:
    request.inputs[0].has_no_value = True
    request.inputs[0].ClearField("location")
    request.inputs[0].dimensions[:] = [2, 3]


@invalid("an input too many")
def _input_too_many(request: types_pb2.Request) -> None:
    request.inputs.add().CopyFrom(request.inputs[0])


# ---- Tokens and memories --------------------------------------------------------------------------------


def _whole_pool(argument: types_pb2.RequestArgument) -> None:
    pool = argument.location.pool_index
    argument.location.Clear()
    argument.location.pool_index = pool


@invalid("token 0")
def _token_0(request: types_pb2.Request) -> None:
    request.pools[1].token = 0
    _whole_pool(request.outputs[0])


@invalid("a negative token")
def _negative_token(request: types_pb2.Request) -> None:
    request.pools[1].token = -1
    _whole_pool(request.outputs[0])


@invalid("a token that was never given")
def _unknown_token(request: types_pb2.Request) -> None:
    request.pools[1].token = 123456789
    _whole_pool(request.outputs[0])


@invalid("a token with a location")
def _token_with_location(request: types_pb2.Request) -> None:
    request.pools[1].token = 123456789


@invalid("a Memory object that is not there")
def _unknown_memory(request: types_pb2.Request) -> None:
    request.pools[0].pool.mapped.memory = bytes(16)


@check("EXTRA-15", "windows of a Memory object")
def _windows(target: Target, judge: Judge) -> None:
    """Pools that end beyond their memory, are empty, or have protection bits that do not exist."""
    request = request_of(ADD)
    data = request.pools[0].pool.inline
    handle = target.filled(data)
    size = len(data)
    with prepared(target, ADD) as model:
        for window in ({"length": size + 1}, {"offset": 1, "length": size}, {"offset": -1}, {"length": 0}, {"prot": 4}):
            request.pools[0].pool.CopyFrom(mapped(handle, **window))
            expect_refused(target, judge, model, request, "EXTRA-15", f"a pool with {window} of {size} bytes")
    target.release(handle)


@check("EXTRA-15", "an output in read-only memory")
def _read_only_output(target: Target, judge: Judge) -> None:
    """Without the write bit nothing can be put there, and nothing is."""
    request = request_of(ADD)
    handle = target.filled(bytes(request.pools[1].returned.size))
    request.pools[1].pool.CopyFrom(mapped(handle, prot=READ_ONLY))
    with prepared(target, ADD) as model:
        expect_refused(target, judge, model, request, "EXTRA-15", "an output in a pool without the write bit")
    judge.expect("EXTRA-15", not any(target.read(handle)), "memory without the write bit", "untouched", "written")
    target.release(handle)


# ---- Outputs --------------------------------------------------------------------------------------------


@invalid("outputs on the same bytes", SPLIT, "EXTRA-16")
def _same_region(request: types_pb2.Request) -> None:
    request.outputs[1].location.CopyFrom(request.outputs[0].location)


@invalid("outputs that share a byte", SPLIT, "EXTRA-16")
def _overlapping_by_a_byte(request: types_pb2.Request) -> None:
    first = request.outputs[0].location
    request.outputs[1].location.offset = first.offset + first.length - 1
    request.outputs[1].location.padding = 0


@check("EXTRA-16", "an output over an input")
def _output_over_input(target: Target, judge: Judge) -> None:
    """Both in one Memory object."""
    request = request_of(ADD)
    handle = target.filled(request.pools[0].pool.inline)
    request.pools[0].pool.CopyFrom(mapped(handle))
    request.outputs[0].location.CopyFrom(request.inputs[0].location)
    with prepared(target, ADD) as model:
        expect_refused(target, judge, model, request, "EXTRA-16", "an output on the bytes of an input")
    target.release(handle)


@invalid("a region too small", ADD, "EXTRA-17")
def _too_small(request: types_pb2.Request) -> None:
    request.outputs[0].location.length -= 1
    request.outputs[0].location.padding += 1


@invalid("a region too large", ADD, "EXTRA-17")
def _too_large(request: types_pb2.Request) -> None:
    request.outputs[0].location.length += 4
    request.outputs[0].location.padding -= 4


@check("EXTRA-17", "dimensions of the request")
def _too_small_for_given_dimensions(target: Target, judge: Judge) -> None:
    """The model leaves the output open, the request gives its dimensions, and the region does not fit them."""
    request = request_of(ADD)
    request.outputs[0].dimensions[:] = named(ADD).outputs[0].array.shape
    request.outputs[0].location.length -= 4
    with prepared(target, ADD, unspecified=True) as model:
        expect_refused(target, judge, model, request, "EXTRA-17", "a region too small for the request's dimensions")
