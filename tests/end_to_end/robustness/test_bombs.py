"""Small requests that need huge amounts of memory or time: each fails with a reason, and the service stays usable.

`attacked_service` limits the address space of the service. Requests that only take long are legal, for example a large
convolution without a deadline: the client may wait for it, and it occupies one admission slot meanwhile.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from nnhal.types import AnyArray, ErrorKind, ErrorStatus, Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import memory_pb2, prepared_model_pb2, types_pb2
from nnhal.wire import model_message
from tests.driver.one_operation import Value, boolean, float32, int32, int_tensor, model_of, tensor
from tests.end_to_end.support.allowed_outcomes import WATCHDOG_S, CallResult, check_call
from tests.end_to_end.support.attacked_service import ADDRESS_SPACE, attacked_service
from tests.end_to_end.support.raw_client import prepare_request
from tests.end_to_end.support.rpc_methods import METHODS
from tests.end_to_end.support.service_process import Service
from tests.end_to_end.support.valid_requests import Stage, inline_request, loop

F32 = T.TENSOR_FLOAT32
LARGE = 2**31 - 1
EXHAUSTED = (ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with attacked_service(tmp_path_factory.mktemp("attacked")) as running:
        yield running


@pytest.fixture
def stage(service: Service) -> Iterator[Stage]:
    opened = Stage(service.target)
    yield opened
    opened.close()


def floats(*shape: int) -> Value:
    """Return a small constant of ones."""
    return tensor(F32, shape), np.ones(shape)


def run(stage: Stage, model: Model, inputs: Sequence[AnyArray] = ()) -> CallResult:
    """Prepare a model and execute it."""
    return run_message(stage, model_message(model), inputs)


def run_message(stage: Stage, model: types_pb2.Model, inputs: Sequence[AnyArray]) -> CallResult:
    prepare = prepare_request(stage.raw, model)
    prepared = check_call(
        lambda: METHODS["Device.PrepareModel"].call(stage.channel, [prepare.SerializeToString()], WATCHDOG_S)
    )
    if prepared.status != ErrorStatus.NONE:
        return prepared
    request = types_pb2.Request()
    request.pools.add().pool.inline = b"".join(array.tobytes() for array in inputs) or bytes(1)
    request.pools.add().returned.SetInParent()
    offset = 0
    for array in inputs:
        request.inputs.add(location=types_pb2.DataLocation(offset=offset, length=array.nbytes), dimensions=array.shape)
        offset += array.nbytes
    for _ in model.main.output_indexes:
        request.outputs.add().location.pool_index = 1
    return execute(stage, prepared.prepared_model, request)


def execute(stage: Stage, handle: bytes, request: types_pb2.Request) -> CallResult:
    message = prepared_model_pb2.ExecuteSynchronouslyRequest(
        session=stage.session, prepared_model=handle, request=request
    )
    method = METHODS["PreparedModel.ExecuteSynchronously"]
    return check_call(lambda: method.call(stage.channel, [message.SerializeToString()], WATCHDOG_S))


def operation(type_: Op, *inputs: Value, outputs: Sequence[Operand] = ()) -> Model:
    return model_of(type_, inputs, outputs or [tensor(F32)])


# ---- Tensors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        operation(Op.TILE, floats(64), int_tensor([3 * 2**22])),
        operation(Op.FILL, int_tensor([3 * 2**14, 2**14]), float32(1)),
        operation(Op.PAD, floats(2), int_tensor([[3 * 2**28, 0]])),
        operation(Op.PAD_V2, floats(1, 1), int_tensor([[3 * 2**14, 0], [2**14, 0]]), float32(0)),
        operation(Op.ADD, floats(3 * 2**14, 1), floats(1, 2**14), int32(0)),
        operation(Op.RESIZE_BILINEAR, floats(1, 1, 1, 1), int32(3 * 2**14), int32(2**14)),
        operation(Op.RESIZE_NEAREST_NEIGHBOR, floats(1, 1, 1, 1), int32(3 * 2**14), int32(2**14), boolean(False)),
        operation(
            Op.SPACE_TO_BATCH_ND, floats(1, 1, 1, 1), int_tensor([1, 1]), int_tensor([[3 * 2**14, 0], [2**14, 0]])
        ),
        operation(
            Op.RANDOM_MULTINOMIAL,
            floats(2, 4),
            int32(3 * 2**27),
            int_tensor([1, 2]),
            outputs=[tensor(T.TENSOR_INT32)],
        ),
    ],
    ids=lambda model: Op(model.main.operations[0].type).name,
)
def test_tensors_beyond_the_limit(stage: Stage, model: Model) -> None:
    """Tensors of more than 2 GiB, the service's limit, and less than the 4 GiB that the HAL allows."""
    result = run(stage, model)
    assert result.detail is not None, result
    assert (result.detail.kind, result.detail.limit) == (ErrorKind.LIMIT, "tensor_bytes")
    assert result.status == ErrorStatus.RESOURCE_EXHAUSTED_PERSISTENT


