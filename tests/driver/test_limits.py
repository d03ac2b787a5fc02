"""Limits of the device: valid models and requests that it rejects."""

import queue
from dataclasses import replace

import numpy as np
import pytest

from nnhal.errors import HalError
from nnhal.operations import SIGNATURES
from nnhal.types import (
    DataLocation,
    ErrorKind,
    ErrorStatus,
    Memory,
    Model,
    OperandLifeTime,
    Operation,
    Subgraph,
)
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.wire import to_model
from nnhal_driver.backends import registry
from nnhal_driver.backends.per_operation import PerOperationBackend
from nnhal_driver.backends.reference.backend import CpuRef
from nnhal_driver.compilation.placement import MAX_NESTING
from nnhal_driver.device import Device
from nnhal_driver.device_options import DeviceOptions
from nnhal_driver.graph import build_graphs, subgraph_view, used_outside
from nnhal_driver.operations.call import OperationCall
from nnhal_driver.operations.layers.quantized_lstm import state_exponent
from nnhal_driver.preparation.outcome import Outcome
from nnhal_driver.validation.rank import MAX_RANK
from tests.driver.fake_backend import device_of
from tests.driver.launches import launch_preparation
from tests.driver.one_operation import (
    Value,
    boolean,
    device,
    execute,
    float32,
    float_tensor,
    int32,
    int_tensor,
    model_of,
    prepare,
    run,
    tensor,
)
from tests.driver.scheduling.preparations import block
from tests.end_to_end.support.raw_client import add_chain
from tests.end_to_end.support.valid_requests import branches

F32 = T.TENSOR_FLOAT32
ONES: Value = tensor(F32, (2,)), np.ones(2, np.float32)
ADD = model_of(Op.ADD, [ONES, ONES, int32(0)], [tensor(F32)], constants=False)


def rejection(call: object) -> HalError:
    with pytest.raises(HalError) as caught:
        call()  # type: ignore[operator]
    return caught.value


@pytest.fixture(scope="module")
def small() -> Device:
    """Return a device that limits tensors to 1000 bytes."""
    return Device("small", registry.create(["CpuRef"]), DeviceOptions(tensor_bytes=1000))


# ---- Size and rank --------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [250, 251])
def test_size_of_a_tensor(small: Device, length: int) -> None:
    outcome = prepare(model_of(Op.FILL, [int_tensor([length]), float32(1)], [tensor(F32)]), small)
    if length == 250:
        assert execute(outcome, [])[1][0].shape == (250,)
        return
    error = rejection(lambda: execute(outcome, []))
    assert (error.status, error.kind) == (ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT, ErrorKind.LIMIT)
    assert error.limit == "tensor_bytes"
    assert "operation 0 of main (FILL): output 0 has shape [251], 1004 bytes; at most 1000" in error.reason


def test_size_of_a_tensor_fits_32_bits() -> None:
    """The HAL's limit applies to devices without a limit of their own."""
    error = rejection(lambda: run(Op.FILL, [int_tensor([2**30]), float32(1)], [tensor(F32)]))
    assert (error.status, error.rule) == (ErrorStatus.GENERAL_FAILURE, "V-RUN-06")


@pytest.mark.parametrize("rank", [MAX_RANK, MAX_RANK + 1, 65])
@pytest.mark.parametrize("role", ["constant", "input", "output"])
def test_rank_is_limited(rank: int, role: str) -> None:
    shape = (1,) * rank

    def work() -> object:
        if role == "output":
            return run(Op.RESHAPE, [float_tensor([1.0]), int_tensor(list(shape))], [tensor(F32)])
        model = model_of(Op.ABS, [(tensor(F32, shape), np.ones(1))], [tensor(F32)], constants=role == "constant")
        outcome = prepare(model)
        if outcome.prepared_model is None:
            raise HalError(outcome.status, outcome.reason)
        return execute(outcome, [] if role == "constant" else [np.ones(1, np.float32)])

    if rank == MAX_RANK:
        assert work()
    else:
        error = rejection(work)
        assert error.status == ErrorStatus.GENERAL_FAILURE
        is_counted = role == "output" and rank > 2 * MAX_RANK
        expected = f"shape has {rank} elements; " if is_counted else f"has rank {rank}; "
        assert f"{expected}this device takes at most" in error.reason


