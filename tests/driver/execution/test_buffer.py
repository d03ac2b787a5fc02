"""Driver-managed buffers in process: every rule, every state, and concurrent use."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

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
    FenceState,
    Memory,
    Model,
    Operand,
    OperandLifeTime,
    Operation,
    OutputShape,
    Request,
    RequestArgument,
    ReturnedPool,
    Subgraph,
    UnsetUnion,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceHost, DeviceOptions
from nnhal_driver.execution.buffer import Buffer, BufferOutput
from nnhal_driver.execution.buffer_table import LiveBuffers
from nnhal_driver.execution.burst import Burst
from nnhal_driver.execution.execution import ReusableExecution
from nnhal_driver.execution.execution_call import ExecutionCall
from nnhal_driver.execution.fence import Fence
from nnhal_driver.execution.fenced_execution import FencedArguments, FencedExecution
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.scheduling.cancellation import Cancellation
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


def two_relus(operand: Operand) -> Model:
    """Return a model of two_relus independent RELUs."""
    source = replace(operand, lifetime=OperandLifeTime.SUBGRAPH_INPUT)
    result = replace(operand, lifetime=OperandLifeTime.SUBGRAPH_OUTPUT)
    operations = (Operation(Op.RELU, (0,), (2,)), Operation(Op.RELU, (1,), (3,)))
    return Model(Subgraph((source, source, result, result), operations, (0, 1), (2, 3)))


def with_scalar(operand: Operand) -> Model:
    """Return an ADD whose activation is an input."""
    model = add(operand)
    operands = list(model.main.operands)
    operands[2] = Operand(T.INT32, lifetime=OperandLifeTime.SUBGRAPH_INPUT)
    return Model(replace(model.main, operands=tuple(operands), input_indexes=(0, 1, 2)))


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    device = Device("buffers", [CpuRef()], DeviceOptions(tensor_bytes=10_000))
    yield device
    device.close()


@pytest.fixture
def on(device: Device) -> Callable[[Model], PreparedModel]:
    def prepared(model: Model) -> PreparedModel:
        outcome = prepare(model, device)
        assert outcome.prepared_model is not None, outcome.reason
        return outcome.prepared_model

    return prepared


Prepare = Callable[[Model], PreparedModel]


def role(model: int = 0, io: int = 0, probability: float = 1.0) -> BufferRole:
    return BufferRole(model, io, probability)


def allocate(
    device: Device,
    models: Sequence[PreparedModel | None],
    inputs: Sequence[BufferRole] = (),
    outputs: Sequence[BufferRole] = (),
    dimensions: Sequence[int] = (),
) -> Buffer:
    return device.allocate(BufferDesc(tuple(dimensions)), models, inputs, outputs)


def allocate_both(device: Device, model: PreparedModel, dimensions: Sequence[int] = ()) -> Buffer:
    """Return a buffer for input 0 and output 0."""
    return allocate(device, [model], [role()], [role()], dimensions)


def allocate_filled(device: Device, model: PreparedModel, dimensions: Sequence[int] = ()) -> Buffer:
    buffer = allocate_both(device, model, dimensions)
    buffer.copy_from(Memory.of(A), (2, 3))
    return buffer


def check_error(call: Callable[[], object], status: ErrorStatus, rule: str) -> str:
    with pytest.raises(HalError) as caught:
        call()
    assert (caught.value.status, caught.value.rule) == (status, rule), caught.value
    return caught.value.reason


Argument = AnyArray | Buffer | int | None


def request(
    model: PreparedModel,
    inputs: Sequence[Argument],
    outputs: Sequence[Argument] = (None,),
    shapes: Sequence[Sequence[int]] = ((), ()),
) -> Request:
    """Return a request.

    Args:
        model: the prepared model.
        inputs: arrays, buffers or tokens.
        outputs: arrays to write to, buffers, tokens, or None for a ReturnedPool.
        shapes: dimensions of the arguments.
    """
    pools: list[Memory | BufferToken | ReturnedPool] = []
    arguments = []
    for argument, shape in zip([*inputs, *outputs], [*shapes, *((),) * 9], strict=False):
        length = 0
        match argument:
            case Buffer():
                pools.append(BufferToken(argument.token))
            case int():
                pools.append(BufferToken(argument))
            case None:
                pools.append(ReturnedPool())
            case _:
                pools.append(Memory.of(argument, writable=argument.flags.writeable))
                length = argument.nbytes
        arguments.append(RequestArgument(False, DataLocation(len(pools) - 1, 0, length), tuple(shape)))
    return Request(tuple(arguments[: len(inputs)]), tuple(arguments[len(inputs) :]), tuple(pools))


def run(
    model: PreparedModel,
    inputs: Sequence[Argument],
    outputs: Sequence[Argument] = (None,),
    shapes: Sequence[Sequence[int]] = ((), ()),
) -> ExecutionResult:
    return model.execute_synchronously(request(model, inputs, outputs, shapes))


def fenced(model: PreparedModel, request: Request, *wait_for: Fence, deadline_ns: int = -1) -> FencedExecution:
    return model.execute_fenced(request, ExecutionConfig(), FencedArguments(wait_for, call=ExecutionCall(deadline_ns)))


def value_of(buffer: Buffer, shape: Sequence[int] = (2, 3)) -> AnyArray:
    return buffer.read().view(np.float32).reshape(shape)


def is_uninitialized(buffer: Buffer) -> bool:
    try:
        buffer.read()
    except HalError as error:
        assert error.status == FAILURE
        return True
    return False


# ---- Allocation -----------------------------------------------------------------------------------------


def test_tokens_are_unique_and_positive(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    buffers = [allocate_both(device, model) for _ in range(5)]
    tokens = {buffer.token for buffer in buffers}
    assert len(tokens) == 5
    assert min(tokens) > 0
    assert all(is_uninitialized(buffer) for buffer in buffers)


def test_tokens_are_random_and_skip_live_ones(device: Device, on: Prepare, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their order must not tell one client how many buffers others have allocated."""
    model = on(relu(X))
    drawn = iter([4, 4, 2**31 - 2, 0])
    monkeypatch.setattr("nnhal_driver.execution.buffer_table.secrets.randbelow", lambda limit: next(drawn))
    buffers = [allocate_both(device, model) for _ in range(3)]
    assert [buffer.token for buffer in buffers] == [5, 2**31 - 1, 1]


