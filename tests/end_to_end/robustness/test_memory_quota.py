"""Clients that cause much memory with small messages: refused by name, and the service and other clients go on."""

from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest

from nnhal.types import ErrorStatus
from nnhal.v1 import enums_pb2, fence_pb2, fence_pb2_grpc, memory_pb2, prepared_model_pb2, types_pb2
from tests.end_to_end.robustness.hostile_models import overlapping_windows
from tests.end_to_end.support.attacked_service import GoodClient
from tests.end_to_end.support.raw_client import (
    RawSession,
    add_chain,
    error_detail,
    execute_request,
    open_raw_session,
    prepare_request,
)
from tests.end_to_end.support.service_process import Service, start_service, stop_service

PROCESS_BYTES = 512 * 2**20
ELEMENTS = 400_000
INLINE_BYTES = 2_000_000


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    running = start_service(
        tmp_path_factory.mktemp("small"),
        f"--process-bytes={PROCESS_BYTES}",
        "--threads=16",
        "--session-grace-s=0",
    )
    good = GoodClient(running.target)
    try:
        yield running
        good.stop()
        assert running.process.poll() is None
    finally:
        assert stop_service(running) == 0


def fill(raw: RawSession, size: int) -> int:
    """Create Memory objects of a size until the service refuses one, and return their number."""
    for count in range(10_000):
        try:
            raw.memory.Create(memory_pb2.CreateMemoryRequest(session=raw.session, size=size), timeout=60)
        except grpc.RpcError as error:
            detail = error_detail(error)
            assert (detail.status, detail.limit) == (
                ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT,
                "service_memory_bytes",
            )
            assert f"needs {size} bytes" in detail.reason and "may use" in detail.reason
            return count
    raise AssertionError("the service refuses nothing")


def execute_once(raw: RawSession, returned: int | None = None) -> types_pb2.ExecutionResult:
    handle = list(raw.device.PrepareModel(prepare_request(raw, add_chain(1)), timeout=60))[-1].notify.prepared_model
    request = execute_request(raw, handle, [np.ones(2, np.float32)])
    if returned is not None:
        request.request.pools[1].returned.size = returned
        request.request.outputs[0].location.length = 8
    return raw.prepared_model.ExecuteSynchronously(request, timeout=60)


def large_request(raw: RawSession) -> prepared_model_pb2.ExecuteSynchronouslyRequest:
    """Return an execution with almost as many inline bytes as a request may have."""
    handle = list(raw.device.PrepareModel(prepare_request(raw, add_chain(1)), timeout=60))[-1].notify.prepared_model
    request = execute_request(raw, handle, [np.ones(2, np.float32)])
    request.request.pools[0].pool.inline += bytes(INLINE_BYTES)
    return request


def test_requests_of_reusable_executions(service: Service) -> None:
    with open_raw_session(service.target) as raw:
        large = large_request(raw)
        message = prepared_model_pb2.CreateReusableExecutionRequest(
            session=raw.session, prepared_model=large.prepared_model, request=large.request
        )
        refuse_at_last(lambda: raw.prepared_model.CreateReusableExecution(message, timeout=60))


def test_requests_of_fenced_executions(service: Service) -> None:
    with open_raw_session(service.target) as raw:
        large, fences = large_request(raw), fence_pb2_grpc.FenceStub(raw.channel)
        output = raw.memory.Create(memory_pb2.CreateMemoryRequest(session=raw.session, size=8)).memory
        large.request.pools[1].pool.mapped.memory = output
        large.request.outputs[0].location.length = 8
        fence = fences.Create(fence_pb2.CreateFenceRequest(session=raw.session)).fence
        message = prepared_model_pb2.ExecuteFencedRequest(
            session=raw.session, prepared_model=large.prepared_model, request=large.request, wait_for=[fence]
        )
        refuse_at_last(lambda: raw.prepared_model.ExecuteFenced(message, timeout=60))