IMAGE: Value = float_tensor(np.ones((1, 2, 2, 1)))
MANY = int_tensor([0] * (2 * MAX_RANK + 1))
PAIRS = int_tensor([[0, 0]] * (MAX_RANK + 1))
SHAPE_ARGUMENTS: list[tuple[Op, str, list[Value]]] = [
    *((type_, "axes", [float_tensor([1.0]), MANY, boolean(True)]) for type_ in (Op.REDUCE_SUM, Op.REDUCE_PROD)),
    *((type_, "axes", [float_tensor([1.0]), MANY, boolean(True)]) for type_ in (Op.REDUCE_MAX, Op.REDUCE_MIN)),
    *(
        (type_, "axes", [(tensor(T.TENSOR_BOOL8, (1,)), [True]), MANY, boolean(True)])
        for type_ in (Op.REDUCE_ALL, Op.REDUCE_ANY)
    ),
    (Op.MEAN, "axes", [float_tensor([1.0]), MANY, int32(0)]),
    (Op.SQUEEZE, "axes", [float_tensor([1.0]), MANY]),
    (Op.TRANSPOSE, "perm", [float_tensor([1.0]), MANY]),
    (Op.RESHAPE, "shape", [float_tensor([1.0]), MANY]),
    (Op.TILE, "multiples", [float_tensor([1.0]), MANY]),
    (Op.FILL, "dims", [MANY, float32(1)]),
    (Op.PAD, "paddings", [float_tensor([1.0]), PAIRS]),
    (Op.PAD_V2, "paddings", [float_tensor([1.0]), PAIRS, float32(0)]),
    (Op.MIRROR_PAD, "paddings", [(tensor(F32, (1,) * (MAX_RANK + 1)), [1.0]), PAIRS, int32(0)]),
    (Op.SLICE, "begin", [float_tensor([1.0]), MANY, int_tensor([1])]),
    (Op.SLICE, "size", [float_tensor([1.0]), int_tensor([0]), MANY]),
    *(
        (
            Op.STRIDED_SLICE,
            name,
            [float_tensor([1.0]), *(MANY if n == name else int_tensor([1]) for n in ("begin", "end", "strides"))]
            + [int32(0)] * 3,
        )
        for name in ("begin", "end", "strides")
    ),
    (Op.BATCH_TO_SPACE_ND, "block_size", [IMAGE, MANY]),
    (Op.SPACE_TO_BATCH_ND, "block_size", [IMAGE, MANY, int_tensor([[0, 0]] * 2)]),
    (Op.SPACE_TO_BATCH_ND, "paddings", [IMAGE, int_tensor([1, 1]), PAIRS]),
    (
        Op.TRANSPOSE_CONV_2D,
        "output_shape",
        [IMAGE, IMAGE, float_tensor([0.0]), MANY, *[int32(1)] * 3, int32(0), boolean(False)],
    ),
]


@pytest.mark.parametrize(("type_", "name", "inputs"), SHAPE_ARGUMENTS)
def test_values_that_describe_dimensions_are_counted_before_they_are_read(
    type_: Op, name: str, inputs: list[Value]
) -> None:
    def reserve(size: int) -> None:
        raise AssertionError("the constants are read only after memory for them was reserved")

    model = model_of(type_, inputs, [tensor(F32 if type_ == Op.FILL else T(inputs[0][0].type))])
    error = rejection(lambda: launch_preparation(device(), model, lambda _: None, reserve=reserve))
    assert error.status == ErrorStatus.GENERAL_FAILURE
    assert f"({type_.name}): {name} has " in error.reason
    assert error.reason.endswith(f"elements; this device takes at most {2 * MAX_RANK}")


def test_all_values_that_describe_dimensions_are_known() -> None:
    """Another TENSOR_INT32 is data of any size. The axis of REVERSE has one element (V-OPERATION-04)."""
    fixed = {
        (type_, argument.name)
        for type_, signature in SIGNATURES.items()
        for form in signature.inputs
        for argument in form.required
        if argument.type == T.TENSOR_INT32
    }
    data = {"indices", "lookups", "keys", "seeds", "batches", "batch_index", "batch_split", "rois_batch"}
    assert {(type_, name) for type_, name in fixed if name not in data} == {
        (Op.REVERSE, "axis"),
        *(case[:2] for case in SHAPE_ARGUMENTS),
    }


@pytest.mark.parametrize("size", [2**20, 2**20 + 1])
def test_size_of_pooling_filters_is_limited(size: int) -> None:
    def work() -> object:
        arguments = [float_tensor(np.ones((1, 1, 1, 1))), *map(int32, (1, 1, 1, 1, size, 0))]
        return run(Op.MAX_POOL_2D, arguments, [tensor(F32)])

    if size > 2**20:
        assert "filter_height is 1048577; this device takes at most 1048576" in rejection(work).reason
    else:
        assert work()