def test_devices_of_a_service_share_the_tokens() -> None:
    live = LiveBuffers()
    devices = [Device(name, [CpuRef()], host=DeviceHost(buffers=live)) for name in ("first", "second")]
    try:
        models = [model for device in devices if (model := prepare(relu(X), device).prepared_model) is not None]
        buffers = [allocate_both(device, model) for device, model in zip(devices, models, strict=True) for _ in "ab"]
        assert len({buffer.token for buffer in buffers}) == 4
        check_error(lambda: run(models[0], [A], [buffers[2]]), INVALID, "V-REQ-02")
        run(models[0], [A], [buffers[0]])
    finally:
        for device in devices:
            device.close()


def test_no_models_or_no_roles_are_rejected(device: Device, on: Prepare) -> None:
    check_error(lambda: allocate(device, []), INVALID, "V-ALLOC-01")
    check_error(lambda: allocate(device, [], [role()]), INVALID, "V-ALLOC-01")
    check_error(lambda: allocate(device, [on(relu(X))]), INVALID, "V-ALLOC-02")


def test_null_and_foreign_models_are_rejected(device: Device) -> None:
    check_error(lambda: allocate(device, [None], [role()]), INVALID, "V-ALLOC-01")
    other = Device("other", [CpuRef()])
    foreign = prepare(relu(X), other).prepared_model
    check_error(lambda: allocate(device, [foreign], [], [role()]), INVALID, "V-ALLOC-01")
    other.close()


@pytest.mark.parametrize(
    "bad", [role(1), role(-1), role(0, 1), role(0, -1), *(role(0, 0, p) for p in (10.0, 0.0, -0.5, float("nan")))]
)
@pytest.mark.parametrize("is_output", [False, True])
def test_invalid_roles_are_rejected(device: Device, on: Prepare, bad: BufferRole, is_output: bool) -> None:
    roles: tuple[list[BufferRole], list[BufferRole]] = ([], [bad]) if is_output else ([bad], [])
    check_error(lambda: allocate(device, [on(relu(X))], *roles), INVALID, "V-ALLOC-03")


