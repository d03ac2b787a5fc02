"""Invalid requests that the vendor test suite does not cover (EXTRA-15 to -17)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.target import Target, mapped_pool
from nnhal_tools.conformance.paths import reachable_calls
from nnhal_tools.conformance.paths.buffers import place_in_pool
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.vectors.samples import builtin_case, builtin_request, prepared_model

Edit = Callable[[types_pb2.Request], object]

ADD, SPLIT = "add_float", "split_int32"
READ_ONLY = 1
UNKNOWN_TOKEN = 123456789


def invalid(flaw: str, name: str = ADD, id_: str = "EXTRA-15") -> Callable[[Edit], Edit]:
    """Register a check that every path rejects the request of a built-in vector after an edit."""

    def register(edit: Edit) -> Edit:
        def body(target: Target, recorder: CheckRecorder) -> None:
            request = builtin_request(name)
            edit(request)
            with prepared_model(target, name) as model:
                expect_refused(target, recorder, model, request, flaw)

        check(id_, flaw)(body)
        return edit

    return register


def expect_refused(
    target: Target, recorder: CheckRecorder, model: bytes, request: types_pb2.Request, flaw: str
) -> None:
    """Expect INVALID_ARGUMENT from every path."""
    for path, execute in reachable_calls(target).items():
        answer = execute(target, model, request, RunOptions()).outcome
        recorder.expect_status(answer, f"{path}, {flaw}", ErrorStatus.INVALID_ARGUMENT)


# ---- Fields of an argument ------------------------------------------------------------------------------

FIELD_FLAWS: Sequence[tuple[str, str, int, Mapping[str, Any]]] = (
    ("an input in an unknown pool", "inputs", 0, {"location": {"pool_index": 2}}),
    ("an output in an unknown pool", "outputs", 0, {"location": {"pool_index": 2}}),
    ("a negative pool index", "inputs", 0, {"location": {"pool_index": -1}}),
    ("a negative offset", "inputs", 1, {"location": {"offset": -4}}),
    ("a negative length", "inputs", 0, {"location": {"length": -4}}),
    ("a negative padding", "inputs", 0, {"location": {"padding": -4}}),
    ("an offset whose end overflows", "inputs", 1, {"location": {"offset": 2**63 - 4}}),
    ("an input of the wrong rank", "inputs", 0, {"dimensions": [6]}),
    ("an input with wrong dimensions", "inputs", 0, {"dimensions": [3, 2]}),
    ("an input with a dimension 0", "inputs", 0, {"dimensions": [0, 3]}),
    ("an input with a negative dimension", "inputs", 0, {"dimensions": [-2, 3]}),
    ("an output with wrong dimensions", "outputs", 0, {"dimensions": [3, 2]}),
    ("an omitted input with a location", "inputs", 0, {"has_no_value": True}),
)
"""Each flaw with its argument of ADD, and the flawed fields of this argument."""


def _with_fields(arguments: str, index: int, fields: Mapping[str, Any]) -> Edit:
    return lambda request: getattr(request, arguments)[index].MergeFrom(types_pb2.RequestArgument(**fields))


for _flaw, _arguments, _index, _fields in FIELD_FLAWS:
    invalid(_flaw)(_with_fields(_arguments, _index, _fields))


# ---- Pools, regions and tokens --------------------------------------------------------------------------


def _grow(location: types_pb2.DataLocation, name: str, difference: int) -> None:
    setattr(location, name, getattr(location, name) + difference)


def _use_token(request: types_pb2.Request, token: int) -> None:
    """Use a token for the output, without a location."""
    request.pools[1].token = token
    place_in_pool(request.outputs[0], 1)


invalid("an input that ends after its pool")(
    lambda r: setattr(r.inputs[1].location, "offset", len(r.pools[0].pool.inline) - 4)
)
invalid("an output that ends after its pool")(
    lambda r: setattr(r.outputs[0].location, "offset", r.pools[1].returned.size - 4)
)
invalid("padding that ends after the pool")(lambda r: _grow(r.inputs[1].location, "padding", 1))
invalid("an input of length 0")(lambda r: setattr(r.inputs[0].location, "length", 0))
invalid("an input too short for its shape")(lambda r: _grow(r.inputs[0].location, "length", -1))
invalid("an input too long for its shape")(lambda r: _grow(r.inputs[0].location, "length", 4))
invalid("an extra input")(lambda r: r.inputs.append(r.inputs[0]))
invalid("token 0")(lambda r: _use_token(r, 0))
invalid("a negative token")(lambda r: _use_token(r, -1))
invalid("an unknown token")(lambda r: _use_token(r, UNKNOWN_TOKEN))
invalid("a token with a location")(lambda r: setattr(r.pools[1], "token", UNKNOWN_TOKEN))
invalid("an unknown Memory object")(lambda r: setattr(r.pools[0].pool.mapped, "memory", bytes(16)))


@invalid("an omitted input with dimensions")
def _omitted_with_dimensions(request: types_pb2.Request) -> None:
    request.inputs[0].has_no_value = True
    request.inputs[0].ClearField("location")
    request.inputs[0].dimensions[:] = [2, 3]


@check("EXTRA-15", "windows of a Memory object")
def _windows(target: Target, recorder: CheckRecorder) -> None:
    """Check pools that end after their memory, are empty, or have unknown protection bits."""
    request = builtin_request(ADD)
    data = request.pools[0].pool.inline
    handle = target.memory_with(data)
    size = len(data)
    with prepared_model(target, ADD) as model:
        for window in ({"length": size + 1}, {"offset": 1, "length": size}, {"offset": -1}, {"length": 0}, {"prot": 4}):
            request.pools[0].pool.CopyFrom(mapped_pool(handle, **window))
            expect_refused(target, recorder, model, request, f"a pool with {window} of {size} bytes")
    target.release(handle)


@check("EXTRA-15", "an output in read-only memory")
def _read_only_output(target: Target, recorder: CheckRecorder) -> None:
    """Check that an output in memory without the write bit is rejected, and that the memory stays unchanged."""
    request = builtin_request(ADD)
    handle = target.memory_with(bytes(request.pools[1].returned.size))
    request.pools[1].pool.CopyFrom(mapped_pool(handle, prot=READ_ONLY))
    with prepared_model(target, ADD) as model:
        expect_refused(target, recorder, model, request, "an output in a pool without the write bit")
    recorder.expect(not any(target.read_memory(handle)), "memory without the write bit", "unchanged", "written")
    target.release(handle)


# ---- Outputs --------------------------------------------------------------------------------------------


@invalid("outputs in the same region", SPLIT, "EXTRA-16")
def _same_region(request: types_pb2.Request) -> None:
    request.outputs[1].location.CopyFrom(request.outputs[0].location)


@invalid("outputs that share a byte", SPLIT, "EXTRA-16")
def _overlapping_by_a_byte(request: types_pb2.Request) -> None:
    first = request.outputs[0].location
    request.outputs[1].location.offset = first.offset + first.length - 1
    request.outputs[1].location.padding = 0


@check("EXTRA-16", "an output that overlaps an input")
def _output_over_input(target: Target, recorder: CheckRecorder) -> None:
    """Check an output that overlaps an input in one Memory object."""
    request = builtin_request(ADD)
    handle = target.memory_with(request.pools[0].pool.inline)
    request.pools[0].pool.CopyFrom(mapped_pool(handle))
    request.outputs[0].location.CopyFrom(request.inputs[0].location)
    with prepared_model(target, ADD) as model:
        expect_refused(target, recorder, model, request, "an output on the bytes of an input")
    target.release(handle)


def _resize_region(difference: int) -> Edit:
    def edit(request: types_pb2.Request) -> None:
        _grow(request.outputs[0].location, "length", difference)
        _grow(request.outputs[0].location, "padding", -difference)

    return edit


invalid("a region that is too small", ADD, "EXTRA-17")(_resize_region(-1))
invalid("a region that is too large", ADD, "EXTRA-17")(_resize_region(4))


@check("EXTRA-17", "dimensions of the request")
def _too_small_for_dimensions(target: Target, recorder: CheckRecorder) -> None:
    """Check a region that is too small for dimensions that the request specifies and the model does not."""
    request = builtin_request(ADD)
    request.outputs[0].dimensions[:] = builtin_case(ADD).outputs[0].array.shape
    request.outputs[0].location.length -= 4
    with prepared_model(target, ADD, unspecified=True) as model:
        expect_refused(target, recorder, model, request, "a region that is too small for the request's dimensions")