def test_sampling_ratio_of_regions_is_limited() -> None:
    def work(ratio: int) -> object:
        boxes = float_tensor([[0, 0, 1, 1]]), int_tensor([0])
        numbers = [*map(int32, (1, 1)), *map(float32, (1, 1)), *map(int32, (ratio, ratio)), boolean(False)]
        return run(Op.ROI_ALIGN, [float_tensor(np.ones((1, 2, 2, 1))), *boxes, *numbers], [tensor(F32)])

    assert work(256)
    assert "height_sampling_ratio is 257; this device takes at most 256" in rejection(lambda: work(257)).reason


def test_more_rows_than_a_half_float_can_count() -> None:
    half = T.TENSOR_FLOAT16
    arguments = [
        (tensor(half, (1, 2, 2, 1)), np.ones((1, 2, 2, 1))),
        (tensor(half, (1, 4)), [[0, 0, 1, 1]]),
        int_tensor([0]),
        *map(int32, (70_000, 1)),
        *((tensor(T.FLOAT16), 1.0),) * 2,
        boolean(False),
    ]
    (out,) = run(Op.ROI_POOLING, arguments, [tensor(half)])
    assert out.shape == (1, 70_000, 1, 1)


@pytest.mark.parametrize(
    ("operation", "numbers"),
    [
        (Op.CONV_2D, [1, 2**31 - 1, 2**31 - 1, 0]),
        (Op.TRANSPOSE_CONV_2D, [2**31 - 2, 0, 2**31 - 2, 0, 2**31 - 1, 2**31 - 1, 0]),
    ],
)
def test_size_of_dilated_images_is_limited(operation: Op, numbers: list[int]) -> None:
    size = (1, 2, 2, 1)
    side = (2, 2) if operation == Op.CONV_2D else (1, 1)
    tail = [boolean(False)] + (list(map(int32, (2**31 - 1, 2**31 - 1))) if operation == Op.CONV_2D else [])
    filter_ = float_tensor(np.ones((1, *side, 1)))
    arguments = [float_tensor(np.ones(size)), filter_, float_tensor([0.0]), *map(int32, numbers), *tail]
    error = rejection(lambda: run(operation, arguments, [tensor(F32)]))
    assert error.status == ErrorStatus.GENERAL_FAILURE
    assert "this device takes at most 4294967296" in error.reason


# ---- Scales ---------------------------------------------------------------------------------------------


def quantized(scale: float, *shape: int) -> Value:
    return tensor(T.TENSOR_QUANT8_ASYMM, shape, scale), np.ones(shape)