def model_of_many_arguments(count: int) -> types_pb2.Model:
    """Return a model that has as many inputs, of which it concatenates one again and again."""
    model = types_pb2.Model(operand_values=bytes(4))
    float_tensor, axis = enums_pb2.OPERAND_TYPE_TENSOR_FLOAT32, enums_pb2.OPERAND_TYPE_INT32
    for _ in range(count):
        model.main.operands.add(type=float_tensor, dimensions=[1], lifetime=enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH_INPUT)
    location = types_pb2.DataLocation(length=4)
    model.main.operands.add(type=axis, lifetime=enums_pb2.OPERAND_LIFE_TIME_CONSTANT_COPY, location=location)
    model.main.operands.add(type=float_tensor, dimensions=[count], lifetime=enums_pb2.OPERAND_LIFE_TIME_SUBGRAPH_OUTPUT)
    model.main.input_indexes.extend(range(count))
    model.main.output_indexes.append(count + 1)
    model.main.operations.add(type=enums_pb2.OPERATION_TYPE_CONCATENATION, inputs=range(count + 1), outputs=[count + 1])
    return model


@pytest.mark.slow
def test_definitions_with_many_arguments(service: Service) -> None:
    count = 4000
    with open_raw_session(service.target) as raw:
        prepared = list(raw.device.PrepareModel(prepare_request(raw, model_of_many_arguments(count)), timeout=60))[-1]
        message = prepared_model_pb2.DefineRequest(session=raw.session, target=prepared.notify.prepared_model)
        for number in range(count):
            message.request.inputs.add(location=types_pb2.DataLocation(offset=4 * number, length=4), dimensions=[1])
        message.request.outputs.add(location=types_pb2.DataLocation(pool_index=1), dimensions=[count])
        message.request.pools.add().value.size = 4 * count
        message.request.pools.add().returned.SetInParent()
        refuse_at_last(lambda: raw.prepared_model.Define(message, timeout=60))


@pytest.mark.slow
def test_values_of_models(service: Service) -> None:
    with open_raw_session(service.target) as raw:
        model = add_chain(1)
        model.operand_values += bytes(INLINE_BYTES)
        refuse_at_last(lambda: list(raw.device.PrepareModel(prepare_request(raw, model), timeout=60)))


def refuse_at_last(call: Callable[[], object]) -> None:
    """Repeat a call until the service refuses it because of its memory."""
    for _ in range(PROCESS_BYTES // INLINE_BYTES):
        try:
            call()
        except grpc.RpcError as error:
            assert error_detail(error).limit == "service_memory_bytes"
            return
    raise AssertionError("the service refuses nothing")


def test_untouched_memory_of_several_sessions(service: Service) -> None:
    with open_raw_session(service.target) as first, open_raw_session(service.target) as second:
        filled = fill(first, 2**20)
        assert 100 < filled < PROCESS_BYTES // 2**20
        assert 0 < fill(second, 2**20) < filled
        fill(second, 2**16)
        with open_raw_session(service.target) as third:  # greedy sessions leave some to others
            assert execute_once(third).output_sufficient_size
    with open_raw_session(service.target) as last:  # memory of ended sessions is free again
        assert fill(last, 2**20) > 100


def test_overlapping_constants(service: Service) -> None:
    with open_raw_session(service.target) as raw:
        try:
            notify = list(raw.device.PrepareModel(prepare_request(raw, overlapping_windows()), timeout=60))[-1].notify
        except grpc.RpcError as error:
            status, reason = error_detail(error).status, error_detail(error).reason
        else:
            status, reason = notify.status, notify.reason
        assert status == ErrorStatus.NONE, reason  # they are in memory once
        assert execute_once(raw).output_sufficient_size


def test_untouched_returned_pools(service: Service) -> None:
    with open_raw_session(service.target) as raw:
        with pytest.raises(grpc.RpcError) as caught:
            execute_once(raw, returned=PROCESS_BYTES)
        detail = error_detail(caught.value)
        assert (detail.status, detail.limit) == (
            ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT,
            "service_memory_bytes",
        )
        assert execute_once(raw, returned=2**20).output_sufficient_size