@pytest.mark.parametrize(
    "model",
    [
        operation(Op.TILE, floats(64), int_tensor([LARGE])),
        operation(Op.FILL, int_tensor([LARGE, LARGE, LARGE]), float32(1)),
        operation(Op.PAD, floats(1, 1), int_tensor([[LARGE, LARGE], [LARGE, LARGE]])),
        operation(Op.MIRROR_PAD, floats(2), int_tensor([[LARGE, LARGE]]), int32(1)),
        operation(Op.RESIZE_BILINEAR, floats(1, 1, 1, 1), int32(LARGE), int32(LARGE)),
        operation(Op.RESIZE_BILINEAR, floats(1, 1, 1, 1), float32(3e38), float32(3e38)),
        operation(Op.RESIZE_NEAREST_NEIGHBOR, floats(1, 1, 1, 1), float32(1e9), float32(1e9), boolean(False)),
        operation(Op.DEPTH_TO_SPACE, floats(1, 1, 1, 4), int32(LARGE)),
        operation(Op.SPLIT, floats(4), int32(0), int32(LARGE)),
        operation(Op.TOPK_V2, floats(4), int32(LARGE), outputs=[tensor(F32), tensor(T.TENSOR_INT32)]),
        operation(
            Op.RANDOM_MULTINOMIAL, floats(2, 4), int32(LARGE), int_tensor([1, 2]), outputs=[tensor(T.TENSOR_INT32)]
        ),
        operation(
            Op.ROI_ALIGN,
            floats(1, 4, 4, 1),
            (tensor(F32, (1, 4)), [[0, 0, 2, 2]]),
            int_tensor([0]),
            *map(int32, (2, 2)),
            *map(float32, (1, 1)),
            *map(int32, (LARGE, LARGE)),
            boolean(False),
        ),
        operation(
            Op.ROI_POOLING,
            floats(1, 4, 4, 1),
            (tensor(F32, (1, 4)), [[0, 0, 2, 2]]),
            int_tensor([0]),
            *map(int32, (LARGE, LARGE)),
            *map(float32, (1, 1)),
            boolean(False),
        ),
        operation(Op.MAX_POOL_2D, floats(1, 1, 1, 1), *map(int32, (2**28, 2**28, 2**28, 2**28, 1, 1, 2**29, 2**29, 0))),
        operation(Op.AVERAGE_POOL_2D, floats(1, 1, 1, 1), *map(int32, (1, 1, 1, LARGE, LARGE, 0))),
        operation(
            Op.CONV_2D,
            floats(1, 1, 1, 1),
            floats(1, 2, 2, 1),
            floats(1),
            *map(int32, (1, LARGE, LARGE, 0)),
            boolean(False),
            *map(int32, (LARGE, LARGE)),
        ),
        operation(
            Op.TRANSPOSE_CONV_2D,
            floats(1, 2, 2, 1),
            floats(1, 1, 1, 1),
            floats(1),
            *map(int32, (LARGE - 1, 0, LARGE - 1, 0, LARGE, LARGE, 0)),
            boolean(False),
        ),
        operation(
            Op.LOCAL_RESPONSE_NORMALIZATION, floats(1, 1, 1, 4), int32(LARGE), float32(1), float32(1), float32(1)
        ),
    ],
    ids=lambda model: Op(model.main.operations[0].type).name,
)
def test_sizes_beyond_any_memory(stage: Stage, model: Model) -> None:
    result = run(stage, model)
    if model.main.operations[0].type == Op.LOCAL_RESPONSE_NORMALIZATION:
        assert result.status == ErrorStatus.NONE, "a radius larger than the image is valid"
        return
    assert result.status in (ErrorStatus.GENERAL_FAILURE, *EXHAUSTED) or "V-RUN" in result.rule, result


def test_operations_that_need_more_than_their_tensors(stage: Stage) -> None:
    """Input and output are small, but a temporary of 16 GiB does not fit into memory."""
    wide = 2**16 - 1
    image, filter_, bias = floats(1, 1, 1, 1), floats(1, 2, 2, 1), floats(1)
    padding = map(int32, (wide // 2, wide // 2, wide // 2, wide // 2))
    strides = map(int32, (wide, wide, 0))
    model = operation(
        Op.CONV_2D, image, filter_, bias, *padding, *strides, boolean(False), *map(int32, (wide // 2, wide // 2))
    )
    result = run(stage, model)
    assert result.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, result
    assert "not enough memory for the execution" in result.reason


def test_loop_with_a_growing_tensor(stage: Stage) -> None:
    result = run_message(stage, loop(growing=True), [np.ones(1024, np.float32)])
    assert result.status in (*EXHAUSTED, ErrorStatus.MISSED_DEADLINE_TRANSIENT), result


def test_many_output_pools(stage: Stage) -> None:
    """Each pool is within the limit of one pool."""
    request = inline_request()
    for _ in range(9):
        request.pools.add().returned.size = 2**31
    result = execute(stage, stage.model, request)
    assert result.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    assert "service_memory_bytes" in result.reason


def test_memory_objects(stage: Stage) -> None:
    statuses = []
    for _ in range(ADDRESS_SPACE // 2**29 + 1):
        request = memory_pb2.CreateMemoryRequest(session=stage.session, size=2**29).SerializeToString()
        result = check_call(lambda r=request: METHODS["MemoryService.Create"].call(stage.channel, [r], WATCHDOG_S))  # type: ignore[misc]
        statuses.append(result.status)
    assert statuses[0] == ErrorStatus.NONE
    assert statuses[-1] == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT


@pytest.mark.slow
def test_concurrent_large_executions(stage: Stage) -> None:
    """Each execution is within the limits. Together they need too much memory, and those that fail get a reason."""
    model = operation(Op.FILL, int_tensor([2**14, 2**14]), float32(1))
    with ThreadPoolExecutor(5) as pool:
        results = list(pool.map(lambda _: run(stage, model), range(5)))
    assert {result.status for result in results} == {ErrorStatus.NONE, ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT}