def test_repeated_role_is_rejected(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    for models, first, second in (([model], role(), role()), ([model, model], role(0), role(1))):
        check_error(lambda m=models, a=first, b=second: allocate(device, m, [a, b]), INVALID, "V-ALLOC-04")  # type: ignore[misc]
        check_error(lambda m=models, a=first, b=second: allocate(device, m, [], [a, b]), INVALID, "V-ALLOC-04")  # type: ignore[misc]
    assert allocate(device, [model, model], [role(0)], [role(1)]).token > 0


QUANT = tensor(T.TENSOR_QUANT8_ASYMM, (2, 3), 0.5)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (X, tensor(T.TENSOR_FLOAT16, (2, 3))),
        (QUANT, replace(QUANT, scale=1.0)),
        (QUANT, replace(QUANT, zero_point=10)),
        (QUANT, replace(QUANT, type=T.TENSOR_QUANT8_ASYMM_SIGNED)),
    ],
)
def test_roles_with_different_operands_are_rejected(
    device: Device, on: Prepare, first: Operand, second: Operand
) -> None:
    models = [on(relu(first)), on(relu(second))]
    for inputs, outputs in (([0, 1], []), ([0], [1]), ([], [0, 1])):
        check_error(
            lambda i=inputs, o=outputs: allocate(device, models, list(map(role, i)), list(map(role, o))),  # type: ignore[misc]
            INVALID,
            "V-ALLOC-05",
        )


@pytest.mark.parametrize(
    ("operand", "dimensions"), [(X, (2,)), (X, (4, 3)), (OPEN, (2, 4)), (OPEN, (1, 2, 3)), (X, (2, 3, 1))]
)
def test_shape_that_contradicts_the_roles_is_rejected(
    device: Device, on: Prepare, operand: Operand, dimensions: tuple[int, ...]
) -> None:
    model = on(relu(operand))
    check_error(lambda: allocate(device, [model], [role()], [], dimensions), INVALID, "V-ALLOC-06")
    check_error(lambda: allocate(device, [model], [], [role()], dimensions), INVALID, "V-ALLOC-06")


def test_roles_with_contradictory_shapes_are_rejected(device: Device, on: Prepare) -> None:
    models = [on(relu(X)), on(relu(tensor(T.TENSOR_FLOAT32, (4, 3)))), on(relu(tensor(T.TENSOR_FLOAT32, (3,))))]
    for other in (1, 2):
        for inputs, outputs in (([0, other], []), ([0], [other]), ([], [0, other])):
            check_error(
                lambda i=inputs, o=outputs: allocate(device, models, list(map(role, i)), list(map(role, o))),  # type: ignore[misc]
                INVALID,
                "V-ALLOC-06",
            )


def test_scalar_with_dimensions_is_rejected(device: Device, on: Prepare) -> None:
    model = on(with_scalar(X))
    check_error(lambda: allocate(device, [model], [role(0, 2)], [], (1,)), INVALID, "V-ALLOC-06")
    buffer = allocate(device, [model], [role(0, 2)])
    check_error(lambda: buffer.copy_from(Memory.of(np.zeros(1, np.int32)), (1,)), INVALID, "V-TOKEN-05")
    buffer.copy_from(Memory.of(np.ones(1, np.int32)))
    result = run(model, [A - 2, A * 0, buffer])
    assert result.returned[0] is not None
    np.testing.assert_array_equal(result.returned[0].view(np.float32).reshape(2, 3), np.maximum(A - 2, 0))


def test_negative_dimension_is_rejected(device: Device, on: Prepare) -> None:
    check_error(lambda: allocate(device, [on(relu(OPEN))], [role()], [], (-2, 3)), INVALID, "V-WIRE-03")


def test_shape_is_merged_from_description_and_roles(device: Device, on: Prepare) -> None:
    models = [on(relu(OPEN)), on(relu(tensor(T.TENSOR_FLOAT32, (2, 0))))]
    assert allocate(device, models, [role(0)], [role(1)]).state.size == 24
    assert allocate(device, models[:1], [role(0)]).state.size is None
    assert allocate(device, models[:1], [role(0)], [], (2, 0)).state.size == 24
    assert allocate(device, [on(relu(ANY, OPEN))], [], [role()], (5, 3)).state.size == 60


