"""Driver-managed buffers in process: every rule, every state, and what happens at the same time."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from driver.backends.reference.backend import CpuRef
from driver.buffer import Buffer, BufferOutput
from driver.cancellation import Cancellation
from driver.device import Device
from driver.fence import Fence
from driver.fenced import FencedExecution, FencedLaunch
from driver.prepared_model import PreparedModel
from driver.reusable import ReusableExecution
from nnhal.enums import FenceState
from nnhal.errors import HalError, general_failure
from nnhal.types import (
    AnyArray,
    BufferDesc,
    BufferRole,
    BufferToken,
    DataLocation,
    ErrorStatus,
    ExecutionConfig,
    ExecutionResult,
    Memory,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    Request,
    RequestArgument,
    ReturnedPool,
    Subgraph,
    UnsetUnion,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from tests.driver.one_operation import execute, int32, model_of, prepare, tensor

X = tensor(T.TENSOR_FLOAT32, (2, 3))
OPEN = tensor(T.TENSOR_FLOAT32, (0, 3))
ANY = tensor(T.TENSOR_FLOAT32)
A = np.arange(6, dtype=np.float32).reshape(2, 3)
INVALID, FAILURE = ErrorStatus.INVALID_ARGUMENT, ErrorStatus.GENERAL_FAILURE


def relu(operand: Operand, output: Operand | None = None) -> Model:
    return model_of(Op.RELU, [(operand, 0)], [output or operand], constants=False)


def add(operand: Operand) -> Model:
    return model_of(Op.ADD, [(operand, 0), (operand, 0), int32(0)], [operand], constants=False)


def two(operand: Operand) -> Model:
    """Two independent RELUs."""
    ends = [
        replace(operand, lifetime=life) for life in (OperandLifeTime.SUBGRAPH_INPUT, OperandLifeTime.SUBGRAPH_OUTPUT)
    ]
    operations = (Operation(Op.RELU, (0,), (2,)), Operation(Op.RELU, (1,), (3,)))
    return Model(Subgraph((ends[0], ends[0], ends[1], ends[1]), operations, (0, 1), (2, 3)))


def with_scalar(operand: Operand) -> Model:
    """An ADD whose activation is an input."""
    model = add(operand)
    operands = list(model.main.operands)
    operands[2] = Operand(T.INT32, lifetime=OperandLifeTime.SUBGRAPH_INPUT)
    return Model(replace(model.main, operands=tuple(operands), input_indexes=(0, 1, 2)))


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    made = Device("buffers", [CpuRef()], tensor_bytes=10_000)
    yield made
    made.close()


@pytest.fixture
def on(device: Device) -> Callable[[Model], PreparedModel]:
    def prepared(model: Model) -> PreparedModel:
        outcome = prepare(model, device)
        assert outcome.prepared_model is not None, outcome.reason
        return outcome.prepared_model

    return prepared


Prepare = Callable[[Model], PreparedModel]


def role(model: int = 0, end: int = 0, probability: float = 1.0) -> BufferRole:
    return BufferRole(model, end, probability)


def allocate(
    device: Device,
    models: Sequence[PreparedModel | None],
    inputs: Sequence[BufferRole] = (),
    outputs: Sequence[BufferRole] = (),
    dimensions: Sequence[int] = (),
) -> Buffer:
    return device.allocate(BufferDesc(tuple(dimensions)), models, inputs, outputs)


def both(device: Device, model: PreparedModel, dimensions: Sequence[int] = ()) -> Buffer:
    """A buffer for input 0 and output 0."""
    return allocate(device, [model], [role()], [role()], dimensions)


def filled(device: Device, model: PreparedModel, dimensions: Sequence[int] = ()) -> Buffer:
    buffer = both(device, model, dimensions)
    buffer.copy_from(Memory.of(A), (2, 3))
    return buffer


def refused(call: Callable[[], object], status: ErrorStatus, rule: str) -> str:
    with pytest.raises(HalError) as caught:
        call()
    assert (caught.value.status, caught.value.rule) == (status, rule), caught.value
    return caught.value.reason


Place = AnyArray | Buffer | int | None


def request(
    model: PreparedModel,
    inputs: Sequence[Place],
    outputs: Sequence[Place] = (None,),
    shapes: Sequence[Sequence[int]] = ((), ()),
) -> Request:
    """Inputs: arrays, buffers or tokens; outputs: arrays to write to, buffers, tokens, or None for a returned one."""
    pools: list[Memory | BufferToken | ReturnedPool] = []
    arguments = []
    for place, shape in zip([*inputs, *outputs], [*shapes, *((),) * 9], strict=False):
        length = 0
        match place:
            case Buffer():
                pools.append(BufferToken(place.token))
            case int():
                pools.append(BufferToken(place))
            case None:
                pools.append(ReturnedPool())
            case _:
                pools.append(Memory.of(place, writable=place.flags.writeable))
                length = place.nbytes
        arguments.append(RequestArgument(False, DataLocation(len(pools) - 1, 0, length), tuple(shape)))
    return Request(tuple(arguments[: len(inputs)]), tuple(arguments[len(inputs) :]), tuple(pools))


def run(
    model: PreparedModel,
    inputs: Sequence[Place],
    outputs: Sequence[Place] = (None,),
    shapes: Sequence[Sequence[int]] = ((), ()),
) -> ExecutionResult:
    return model.execute_synchronously(request(model, inputs, outputs, shapes))


def fenced(model: PreparedModel, request: Request, *wait_for: Fence, deadline_ns: int = -1) -> FencedExecution:
    return model.execute_fenced(request, ExecutionConfig(), FencedLaunch(wait_for, deadline_ns))


def content(buffer: Buffer, shape: Sequence[int] = (2, 3)) -> AnyArray:
    return buffer.read().view(np.float32).reshape(shape)


def uninitialised(buffer: Buffer) -> bool:
    try:
        buffer.read()
    except HalError as error:
        assert error.status == FAILURE
        return True
    return False


# ---- Allocation -----------------------------------------------------------------------------------------


def test_tokens(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    buffers = [both(device, model) for _ in range(5)]
    tokens = {buffer.token for buffer in buffers}
    assert len(tokens) == 5
    assert min(tokens) > 0
    assert all(uninitialised(buffer) for buffer in buffers)


def test_tokens_start_again_and_leave_out_those_that_live(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    kept = both(device, model)
    device._buffers._last = 2**31 - 2
    last, first = both(device, model), both(device, model)
    assert last.token == 2**31 - 1
    assert 0 < first.token < 2**20
    device._buffers._last = kept.token - 1
    assert both(device, model).token == kept.token + 1


def test_no_models_and_no_roles(device: Device, on: Prepare) -> None:
    refused(lambda: allocate(device, []), INVALID, "V-ALLOC-01")
    refused(lambda: allocate(device, [], [role()]), INVALID, "V-ALLOC-01")
    refused(lambda: allocate(device, [on(relu(X))]), INVALID, "V-ALLOC-02")


def test_null_and_foreign_models(device: Device) -> None:
    refused(lambda: allocate(device, [None], [role()]), INVALID, "V-ALLOC-01")
    with_other = Device("other", [CpuRef()])
    foreign = prepare(relu(X), with_other).prepared_model
    refused(lambda: allocate(device, [foreign], [], [role()]), INVALID, "V-ALLOC-01")
    with_other.close()


@pytest.mark.parametrize(
    "bad", [role(1), role(-1), role(0, 1), role(0, -1), *(role(0, 0, p) for p in (10.0, 0.0, -0.5, float("nan")))]
)
@pytest.mark.parametrize("is_output", [False, True])
def test_roles_that_are_not_there(device: Device, on: Prepare, bad: BufferRole, is_output: bool) -> None:
    ends: tuple[list[BufferRole], list[BufferRole]] = ([], [bad]) if is_output else ([bad], [])
    refused(lambda: allocate(device, [on(relu(X))], *ends), INVALID, "V-ALLOC-03")


def test_a_role_given_twice(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    for models, one, other in (([model], role(), role()), ([model, model], role(0), role(1))):
        refused(lambda m=models, a=one, b=other: allocate(device, m, [a, b]), INVALID, "V-ALLOC-04")  # type: ignore[misc]
        refused(lambda m=models, a=one, b=other: allocate(device, m, [], [a, b]), INVALID, "V-ALLOC-04")  # type: ignore[misc]
    assert allocate(device, [model, model], [role(0)], [role(1)]).token > 0


QUANT = tensor(T.TENSOR_QUANT8_ASYMM, (2, 3), 0.5)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (X, tensor(T.TENSOR_FLOAT16, (2, 3))),
        (QUANT, replace(QUANT, scale=1.0)),
        (QUANT, replace(QUANT, zero_point=10)),
        (QUANT, replace(QUANT, type=T.TENSOR_QUANT8_ASYMM_SIGNED)),
    ],
)
def test_operands_that_differ(device: Device, on: Prepare, one: Operand, other: Operand) -> None:
    models = [on(relu(one)), on(relu(other))]
    for inputs, outputs in (([0, 1], []), ([0], [1]), ([], [0, 1])):
        refused(
            lambda i=inputs, o=outputs: allocate(device, models, list(map(role, i)), list(map(role, o))),  # type: ignore[misc]
            INVALID,
            "V-ALLOC-05",
        )


@pytest.mark.parametrize(
    ("operand", "dimensions"), [(X, (2,)), (X, (4, 3)), (OPEN, (2, 4)), (OPEN, (1, 2, 3)), (X, (2, 3, 1))]
)
def test_a_shape_against_the_roles(device: Device, on: Prepare, operand: Operand, dimensions: tuple[int, ...]) -> None:
    model = on(relu(operand))
    refused(lambda: allocate(device, [model], [role()], [], dimensions), INVALID, "V-ALLOC-06")
    refused(lambda: allocate(device, [model], [], [role()], dimensions), INVALID, "V-ALLOC-06")


def test_shapes_that_contradict_each_other(device: Device, on: Prepare) -> None:
    models = [on(relu(X)), on(relu(tensor(T.TENSOR_FLOAT32, (4, 3)))), on(relu(tensor(T.TENSOR_FLOAT32, (3,))))]
    for other in (1, 2):
        for inputs, outputs in (([0, other], []), ([0], [other]), ([], [0, other])):
            refused(
                lambda i=inputs, o=outputs: allocate(device, models, list(map(role, i)), list(map(role, o))),  # type: ignore[misc]
                INVALID,
                "V-ALLOC-06",
            )


def test_a_scalar_with_dimensions(device: Device, on: Prepare) -> None:
    model = on(with_scalar(X))
    refused(lambda: allocate(device, [model], [role(0, 2)], [], (1,)), INVALID, "V-ALLOC-06")
    buffer = allocate(device, [model], [role(0, 2)])
    refused(lambda: buffer.copy_from(Memory.of(np.zeros(1, np.int32)), (1,)), INVALID, "V-TOKEN-05")
    buffer.copy_from(Memory.of(np.ones(1, np.int32)))
    result = run(model, [A - 2, A * 0, buffer])
    assert result.returned[0] is not None
    np.testing.assert_array_equal(result.returned[0].view(np.float32).reshape(2, 3), np.maximum(A - 2, 0))


def test_a_negative_dimension(device: Device, on: Prepare) -> None:
    refused(lambda: allocate(device, [on(relu(OPEN))], [role()], [], (-2, 3)), INVALID, "V-WIRE-03")


def test_the_shape_is_put_together_of_all_that_is_known(device: Device, on: Prepare) -> None:
    models = [on(relu(OPEN)), on(relu(tensor(T.TENSOR_FLOAT32, (2, 0))))]
    assert allocate(device, models, [role(0)], [role(1)]).contents.size == 24
    assert allocate(device, models[:1], [role(0)]).contents.size is None
    assert allocate(device, models[:1], [role(0)], [], (2, 0)).contents.size == 24
    assert allocate(device, [on(relu(ANY, OPEN))], [], [role()], (5, 3)).contents.size == 60


def test_a_buffer_larger_than_a_tensor_may_be(device: Device, on: Prepare) -> None:
    model = on(relu(OPEN))
    for rows in (1000, 2**31 - 1):
        with pytest.raises(HalError) as caught:
            allocate(device, [model], [role()], [], (rows, 3))
        assert (caught.value.status, caught.value.limit) == (ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT, "tensor_bytes")
    deep = on(relu(ANY, ANY))
    refused(lambda: allocate(device, [deep], [], [role()], (1,) * 1000), FAILURE, "")


# ---- Copies ---------------------------------------------------------------------------------------------

HALF, WHOLE, DOUBLE = (np.ones(n, np.float32) for n in (3, 6, 12))


@pytest.mark.parametrize(
    ("operand", "data", "dimensions", "rule"),
    [
        (X, HALF, (), "V-TOKEN-05"),
        (X, DOUBLE, (), "V-TOKEN-05"),
        (OPEN, HALF, (2, 3), "V-TOKEN-05"),
        (OPEN, DOUBLE, (2, 3), "V-TOKEN-05"),
        (OPEN, WHOLE, (4, 3), "V-TOKEN-05"),
        (X, WHOLE, (2,), "V-TOKEN-05"),
        (X, DOUBLE, (4, 3), "V-TOKEN-05"),
        (X, WHOLE, (0, 3), "V-TOKEN-05"),
        (OPEN, WHOLE, (6,), "V-TOKEN-05"),
        (OPEN, WHOLE, (3, 2), "V-TOKEN-05"),
        (OPEN, WHOLE, (0, 3), "V-TOKEN-05"),
        (OPEN, WHOLE, (), "V-TOKEN-05"),
        (ANY, WHOLE, (), "V-TOKEN-05"),
        (ANY, WHOLE[:1], (), "V-TOKEN-05"),
        (X, WHOLE, (-2, 3), "V-WIRE-03"),
    ],
)
def test_copies_in_that_do_not_fit(
    device: Device, on: Prepare, operand: Operand, data: AnyArray, dimensions: tuple[int, ...], rule: str
) -> None:
    buffer = filled(device, on(relu(operand)))
    refused(lambda: buffer.copy_from(Memory.of(data), dimensions), INVALID, rule)
    assert uninitialised(buffer)


def test_a_copy_with_an_unknown_dimension_is_told_so(device: Device, on: Prepare) -> None:
    buffer = both(device, on(relu(OPEN)))
    reason = refused(lambda: buffer.copy_from(Memory.of(WHOLE), (0, 3)), INVALID, "V-TOKEN-05")
    assert "dimension 0 unknown" in reason


def test_copies_from_no_memory(device: Device, on: Prepare) -> None:
    buffer = filled(device, on(relu(X)))
    refused(lambda: buffer.copy_from(UnsetUnion()), INVALID, "V-WIRE-07")
    assert uninitialised(buffer)
    refused(lambda: buffer.copy_from(Memory(WHOLE.view(np.uint8), 8, 24)), INVALID, "V-POOL-02")
    refused(lambda: buffer.copy_to(UnsetUnion()), INVALID, "V-WIRE-07")


@pytest.mark.parametrize(("operand", "dimensions"), [(X, ()), (X, (2, 3)), (OPEN, (2, 3)), (ANY, (2, 3))])
def test_copies_in_and_out(device: Device, on: Prepare, operand: Operand, dimensions: tuple[int, ...]) -> None:
    buffer = both(device, on(relu(operand)))
    given = A.copy()
    buffer.copy_from(Memory.of(given), dimensions)
    given[:] = 0
    target = np.empty_like(A)
    buffer.copy_to(Memory.of(target, writable=True))
    np.testing.assert_array_equal(target, A)
    for other in (HALF, DOUBLE):
        refused(lambda o=other: buffer.copy_to(Memory.of(o.copy(), writable=True)), INVALID, "V-TOKEN-05")  # type: ignore[misc]
    refused(lambda: buffer.copy_to(Memory.of(target)), INVALID, "")
    np.testing.assert_array_equal(content(buffer), A)


def test_copies_out_of_nothing(device: Device, on: Prepare) -> None:
    whole = Memory.of(np.empty_like(A), writable=True)
    for operand in (X, OPEN):
        refused(lambda o=operand: both(device, on(relu(o))).copy_to(whole), FAILURE, "V-TOKEN-05")  # type: ignore[misc]
    half = Memory.of(HALF.copy(), writable=True)
    refused(lambda: both(device, on(relu(X))).copy_to(half), INVALID, "V-TOKEN-05")


def test_several_shapes_over_time(device: Device, on: Prepare) -> None:
    buffer = both(device, model := on(relu(OPEN)))
    for rows in (2, 5, 1):
        data = np.full((rows, 3), rows, np.float32)
        buffer.copy_from(Memory.of(data), (rows, 3))
        result = run(model, [buffer], shapes=[(rows, 3)])
        assert result.output_shapes[0].dimensions == (rows, 3)
        refused(lambda n=rows: run(model, [buffer], shapes=[(n + 1, 3)]), INVALID, "V-TOKEN-04")  # type: ignore[misc]


# ---- Use in requests ------------------------------------------------------------------------------------


def test_tokens_that_name_nothing(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    gone = filled(device, model)
    token = gone.token
    del gone
    for bad, rule in ((0, "V-POOL-05"), (-1, "V-POOL-05"), (2**30, "V-REQ-02"), (token, "V-REQ-02")):
        refused(lambda b=bad: run(model, [b]), INVALID, rule)  # type: ignore[misc]
        refused(lambda b=bad: run(model, [A], [b]), INVALID, rule)  # type: ignore[misc]


def test_another_prepared_model_is_answered_as_if_there_were_no_buffer(device: Device, on: Prepare) -> None:
    one, other = on(relu(X)), on(relu(X))
    buffer = filled(device, one)
    absent = 2**30
    uses: tuple[Callable[[int], object], ...] = (
        lambda token: run(other, [token]),
        lambda token: run(other, [A], [token]),
    )
    for use in uses:
        found, wanted = (refused(partial(use, token), INVALID, "V-REQ-02") for token in (buffer.token, absent))
        assert found.replace(str(buffer.token), "N") == wanted.replace(str(absent), "N")
    np.testing.assert_array_equal(content(buffer), A)


def test_roles_that_were_not_allocated(device: Device, on: Prepare) -> None:
    model = on(two(X))
    reader = allocate(device, [model], [role(0, 0)])
    reader.copy_from(Memory.of(A))
    writer = allocate(device, [model], [], [role(0, 0)])
    writer.copy_from(Memory.of(A))
    refused(lambda: run(model, [A, reader], [None, None]), INVALID, "V-TOKEN-01")
    refused(lambda: run(model, [A, A], [None, reader]), INVALID, "V-TOKEN-01")
    refused(lambda: run(model, [A, A], [reader, None]), INVALID, "V-TOKEN-01")
    refused(lambda: run(model, [writer, A], [None, None]), INVALID, "V-TOKEN-01")
    run(model, [reader, A], [writer, None])


def test_one_buffer_in_several_roles(device: Device, on: Prepare) -> None:
    model = on(two(X))
    ends = [role(0, 0), role(0, 1)]
    buffer = allocate(device, [model], ends, ends)
    buffer.copy_from(Memory.of(A))
    refused(lambda: run(model, [buffer, A], [buffer, None]), INVALID, "V-TOKEN-03")
    refused(lambda: run(model, [A, A], [buffer, buffer]), INVALID, "V-TOKEN-03")
    result = run(model, [buffer, buffer], [None, None])
    assert [data.tobytes() for data in result.returned if data is not None] == [A.tobytes()] * 2


def test_one_buffer_in_one_pool_for_two_outputs(device: Device, on: Prepare) -> None:
    model = on(two(X))
    buffer = allocate(device, [model], [], [role(0, 0), role(0, 1)])
    plain = request(model, [A, A], [buffer, None])
    shared = replace(plain, outputs=(plain.outputs[0], plain.outputs[0]))
    refused(lambda: model.execute_synchronously(shared), INVALID, "V-TOKEN-03")


def test_a_token_means_the_whole_buffer(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    buffer = filled(device, model)
    plain = request(model, [buffer])
    for location in (DataLocation(0, 4), DataLocation(0, 0, 24), DataLocation(0, 0, 0, 8)):
        bad = replace(plain, inputs=(RequestArgument(False, location),))
        refused(lambda r=bad: model.execute_synchronously(r), INVALID, "V-REQARG-04")  # type: ignore[misc]


def test_uninitialised_inputs(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    buffer = both(device, model)
    refused(lambda: run(model, [buffer]), FAILURE, "V-TOKEN-02")
    result = run(model, [A], [buffer])
    assert result.output_sufficient_size
    assert result.returned == ()
    np.testing.assert_array_equal(content(buffer), A)
    assert run(model, [buffer]).output_sufficient_size


def test_shapes_against_the_buffer(device: Device, on: Prepare) -> None:
    model = on(relu(OPEN))
    large = np.ones((4, 3), np.float32)
    buffer = filled(device, model, (2, 3))
    out = np.empty_like(large)
    refused(lambda: run(model, [buffer], [out], [(4, 3), (4, 3)]), INVALID, "V-TOKEN-04")
    refused(lambda: run(model, [large], [buffer], [(4, 3), (4, 3)]), INVALID, "V-TOKEN-04")
    np.testing.assert_array_equal(content(buffer), A)
    refused(lambda: run(model, [large], [buffer], [(4, 3), ()]), FAILURE, "V-TOKEN-06")
    assert uninitialised(buffer)


def test_a_shape_that_is_not_the_one_last_written(device: Device, on: Prepare) -> None:
    model = on(relu(OPEN))
    buffer = filled(device, model)
    refused(lambda: run(model, [buffer], shapes=[(3, 3)]), INVALID, "V-TOKEN-04")
    refused(lambda: run(model, [buffer]), INVALID, "V-REQMODEL-03")


def test_outputs_of_unknown_shape(device: Device, on: Prepare) -> None:
    model = on(relu(OPEN))
    buffer = both(device, model)
    for rows in (2, 5, 1):
        data = np.full((rows, 3), rows, np.float32)
        result = run(model, [data], [buffer], [(rows, 3)])
        assert result.output_shapes[0].dimensions == (rows, 3)
        np.testing.assert_array_equal(content(buffer, (rows, 3)), data)


def test_two_models_in_a_chain(device: Device, on: Prepare) -> None:
    first, second = on(add(X)), on(relu(X))
    between = allocate(device, [first, second], [role(1)], [role(0)])
    run(first, [A - 3, A], [between])
    value = between.contents.value
    result = run(second, [between])
    assert result.returned[0] is not None
    np.testing.assert_array_equal(result.returned[0].view(np.float32).reshape(2, 3), np.maximum(2 * A - 3, 0))
    assert between.contents.value is value


def test_an_output_is_kept_or_copied(device: Device, on: Prepare) -> None:
    contents = both(device, on(relu(X))).contents
    for array, keep, shared in ((A.copy(), True, True), (A.copy(), False, False), (np.append(A, A)[:6], True, False)):
        output = BufferOutput((2, 3), contents)
        output.write(array.reshape(2, 3) if array.ndim == 1 else array, keep=keep)
        assert np.shares_memory(output.data, array) == shared
        output.deliver()
        assert contents.value is not None
        assert contents.value.data.tobytes() == A.tobytes()


def test_what_was_read_is_the_readers(device: Device, on: Prepare) -> None:
    buffer = filled(device, on(relu(X)))
    content(buffer)[:] = 0
    np.testing.assert_array_equal(content(buffer), A)


def test_booleans_of_any_byte(device: Device, on: Prepare) -> None:
    flags = tensor(T.TENSOR_BOOL8, (4,))
    model = on(model_of(Op.LOGICAL_NOT, [(flags, 0)], [flags], constants=False))
    buffer = both(device, model)
    buffer.copy_from(Memory.of(np.array([0, 1, 7, 255], np.uint8)))
    result = run(model, [buffer])
    assert result.returned[0] is not None
    assert result.returned[0].tolist() == [1, 0, 0, 0]


# ---- What fails -----------------------------------------------------------------------------------------


def failing(kind: str, model: PreparedModel, buffer: Buffer) -> None:
    plain = request(model, [A, A], [buffer, None])
    cancelled = Cancellation()
    cancelled.cancel()
    with pytest.raises(HalError):
        match kind:
            case "late":
                model.execute_synchronously(plain, deadline_ns=1)
            case "cancelled":
                model.execute_synchronously(plain, cancellation=cancelled)
            case "fenced, late":
                plain = request(model, [A, A], [buffer, np.empty_like(A)])
                fenced(model, plain, deadline_ns=1)
            case "fence in error":
                plain = request(model, [A, A], [buffer, np.empty_like(A)])
                before = Fence()
                execution = fenced(model, plain, before)
                before.end(error=True)
                assert execution.fence.state == FenceState.ERROR
                raise general_failure("as expected")


@pytest.mark.parametrize("kind", ["late", "cancelled", "fenced, late", "fence in error"])
def test_a_failed_execution_leaves_its_outputs_uninitialised(device: Device, on: Prepare, kind: str) -> None:
    model = on(two(X))
    buffer = allocate(device, [model], [], [role()])
    buffer.copy_from(Memory.of(A))
    failing(kind, model, buffer)
    assert uninitialised(buffer)


def test_an_output_elsewhere_that_is_too_small(device: Device, on: Prepare) -> None:
    model = on(two(OPEN))
    buffer = allocate(device, [model], [], [role()])
    buffer.copy_from(Memory.of(A), (2, 3))
    small = np.empty((1, 3), np.float32)
    result = run(model, [A, A], [buffer, small], [(2, 3), (2, 3)])
    assert not result.output_sufficient_size
    assert uninitialised(buffer)


def test_a_refused_request_changes_nothing(device: Device, on: Prepare) -> None:
    model = on(two(X))
    buffer = allocate(device, [model], [], [role()])
    buffer.copy_from(Memory.of(A))
    refused(lambda: run(model, [A, A], [buffer, 2**30]), INVALID, "V-REQ-02")
    np.testing.assert_array_equal(content(buffer), A)


# ---- Fenced and reusable executions ---------------------------------------------------------------------


def ended(fence: Fence) -> FenceState:
    over = threading.Event()
    fence.when_over(lambda _: over.set())
    assert over.wait(10)
    return fence.state


def test_a_chain_of_fenced_executions(device: Device, on: Prepare) -> None:
    first, second = on(add(X)), on(relu(X))
    between = allocate(device, [first, second], [role(1)], [role(0)])
    before = Fence()
    one = fenced(first, request(first, [A - 3, A], [between]), before)
    out = np.empty_like(A)
    two_ = fenced(second, request(second, [between], [out]), one.fence)
    assert uninitialised(between)
    del between
    before.end()
    assert ended(two_.fence) == FenceState.SIGNALED, two_.info()
    np.testing.assert_array_equal(out, np.maximum(2 * A - 3, 0))


def test_a_fenced_execution_with_an_uninitialised_input(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    buffer = both(device, model)
    execution = fenced(model, request(model, [buffer], [np.empty_like(A)]))
    assert ended(execution.fence) == FenceState.ERROR
    assert execution.info().status == FAILURE


def test_a_reusable_execution_reads_anew_and_keeps_its_buffers(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    buffer = filled(device, model)
    out = np.empty_like(A)
    execution = ReusableExecution(model, request(model, [buffer], [out]), ExecutionConfig())
    for factor in (1, 2):
        buffer.copy_from(Memory.of(factor * A))
        execution.execute_synchronously()
        np.testing.assert_array_equal(out, factor * A)
    del buffer
    for launch in (execution.execute_synchronously, lambda: ended(execution.execute_fenced(FencedLaunch()).fence)):
        out[:] = 0
        launch()
        np.testing.assert_array_equal(out, 2 * A)
    refused(lambda: ReusableExecution(model, request(model, [2**30], [out]), ExecutionConfig()), INVALID, "V-REQ-02")


def test_nothing_keeps_what_a_reusable_execution_used(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    buffer = filled(device, model)
    execution = ReusableExecution(model, request(model, [buffer], [np.empty_like(A)]), ExecutionConfig())
    assert ended(execution.execute_fenced(FencedLaunch()).fence) == FenceState.SIGNALED
    inside = weakref.ref(buffer.contents)
    del buffer, execution
    gc.collect()
    assert inside() is None


# ---- Lifetimes ------------------------------------------------------------------------------------------


def test_a_buffer_keeps_no_model_alive(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    other = on(relu(X))
    buffer = allocate(device, [model, other], [role(0), role(1)])
    buffer.copy_from(Memory.of(A))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None
    np.testing.assert_array_equal(content(buffer), A)
    assert run(other, [buffer]).output_sufficient_size


class Account:
    """Counts bytes as the service does."""

    def __init__(self, room: int = 10**9) -> None:
        self.used = 0
        self.room = room

    def reserve(self, size: int) -> object:
        if self.used + size > self.room:
            raise HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, "no room")
        self.used += size
        held = np.empty(0)
        weakref.finalize(held, self._give_back, size)
        return held

    def _give_back(self, size: int) -> None:
        self.used -= size


def test_a_known_size_is_accounted_for_from_the_start(device: Device, on: Prepare) -> None:
    account = Account(40)
    model = on(relu(X))
    buffer = device.allocate(BufferDesc(), [model], [role()], [role()], account.reserve)
    assert account.used == 24
    with pytest.raises(HalError, match="no room"):
        device.allocate(BufferDesc(), [model], [role()], [], account.reserve)
    for _ in range(3):
        buffer.copy_from(Memory.of(A))
        run(model, [A], [buffer])
    assert account.used == 24
    del buffer
    assert account.used == 0


def test_an_unknown_size_is_accounted_for_when_it_comes(device: Device, on: Prepare) -> None:
    account = Account(100)
    model = on(relu(OPEN))
    buffer = device.allocate(BufferDesc(), [model], [role()], [role()], account.reserve)
    assert account.used == 0
    for rows in (2, 8, 8, 1):
        data = np.ones((rows, 3), np.float32)
        buffer.copy_from(Memory.of(data), (rows, 3))
        assert account.used == data.nbytes
        run(model, [data], [buffer], [(rows, 3)])
        assert account.used == data.nbytes
    large = np.ones((9, 3), np.float32)
    fills: tuple[Callable[[Buffer], object], ...] = (
        lambda into: into.copy_from(Memory.of(large), (9, 3)),
        lambda into: run(model, [large], [into], [(9, 3)]),
    )
    for fill in fills:
        buffer.copy_from(Memory.of(A), (2, 3))
        with pytest.raises(HalError, match="no room"):
            fill(buffer)
        assert uninitialised(buffer)
        assert account.used == 0
    buffer.copy_from(Memory.of(A), (2, 3))
    del buffer
    assert account.used == 0


# ---- At the same time -----------------------------------------------------------------------------------


def test_nobody_sees_half_a_value(device: Device, on: Prepare) -> None:
    wide = tensor(T.TENSOR_FLOAT32, (2000,))
    model = on(add(wide))
    buffer = allocate(device, [model], [role(0, 0), role(0, 1)], [role()])
    values = [np.full(2000, n, np.float32) for n in range(4)]
    zero = np.zeros(2000, np.float32)
    buffer.copy_from(Memory.of(values[0]))
    torn: list[AnyArray] = []
    failed: list[Exception] = []
    stop = threading.Event()

    def looping(work: Callable[[], object]) -> threading.Thread:
        def loop() -> None:
            try:
                while not stop.is_set():
                    work()
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=loop)
        thread.start()
        return thread

    def judge(data: AnyArray) -> None:
        if (found := data.view(np.float32)).min() != found.max():
            torn.append(found)

    def execute_from() -> None:
        result = run(model, [buffer, buffer])
        assert result.returned[0] is not None
        judge(result.returned[0])

    threads = [
        looping(lambda: buffer.copy_from(Memory.of(values[1]))),
        looping(lambda: run(model, [values[2], zero], [buffer])),
        looping(lambda: judge(buffer.read())),
        looping(execute_from),
    ]
    stop.wait(1)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failed, failed
    assert not torn


def test_a_buffer_released_during_an_execution(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    buffer = filled(device, model)
    token = buffer.token
    held = model.validate(request(model, [buffer]), ExecutionConfig())
    del buffer
    refused(lambda: run(model, [token]), INVALID, "V-REQ-02")
    result = model.execute_valid(held, ExecutionConfig(), -1, Cancellation(), None, 0)
    assert result.returned[0] is not None
    np.testing.assert_array_equal(result.returned[0].view(np.float32).reshape(2, 3), A)


def test_models_without_buffers_run_as_ever(device: Device) -> None:
    np.testing.assert_array_equal(execute(prepare(relu(X), device), [A])[1][0], A)