@pytest.mark.parametrize(
    ("operation", "inputs", "output"),
    [
        (Op.LOGISTIC, [quantized(np.inf, 2)], tensor(T.TENSOR_QUANT8_ASYMM, (2,), 1 / 256)),
        (Op.HARD_SWISH, [quantized(1e38, 2)], tensor(T.TENSOR_QUANT8_ASYMM, (2,), 3e38)),
        (Op.PRELU, [quantized(np.inf, 2), quantized(1, 2)], tensor(T.TENSOR_QUANT8_ASYMM, (2,), np.inf)),
        (
            Op.CONV_2D,
            [
                quantized(1e38, 1, 1, 1, 1),
                (tensor(T.TENSOR_QUANT8_SYMM_PER_CHANNEL, (1, 1, 1, 1), channels=(1e38,)), np.ones((1, 1, 1, 1))),
                int_tensor([0]),
                *map(int32, (1, 1, 1, 0)),
            ],
            tensor(T.TENSOR_QUANT8_ASYMM, (1, 1, 1, 1), 1.0),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Op) else "",
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_scales_without_a_finite_multiplier_are_rejected(operation: Op, inputs: list[Value], output: object) -> None:
    error = rejection(lambda: run(operation, inputs, [output]))  # type: ignore[list-item]
    assert error.status == ErrorStatus.GENERAL_FAILURE
    assert f"operation 0 of main ({operation.name}): the scales give the multiplier" in error.reason


def test_infinite_scale_of_a_cell_state_is_rejected() -> None:
    view = build_graphs(model_of(Op.RELU, [quantized(np.inf, 2)], [tensor(T.TENSOR_QUANT8_ASYMM, (2,), np.inf)]))[
        0
    ].operations[0]
    error = rejection(lambda: state_exponent(OperationCall(view, [None, None], {}), "input"))
    assert "input has scale inf; it must be finite" in error.reason


# ---- Memory ---------------------------------------------------------------------------------------------


class OutOfMemory(CpuRef):
    """Backend that always runs out of memory."""

    id = "OutOfMemory"
    when = "run"

    def compile(self, *arguments: object) -> object:  # type: ignore[override]
        if self.when == "compile":
            raise MemoryError("Unable to allocate 7 GiB")
        return PerOperationBackend.compile(self, *arguments)  # type: ignore[arg-type]

    def workload(self, operation: object) -> object:  # type: ignore[override]
        def work(call: object) -> None:
            raise MemoryError("Unable to allocate 7 GiB")

        return work


@pytest.mark.parametrize("when", ["run", "compile"])
def test_out_of_memory_is_reported(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OutOfMemory, "when", when)
    device = Device("out of memory", [OutOfMemory()])
    outcome = prepare(ADD, device)
    if when == "compile":
        assert outcome.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
        assert outcome.reason == "not enough memory for the preparation: Unable to allocate 7 GiB"
    else:
        error = rejection(lambda: execute(outcome, [np.ones(2, np.float32)] * 2))
        assert error.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
        assert error.reason == "not enough memory for the execution: Unable to allocate 7 GiB"
    device.close()


def test_writable_memory_is_copied() -> None:
    """Otherwise its owner could change values that have been checked."""
    weights = np.ones(2, np.float32)
    (operand, *others) = model_of(Op.ADD, [ONES, ONES, int32(0)], [tensor(F32)], constants=False).main.operands
    pooled = replace(operand, lifetime=OperandLifeTime.CONSTANT_POOL, location=DataLocation(0, 0, 8))
    model = replace(
        ADD, main=replace(ADD.main, operands=(pooled, *others), input_indexes=(1,)), pools=(Memory.of(weights),)
    )
    with device_of(CpuRef()) as device:
        outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        blockers = [block(device._scheduler) for _ in range(2)]
        launch_preparation(device, model, outcomes.put)
        weights[:] = 100  # the preparation is launched, but it still waits for a thread
        for blocker in blockers:
            blocker.go.set()
        outcome = outcomes.get(timeout=60)
    np.testing.assert_array_equal(execute(outcome, [np.ones(2, np.float32)])[1][0], [2, 2])

    constants = np.ones(2, np.float32)
    constants.flags.writeable = False
    graph = build_graphs(replace(model, pools=(Memory.of(constants),)))[0]
    assert np.shares_memory(graph.constants[0], constants), "read-only memory is not copied"


# ---- Nesting and subgraphs --------------------------------------------------------------------------------------


def test_nesting_is_limited() -> None:
    assert prepare(to_model(branches(MAX_NESTING - 1))).status == ErrorStatus.NONE
    outcome = prepare(to_model(branches(MAX_NESTING)))
    assert outcome.status == ErrorStatus.GENERAL_FAILURE
    assert "nested more than 64 deep" in outcome.reason


def test_views_know_the_operands_used_outside() -> None:
    graph = build_graphs(to_model(add_chain(4)))[0]
    outputs = [operation.outputs[0] for operation in graph.subgraph.operations]
    assert used_outside(graph, graph.operations[1:3]) == {outputs[2]}
    assert used_outside(graph, graph.operations) == set()
    view = subgraph_view(graph, [1, 2], relaxed=False)
    assert (view.inputs, view.outputs) == ((outputs[0],), (outputs[2],))
    assert subgraph_view(graph, [3], relaxed=False).outputs == (outputs[3],)


def test_operand_that_an_operation_reads_twice_is_not_used_outside() -> None:
    first, second = Operation(Op.ADD, (0, 0, 1), (2,)), Operation(Op.ADD, (2, 2, 1), (3,))
    base = model_of(Op.ADD, [ONES, int32(0)], [tensor(F32), tensor(F32)], constants=False).main
    operands = list(base.operands)
    operands[2] = replace(operands[2], lifetime=OperandLifeTime.TEMPORARY_VARIABLE)
    model = Model(Subgraph(tuple(operands), (first, second), (0,), (3,)), operand_values=bytes(4))
    graph = build_graphs(model)[0]
    assert used_outside(graph, graph.operations) == set()
    assert used_outside(graph, graph.operations[:1]) == {2}
    np.testing.assert_array_equal(execute(prepare(model), [np.ones(2, np.float32)])[1][0], [4, 4])