def test_size_of_a_buffer_is_limited(device: Device, on: Prepare) -> None:
    model = on(relu(OPEN))
    for rows in (1000, 2**31 - 1):
        with pytest.raises(HalError) as caught:
            allocate(device, [model], [role()], [], (rows, 3))
        assert (caught.value.status, caught.value.limit) == (ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT, "tensor_bytes")
    deep = on(relu(ANY, ANY))
    check_error(lambda: allocate(device, [deep], [], [role()], (1,) * 1000), FAILURE, "")


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
def test_copy_from_memory_that_does_not_fit_is_rejected(
    device: Device, on: Prepare, operand: Operand, data: AnyArray, dimensions: tuple[int, ...], rule: str
) -> None:
    buffer = allocate_filled(device, on(relu(operand)))
    check_error(lambda: buffer.copy_from(Memory.of(data), dimensions), INVALID, rule)
    assert is_uninitialized(buffer)


def test_copy_with_an_unknown_dimension_names_it(device: Device, on: Prepare) -> None:
    buffer = allocate_both(device, on(relu(OPEN)))
    reason = check_error(lambda: buffer.copy_from(Memory.of(WHOLE), (0, 3)), INVALID, "V-TOKEN-05")
    assert "dimension 0 unknown" in reason


def test_copies_without_valid_memory_are_rejected(device: Device, on: Prepare) -> None:
    buffer = allocate_filled(device, on(relu(X)))
    check_error(lambda: buffer.copy_from(UnsetUnion()), INVALID, "V-WIRE-07")
    assert is_uninitialized(buffer)
    check_error(lambda: buffer.copy_from(Memory(WHOLE.view(np.uint8), 8, 24)), INVALID, "V-POOL-02")
    check_error(lambda: buffer.copy_to(UnsetUnion()), INVALID, "V-WIRE-07")


@pytest.mark.parametrize(("operand", "dimensions"), [(X, ()), (X, (2, 3)), (OPEN, (2, 3)), (ANY, (2, 3))])
def test_copies_in_and_out(device: Device, on: Prepare, operand: Operand, dimensions: tuple[int, ...]) -> None:
    buffer = allocate_both(device, on(relu(operand)))
    source = A.copy()
    buffer.copy_from(Memory.of(source), dimensions)
    source[:] = 0
    target = np.empty_like(A)
    buffer.copy_to(Memory.of(target, writable=True))
    np.testing.assert_array_equal(target, A)
    for wrong in (HALF, DOUBLE):
        check_error(lambda o=wrong: buffer.copy_to(Memory.of(o.copy(), writable=True)), INVALID, "V-TOKEN-05")  # type: ignore[misc]
    check_error(lambda: buffer.copy_to(Memory.of(target)), INVALID, "")
    np.testing.assert_array_equal(value_of(buffer), A)


def test_copy_of_an_uninitialized_buffer_is_rejected(device: Device, on: Prepare) -> None:
    whole = Memory.of(np.empty_like(A), writable=True)
    for operand in (X, OPEN):
        check_error(lambda o=operand: allocate_both(device, on(relu(o))).copy_to(whole), FAILURE, "V-TOKEN-05")  # type: ignore[misc]
    half = Memory.of(HALF.copy(), writable=True)
    check_error(lambda: allocate_both(device, on(relu(X))).copy_to(half), INVALID, "V-TOKEN-05")


def test_shape_may_change_with_each_value(device: Device, on: Prepare) -> None:
    buffer = allocate_both(device, model := on(relu(OPEN)))
    for rows in (2, 5, 1):
        data = np.full((rows, 3), rows, np.float32)
        buffer.copy_from(Memory.of(data), (rows, 3))
        result = run(model, [buffer], shapes=[(rows, 3)])
        assert result.output_shapes[0].dimensions == (rows, 3)
        check_error(lambda n=rows: run(model, [buffer], shapes=[(n + 1, 3)]), INVALID, "V-TOKEN-04")  # type: ignore[misc]


# ---- Use in requests ------------------------------------------------------------------------------------


def test_unknown_tokens_are_rejected(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    freed = allocate_filled(device, model)
    token = freed.token
    del freed
    for bad, rule in ((0, "V-POOL-05"), (-1, "V-POOL-05"), (2**30, "V-REQ-02"), (token, "V-REQ-02")):
        check_error(lambda b=bad: run(model, [b]), INVALID, rule)  # type: ignore[misc]
        check_error(lambda b=bad: run(model, [A], [b]), INVALID, rule)  # type: ignore[misc]


def test_buffer_of_another_model_is_reported_like_an_unknown_one(device: Device, on: Prepare) -> None:
    owner, other = on(relu(X)), on(relu(X))
    buffer = allocate_filled(device, owner)
    unknown = 2**30
    uses: tuple[Callable[[int], object], ...] = (
        lambda token: run(other, [token]),
        lambda token: run(other, [A], [token]),
    )
    for use in uses:
        foreign, missing = (check_error(partial(use, token), INVALID, "V-REQ-02") for token in (buffer.token, unknown))
        assert foreign.replace(str(buffer.token), "N") == missing.replace(str(unknown), "N")
    np.testing.assert_array_equal(value_of(buffer), A)


def test_use_without_a_role_is_rejected(device: Device, on: Prepare) -> None:
    model = on(two_relus(X))
    reader = allocate(device, [model], [role(0, 0)])
    reader.copy_from(Memory.of(A))
    writer = allocate(device, [model], [], [role(0, 0)])
    writer.copy_from(Memory.of(A))
    check_error(lambda: run(model, [A, reader], [None, None]), INVALID, "V-TOKEN-01")
    check_error(lambda: run(model, [A, A], [None, reader]), INVALID, "V-TOKEN-01")
    check_error(lambda: run(model, [A, A], [reader, None]), INVALID, "V-TOKEN-01")
    check_error(lambda: run(model, [writer, A], [None, None]), INVALID, "V-TOKEN-01")
    run(model, [reader, A], [writer, None])


def test_one_buffer_in_several_roles(device: Device, on: Prepare) -> None:
    model = on(two_relus(X))
    roles = [role(0, 0), role(0, 1)]
    buffer = allocate(device, [model], roles, roles)
    buffer.copy_from(Memory.of(A))
    check_error(lambda: run(model, [buffer, A], [buffer, None]), INVALID, "V-TOKEN-03")
    check_error(lambda: run(model, [A, A], [buffer, buffer]), INVALID, "V-TOKEN-03")
    buffer.copy_from(Memory.of(A))
    result = run(model, [buffer, buffer], [None, None])
    assert [data.tobytes() for data in result.returned if data is not None] == [A.tobytes()] * 2


def test_one_buffer_for_two_outputs_is_rejected(device: Device, on: Prepare) -> None:
    model = on(two_relus(X))
    buffer = allocate(device, [model], [], [role(0, 0), role(0, 1)])
    plain = request(model, [A, A], [buffer, None])
    shared = replace(plain, outputs=(plain.outputs[0], plain.outputs[0]))
    check_error(lambda: model.execute_synchronously(shared), INVALID, "V-TOKEN-03")


def test_region_of_a_buffer_is_rejected(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    buffer = allocate_filled(device, model)
    plain = request(model, [buffer])
    for location in (DataLocation(0, 4), DataLocation(0, 0, 24), DataLocation(0, 0, 0, 8)):
        bad = replace(plain, inputs=(RequestArgument(False, location),))
        check_error(lambda r=bad: model.execute_synchronously(r), INVALID, "V-REQARG-04")  # type: ignore[misc]


def test_uninitialized_inputs_are_rejected(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    buffer = allocate_both(device, model)
    check_error(lambda: run(model, [buffer]), FAILURE, "V-TOKEN-02")
    result = run(model, [A], [buffer])
    assert result.output_sufficient_size
    assert result.returned == ()
    np.testing.assert_array_equal(value_of(buffer), A)
    assert run(model, [buffer]).output_sufficient_size


def test_shapes_that_contradict_the_buffer_are_rejected(device: Device, on: Prepare) -> None:
    model = on(relu(OPEN))
    large = np.ones((4, 3), np.float32)
    buffer = allocate_filled(device, model, (2, 3))
    out = np.empty_like(large)
    check_error(lambda: run(model, [buffer], [out], [(4, 3), (4, 3)]), INVALID, "V-TOKEN-04")
    check_error(lambda: run(model, [large], [buffer], [(4, 3), (4, 3)]), INVALID, "V-TOKEN-04")
    assert is_uninitialized(buffer)
    check_error(lambda: run(model, [large], [buffer], [(4, 3), ()]), FAILURE, "V-TOKEN-06")
    assert is_uninitialized(buffer)


def test_input_shape_must_be_that_of_the_value(device: Device, on: Prepare) -> None:
    model = on(relu(OPEN))
    buffer = allocate_filled(device, model)
    check_error(lambda: run(model, [buffer], shapes=[(3, 3)]), INVALID, "V-TOKEN-04")
    check_error(lambda: run(model, [buffer]), INVALID, "V-REQMODEL-03")


def test_buffer_takes_the_shape_of_an_output(device: Device, on: Prepare) -> None:
    model = on(relu(OPEN))
    buffer = allocate_both(device, model)
    for rows in (2, 5, 1):
        data = np.full((rows, 3), rows, np.float32)
        result = run(model, [data], [buffer], [(rows, 3)])
        assert result.output_shapes[0].dimensions == (rows, 3)
        np.testing.assert_array_equal(value_of(buffer, (rows, 3)), data)


def test_buffer_passes_a_value_between_models(device: Device, on: Prepare) -> None:
    first, second = on(add(X)), on(relu(X))
    between = allocate(device, [first, second], [role(1)], [role(0)])
    run(first, [A - 3, A], [between])
    value = between.state.value
    result = run(second, [between])
    assert result.returned[0] is not None
    np.testing.assert_array_equal(result.returned[0].view(np.float32).reshape(2, 3), np.maximum(2 * A - 3, 0))
    assert between.state.value is value


def test_output_is_kept_or_copied(device: Device, on: Prepare) -> None:
    state = allocate_both(device, on(relu(X))).state
    for array, keep, shared in ((A.copy(), True, True), (A.copy(), False, False), (np.append(A, A)[:6], True, False)):
        output = BufferOutput(OutputShape((2, 3)), state)
        output.write(array.reshape(2, 3) if array.ndim == 1 else array, keep=keep)
        assert isinstance(output.data, np.ndarray) and np.shares_memory(output.data, array) == shared
        output.commit()
        assert state.value is not None
        assert state.value.read().tobytes() == A.tobytes()


def test_read_returns_a_copy(device: Device, on: Prepare) -> None:
    buffer = allocate_filled(device, on(relu(X)))
    value_of(buffer)[:] = 0
    np.testing.assert_array_equal(value_of(buffer), A)


def test_any_byte_but_zero_is_true(device: Device, on: Prepare) -> None:
    flags = tensor(T.TENSOR_BOOL8, (4,))
    model = on(model_of(Op.LOGICAL_NOT, [(flags, 0)], [flags], constants=False))
    buffer = allocate_both(device, model)
    buffer.copy_from(Memory.of(np.array([0, 1, 7, 255], np.uint8)))
    result = run(model, [buffer])
    assert result.returned[0] is not None
    assert result.returned[0].tolist() == [1, 0, 0, 0]


# ---- Failures -----------------------------------------------------------------------------------------


def fail(kind: str, model: PreparedModel, buffer: Buffer) -> None:
    plain = request(model, [A, A], [buffer, None])
    cancelled = Cancellation()
    cancelled.cancel()
    with pytest.raises(HalError):
        match kind:
            case "late":
                model.execute_synchronously(plain, call=ExecutionCall(1))
            case "cancelled":
                model.execute_synchronously(plain, call=ExecutionCall(cancellation=cancelled))
            case "fenced, late":
                plain = request(model, [A, A], [buffer, np.empty_like(A)])
                fenced(model, plain, deadline_ns=1)
            case "fence in error":
                plain = request(model, [A, A], [buffer, np.empty_like(A)])
                before = Fence()
                execution = fenced(model, plain, before)
                before.signal(error=True)
                assert execution.fence.state == FenceState.ERROR
                raise general_failure("as expected")


@pytest.mark.parametrize("kind", ["late", "cancelled", "fenced, late", "fence in error"])
def test_failed_execution_leaves_its_outputs_uninitialized(device: Device, on: Prepare, kind: str) -> None:
    model = on(two_relus(X))
    buffer = allocate(device, [model], [], [role()])
    buffer.copy_from(Memory.of(A))
    fail(kind, model, buffer)
    assert is_uninitialized(buffer)


def test_too_small_region_of_another_output_clears_the_buffer(device: Device, on: Prepare) -> None:
    model = on(two_relus(OPEN))
    buffer = allocate(device, [model], [], [role()])
    buffer.copy_from(Memory.of(A), (2, 3))
    small = np.empty((1, 3), np.float32)
    result = run(model, [A, A], [buffer, small], [(2, 3), (2, 3)])
    assert not result.output_sufficient_size
    assert is_uninitialized(buffer)


def test_refused_launch_leaves_its_outputs_uninitialized(device: Device, on: Prepare) -> None:
    model = on(two_relus(X))
    buffer, other = (allocate(device, [model], [], [role(), role(io=1)]) for _ in "ab")
    fence = Fence()
    fence.signal(error=True)
    valid = request(model, [A, A], [buffer, np.empty_like(A)])
    burst, reusable = (
        Burst(model, 9),
        ReusableExecution(model, request(model, [A, A], [buffer, None]), ExecutionConfig()),
    )
    hints = ExecutionConfig(loop_timeout_duration_ns=-2)
    calls: list[Callable[[], object]] = [
        lambda: run(model, [A, A], [buffer, 2**30]),
        lambda: run(model, [A], [buffer, None]),
        lambda: run(model, [A, A], [buffer, buffer]),
        lambda: run(model, [A, A], [buffer, A[:1]]),
        lambda: model.execute_synchronously(valid, hints),
        lambda: model.execute_synchronously(valid, call=ExecutionCall(-2)),
        lambda: model.execute_fenced(request(model, [A, A], [buffer, None])),
        lambda: fenced(model, valid, fence),
        lambda: fenced(model, valid, deadline_ns=-2),
        lambda: burst.execute_synchronously(valid, [1]),
        lambda: burst.execute_synchronously(valid, [-1, -1, -1, -2]),
        lambda: reusable.execute_synchronously(ExecutionCall(-2)),
        lambda: reusable.execute_fenced(FencedArguments()),
    ]
    for number, call in enumerate(calls):
        for each in (buffer, other):
            each.copy_from(Memory.of(A))
        with pytest.raises(HalError) as caught:
            call()
        assert caught.value.status == INVALID
        assert is_uninitialized(buffer), number
        np.testing.assert_array_equal(value_of(other), A)


def test_request_that_is_not_executed_changes_no_buffer(device: Device, on: Prepare) -> None:
    model = on(two_relus(X))
    buffer = allocate(device, [model], [role()], [role()])
    buffer.copy_from(Memory.of(A))
    invalid = request(model, [A, A], [buffer, 2**30])
    check_error(lambda: ReusableExecution(model, invalid, ExecutionConfig()), INVALID, "V-REQ-02")
    check_error(lambda: run(model, [buffer, A], [None, 2**30]), INVALID, "V-REQ-02")
    foreign = on(two_relus(X))
    check_error(lambda: run(foreign, [A, A], [buffer, None]), INVALID, "V-REQ-02")
    broken = replace(invalid, outputs=tuple(RequestArgument(False, DataLocation(index)) for index in (-1, 99)))
    check_error(lambda: model.execute_synchronously(broken), INVALID, "V-REQARG-01")
    np.testing.assert_array_equal(value_of(buffer), A)


# ---- Fenced and reusable executions ---------------------------------------------------------------------


def final_state(fence: Fence) -> FenceState:
    done = threading.Event()
    fence.add_listener(lambda _: done.set())
    assert done.wait(60)
    return fence.state


def test_chain_of_fenced_executions(device: Device, on: Prepare) -> None:
    first, second = on(add(X)), on(relu(X))
    between = allocate(device, [first, second], [role(1)], [role(0)])
    before = Fence()
    producer = fenced(first, request(first, [A - 3, A], [between]), before)
    out = np.empty_like(A)
    consumer = fenced(second, request(second, [between], [out]), producer.fence)
    assert is_uninitialized(between)
    del between
    before.signal()
    assert final_state(consumer.fence) == FenceState.SIGNALED, consumer.info()
    np.testing.assert_array_equal(out, np.maximum(2 * A - 3, 0))


def test_fenced_execution_with_an_uninitialized_input_fails(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    buffer = allocate_both(device, model)
    execution = fenced(model, request(model, [buffer], [np.empty_like(A)]))
    assert final_state(execution.fence) == FenceState.ERROR
    assert execution.info().status == FAILURE


def test_reusable_execution_reads_current_values_and_keeps_its_buffers(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    buffer = allocate_filled(device, model)
    out = np.empty_like(A)
    execution = ReusableExecution(model, request(model, [buffer], [out]), ExecutionConfig())
    for factor in (1, 2):
        buffer.copy_from(Memory.of(factor * A))
        execution.execute_synchronously()
        np.testing.assert_array_equal(out, factor * A)
    del buffer
    for execute_again in (
        execution.execute_synchronously,
        lambda: final_state(execution.execute_fenced(FencedArguments()).fence),
    ):
        out[:] = 0
        execute_again()
        np.testing.assert_array_equal(out, 2 * A)
    check_error(
        lambda: ReusableExecution(model, request(model, [2**30], [out]), ExecutionConfig()), INVALID, "V-REQ-02"
    )


def test_buffers_of_a_freed_reusable_execution_are_freed(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    buffer = allocate_filled(device, model)
    execution = ReusableExecution(model, request(model, [buffer], [np.empty_like(A)]), ExecutionConfig())
    assert final_state(execution.execute_fenced(FencedArguments()).fence) == FenceState.SIGNALED
    state = weakref.ref(buffer.state)
    del buffer, execution
    gc.collect()
    assert state() is None


# ---- Lifetimes ------------------------------------------------------------------------------------------


def test_buffer_keeps_no_model_alive(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    other = on(relu(X))
    buffer = allocate(device, [model, other], [role(0), role(1)])
    buffer.copy_from(Memory.of(A))
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None
    np.testing.assert_array_equal(value_of(buffer), A)
    assert run(other, [buffer]).output_sufficient_size


class Account:
    """Memory account like that of the service."""

    def __init__(self, room: int = 10**9) -> None:
        self.used = 0
        self.room = room

    def reserve(self, size: int) -> object:
        if self.used + size > self.room:
            raise HalError(ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, "no room")
        self.used += size
        reservation = np.empty(0)
        weakref.finalize(reservation, self._release, size)
        return reservation

    def _release(self, size: int) -> None:
        self.used -= size


def test_known_size_is_reserved_by_the_allocation(device: Device, on: Prepare) -> None:
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


def test_unknown_size_is_reserved_with_each_value(device: Device, on: Prepare) -> None:
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
        assert is_uninitialized(buffer)
        assert account.used == 0
    buffer.copy_from(Memory.of(A), (2, 3))
    del buffer
    assert account.used == 0


# ---- Concurrency -----------------------------------------------------------------------------------


def test_concurrent_readers_never_see_half_a_value(device: Device, on: Prepare) -> None:
    wide = tensor(T.TENSOR_FLOAT32, (2000,))
    model = on(add(wide))
    buffer = allocate(device, [model], [role(0, 0), role(0, 1)], [role()])
    values = [np.full(2000, n, np.float32) for n in range(4)]
    zero = np.zeros(2000, np.float32)
    buffer.copy_from(Memory.of(values[0]))
    torn: list[AnyArray] = []
    failed: list[Exception] = []

    def start_loop(work: Callable[[], object]) -> threading.Thread:
        def loop() -> None:
            try:
                for _ in range(500):
                    work()
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=loop)
        thread.start()
        return thread

    def check_value(data: AnyArray) -> None:
        if (value := data.view(np.float32)).min() != value.max():
            torn.append(value)

    def execute_from() -> None:
        result = run(model, [buffer, buffer])
        assert result.returned[0] is not None
        check_value(result.returned[0])

    threads = [
        start_loop(lambda: buffer.copy_from(Memory.of(values[1]))),
        start_loop(lambda: run(model, [values[2], zero], [buffer])),
        start_loop(lambda: check_value(buffer.read())),
        start_loop(execute_from),
    ]
    for thread in threads:
        thread.join()
    assert not failed, failed
    assert not torn


def test_buffer_freed_during_an_execution(device: Device, on: Prepare) -> None:
    model = on(relu(X))
    buffer = allocate_filled(device, model)
    token = buffer.token
    valid = model.validate(request(model, [buffer]), ExecutionConfig())
    del buffer
    check_error(lambda: run(model, [token]), INVALID, "V-REQ-02")
    result = model.execute_valid(valid, ExecutionConfig(), ExecutionCall())
    assert result.returned[0] is not None
    np.testing.assert_array_equal(result.returned[0].view(np.float32).reshape(2, 3), A)


def test_models_without_buffers_still_run(device: Device) -> None:
    np.testing.assert_array_equal(execute(prepare(relu(X), device), [A])[1][0], A)
