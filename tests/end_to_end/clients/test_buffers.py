"""Driver-managed buffers of a real service, with both clients and with plain stubs."""

import gc
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc
import numpy as np
import pytest

import nnhal
import nnhal.aio
from nnhal.errors import HalError
from nnhal.types import AnyArray, ErrorKind, ErrorStatus
from nnhal.types import OperandType as T
from nnhal.v1 import (
    buffer_pb2,
    buffer_pb2_grpc,
    burst_pb2,
    burst_pb2_grpc,
    device_pb2,
    error_pb2,
    execution_pb2,
    execution_pb2_grpc,
    fence_pb2,
    fence_pb2_grpc,
    memory_pb2,
    prepared_model_pb2,
    types_pb2,
)
from nnhal_driver.execution.buffer import Buffer, BufferState
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.concurrency import run_concurrently
from tests.driver.one_operation import tensor
from tests.end_to_end.support.buffer_models import OPEN, A, X, add, error_status, relu, split
from tests.end_to_end.support.raw_client import RawSession, add_chain, error_detail, open_raw_session, prepare_request
from tests.end_to_end.support.service_process import Service, start_service, stop_service


@pytest.fixture(scope="module")
def device(service: Service) -> Iterator[nnhal.Device]:
    with nnhal.connect(service.target) as connected:
        yield connected


# ---- The client -----------------------------------------------------------------------------------------


def test_written_values_are_read(device: nnhal.Device) -> None:
    prepared = device.prepare(add(X)).result(60)
    with device.allocate(inputs=[(prepared, "left")]) as buffer:
        assert (buffer.shape, buffer.dtype) == ((2, 3), np.float32)
        assert error_status(buffer.read) == ErrorStatus.GENERAL_FAILURE
        buffer.write(A)
        np.testing.assert_array_equal(buffer.read(), A)
        buffer.write([[1, 2, 3], [4, 5, 6]])
        value = buffer.read()
        assert value.tolist() == [[1, 2, 3], [4, 5, 6]]
        copy = value.copy()
        value[:] = 0
        assert error_status(lambda: buffer.write(A[:1])) == ErrorStatus.INVALID_ARGUMENT
        assert error_status(lambda: buffer.write(A.astype(np.float64))) == ErrorStatus.INVALID_ARGUMENT
        assert buffer.read().tolist() == [[1, 2, 3], [4, 5, 6]]
        (result,) = prepared.execute([buffer, A])
        np.testing.assert_array_equal(result, A + copy)
        np.testing.assert_array_equal(prepared.execute({"right": A, "left": buffer})["sum"], result)


def test_values_larger_than_a_message(device: nnhal.Device) -> None:
    large = tensor(T.TENSOR_FLOAT32, (1500, 1000))
    prepared = device.prepare(relu(large)).result(60)
    data = np.random.default_rng(1).standard_normal((1500, 1000)).astype(np.float32)
    with device.allocate(inputs=[(prepared, 0)], outputs=[(prepared, 0)]) as buffer:
        buffer.write(data)
        np.testing.assert_array_equal(buffer.read(), data)
        prepared.execute([data], outputs=[buffer])
        np.testing.assert_array_equal(buffer.read(), np.maximum(data, 0))


def test_buffer_connects_two_models(device: nnhal.Device) -> None:
    first, second = device.prepare(add(X)).result(60), device.prepare(relu(X)).result(60)
    between = device.allocate(outputs=[(first, "sum")], inputs=[(second, 0)])
    for shift in (3, 4):
        outputs = first.execute([A, A - shift], outputs={"sum": between}, measure_timing=True)
        assert outputs[0] is outputs["sum"] is between
        assert outputs.timing.time_on_device_ns >= 0
        (result,) = second.execute([between])
        np.testing.assert_array_equal(result, np.maximum(2 * A - shift, 0))
    assert error_status(lambda: first.execute([between, A])) == ErrorStatus.INVALID_ARGUMENT
    assert error_status(lambda: second.execute([A], outputs={0: between})) == ErrorStatus.INVALID_ARGUMENT


def test_one_of_two_outputs_in_a_buffer(device: nnhal.Device) -> None:
    prepared = device.prepare(split(X)).result(60)
    top = device.allocate(outputs=[(prepared, "top")])
    for outputs in (prepared.execute([A], outputs=[top, None]), prepared.execute([A], outputs={"top": top})):
        assert outputs[0] is top
        np.testing.assert_array_equal(np.asarray(outputs["bottom"]), A[1:])
        np.testing.assert_array_equal(top.read(), A[:1])
    assert error_status(lambda: prepared.execute([A], outputs=[top])) == ErrorStatus.INVALID_ARGUMENT
    assert error_status(lambda: prepared.execute([A], outputs={"left": top})) == ErrorStatus.INVALID_ARGUMENT
    assert error_status(lambda: prepared.execute([A], outputs={2: top})) == ErrorStatus.INVALID_ARGUMENT


def test_shape_follows_the_last_write(device: nnhal.Device) -> None:
    prepared = device.prepare(add(OPEN)).result(60)
    both = [(prepared, "left"), (prepared, "right")]
    source, target = device.allocate(inputs=both), device.allocate(outputs=[(prepared, 0)])
    assert source.shape is None
    assert error_status(lambda: prepared.execute([source, source])) == ErrorStatus.GENERAL_FAILURE
    for rows in (1, 4, 2):
        data = np.full((rows, 3), rows, np.float32)
        source.write(data)
        assert source.shape == (rows, 3)
        np.testing.assert_array_equal(prepared.execute([source, source])[0], 2 * data)
        prepared.execute([source, data], outputs=[target])
        assert target.shape == (rows, 3)
        np.testing.assert_array_equal(target.read(), 2 * data)
    assert error_status(lambda: prepared.execute([A, np.ones((5, 3), np.float32)], outputs=[target]))
    assert target.shape is None
    assert error_status(target.read) == ErrorStatus.GENERAL_FAILURE
    fixed = device.allocate(inputs=both, dimensions=(2, 3))
    assert fixed.shape == (2, 3)
    assert error_status(lambda: fixed.write(np.ones((3, 3), np.float32))) == ErrorStatus.INVALID_ARGUMENT


def test_invalid_roles_are_rejected(device: nnhal.Device) -> None:
    prepared = device.prepare(add(X)).result(60)
    for inputs, outputs in (([(prepared, "up")], []), ([], [(prepared, "left")]), ([(prepared, 2)], []), ([], [])):
        status = error_status(lambda i=inputs, o=outputs: device.allocate(inputs=i, outputs=o))  # type: ignore[misc]
        assert status == ErrorStatus.INVALID_ARGUMENT


def test_closed_or_collected_buffer_is_unknown(device: nnhal.Device) -> None:
    prepared = device.prepare(relu(X)).result(60)
    closed, collected = (device.allocate(inputs=[(prepared, 0)]) for _ in range(2))
    for buffer in (closed, collected):
        buffer.write(A)
    token = collected.token
    closed.close()
    assert error_status(lambda: prepared.execute([closed])) == ErrorStatus.INVALID_ARGUMENT
    assert error_status(closed.read) == ErrorStatus.INVALID_ARGUMENT
    del buffer, collected
    gc.collect()
    forged = device.allocate(inputs=[(prepared, 0)])
    forged.write(A)
    forged.token = token
    assert error_status(lambda: prepared.execute([forged])) == ErrorStatus.INVALID_ARGUMENT


def test_buffer_outlives_a_closed_model(device: nnhal.Device) -> None:
    first, second = (device.prepare(relu(X)).result(60) for _ in range(2))
    buffer = device.allocate(inputs=[(first, 0), (second, 0)])
    buffer.write(A)
    first.close()
    np.testing.assert_array_equal(buffer.read(), A)
    np.testing.assert_array_equal(second.execute([buffer])[0], A)


async def test_asyncio_client(service: Service) -> None:
    async with nnhal.aio.connect(service.target) as device:
        first, second = await device.prepare(add(OPEN)), await device.prepare(relu(OPEN))
        async with await device.allocate(outputs=[(first, "sum")], inputs=[(second, 0)]) as between:
            with pytest.raises(HalError, match="uninitialized"):
                await between.read()
            outputs = await first.execute([A, A - 3], outputs={"sum": between})
            assert outputs["sum"] is between
            np.testing.assert_array_equal((await second.execute([between]))[0], np.maximum(2 * A - 3, 0))
            await between.write(A[:1])
            np.testing.assert_array_equal(await between.read(), A[:1])
        with pytest.raises(HalError, match="V-REQ-02"):
            await second.execute([between])
        large = await device.allocate(inputs=[(second, 0)])
        data = np.ones((300_000, 3), np.float32)
        await large.write(data)
        np.testing.assert_array_equal(await large.read(), data)


# ---- Stubs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RawBuffers:
    """A session with a model of one ADD, input [2], and the stubs for buffers."""

    raw: RawSession
    model: bytes
    buffers: buffer_pb2_grpc.BufferStub

    def allocate(self, **changes: object) -> device_pb2.AllocateResponse:
        fields: dict[str, object] = {
            "session": self.raw.session,
            "prepared_models": [self.model],
            "input_roles": [types_pb2.BufferRole(probability=1)],
            "output_roles": [types_pb2.BufferRole(probability=1)],
        }
        return self.raw.device.Allocate(device_pb2.AllocateRequest(**{**fields, **changes}))  # type: ignore[arg-type]

    def copy_from(self, buffer: bytes, src: types_pb2.Memory | None = None) -> object:
        src = src or types_pb2.Memory(inline=np.array([1, 2], np.float32).tobytes())
        return self.buffers.CopyFrom(buffer_pb2.CopyFromRequest(session=self.raw.session, buffer=buffer, src=src))

    def read(self, buffer: bytes) -> list[float]:
        response = self.buffers.CopyTo(buffer_pb2.CopyToRequest(session=self.raw.session, buffer=buffer))
        return list(map(float, np.frombuffer(response.returned.inline, np.float32)))

    def execute(self, source: int, target: int | None = None) -> types_pb2.ExecutionResult:
        return self.raw.prepared_model.ExecuteSynchronously(
            prepared_model_pb2.ExecuteSynchronouslyRequest(
                session=self.raw.session, prepared_model=self.model, request=buffer_request(source, target)
            )
        )

    def memory(self, sha256: bytes = b"") -> bytes:
        create = memory_pb2.CreateMemoryRequest(session=self.raw.session, size=8, sha256=sha256)
        return self.raw.memory.Create(create).memory


def buffer_request(source: int, target: int | None = None) -> types_pb2.Request:
    """Return a request whose input is a buffer, and whose output is a buffer or a returned pool."""
    request = types_pb2.Request(pools=[types_pb2.RequestMemoryPool(token=source)])
    request.inputs.add()
    request.outputs.add(location=types_pb2.DataLocation(pool_index=1))
    if target is None:
        request.pools.add(returned=types_pb2.ReturnedPool())
    else:
        request.pools.add(token=target)
    return request


@pytest.fixture
def session(service: Service) -> Iterator[RawBuffers]:
    with open_raw_session(service.target) as raw:
        yield raw_buffers(raw)


@pytest.fixture
def other_session(service: Service) -> Iterator[RawBuffers]:
    with open_raw_session(service.target) as raw:
        yield raw_buffers(raw)


def raw_buffers(raw: RawSession) -> RawBuffers:
    prepared = list(raw.device.PrepareModel(prepare_request(raw, add_chain(1))))[1].notify.prepared_model
    return RawBuffers(raw, prepared, buffer_pb2_grpc.BufferStub(raw.channel))


def expect_error(call: Callable[[], object]) -> error_pb2.ErrorDetail:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return error_detail(caught.value)


def test_tokens_of_other_sessions_look_unknown(session: RawBuffers, other_session: RawBuffers) -> None:
    allocated = session.allocate()
    session.copy_from(allocated.buffer)
    own = other_session.allocate()
    other_session.copy_from(own.buffer)
    unknown = 2**30
    for call in (other_session.execute, lambda token: other_session.execute(own.token, token)):
        error, expected = (expect_error(lambda c=call, t=t: c(t)) for t in (allocated.token, unknown))  # type: ignore[misc]
        assert (error.status, error.rule) == (ErrorStatus.INVALID_ARGUMENT, "V-REQ-02")
        assert error.reason.replace(str(allocated.token), "N") == expected.reason.replace(str(unknown), "N")
        assert (error.status, error.rule, error.kind) == (expected.status, expected.rule, expected.kind)
    assert session.read(allocated.buffer) == [1, 2]


def test_handles_of_other_sessions_look_unknown(session: RawBuffers, other_session: RawBuffers) -> None:
    allocated = session.allocate()
    session.copy_from(allocated.buffer)
    for call in (
        lambda: other_session.read(allocated.buffer),
        lambda: other_session.copy_from(allocated.buffer),
        lambda: other_session.copy_from(other_session.allocate().buffer, memory_at(session.memory())),
        lambda: other_session.allocate(prepared_models=[session.model]),
        lambda: other_session.allocate(prepared_models=[allocated.buffer]),
        lambda: other_session.allocate(prepared_models=[b""]),
        lambda: other_session.read(other_session.model),
    ):
        error = expect_error(call)
        assert (error.status, error.kind) == (ErrorStatus.INVALID_ARGUMENT, ErrorKind.UNKNOWN_HANDLE)
    assert session.read(allocated.buffer) == [1, 2]


def memory_at(handle: bytes) -> types_pb2.Memory:
    return types_pb2.Memory(mapped=types_pb2.MappedMemory(memory=handle))


def test_copy_between_buffer_and_memory(session: RawBuffers) -> None:
    buffer, memory = session.allocate().buffer, session.memory()
    session.copy_from(buffer)
    copy = buffer_pb2.CopyToRequest(session=session.raw.session, buffer=buffer, dst=memory_at(memory))
    assert not session.buffers.CopyTo(copy).HasField("returned")
    (chunk,) = session.raw.memory.Read(memory_pb2.ReadRequest(session=session.raw.session, memory=memory))
    assert np.frombuffer(chunk.data, np.float32).tolist() == [1, 2]
    other = session.allocate().buffer
    session.copy_from(other, memory_at(memory))
    assert session.read(other) == [1, 2]
    copy.dst.CopyFrom(types_pb2.Memory(inline=bytes(8)))
    assert expect_error(lambda: session.buffers.CopyTo(copy)).status == ErrorStatus.INVALID_ARGUMENT
    copy.dst.Clear()
    copy.dst.SetInParent()
    assert expect_error(lambda: session.buffers.CopyTo(copy)).rule == "V-WIRE-07"


def test_failed_copy_leaves_the_buffer_uninitialized(session: RawBuffers) -> None:
    for source in (
        types_pb2.Memory(inline=bytes(4)),
        memory_at(b"nothing"),
        memory_at(session.memory(bytes(32))),
        types_pb2.Memory(inline=bytes(2**21 + 1)),
    ):
        buffer = session.allocate().buffer
        session.copy_from(buffer)
        assert expect_error(lambda b=buffer, s=source: session.copy_from(b, s))  # type: ignore[misc]
        assert expect_error(lambda b=buffer: session.read(b)).status == ErrorStatus.GENERAL_FAILURE  # type: ignore[misc]


def test_invalid_allocations_name_their_rule(session: RawBuffers) -> None:
    role = types_pb2.BufferRole
    for changes, rule in (
        ({"input_roles": [], "output_roles": []}, "V-ALLOC-02"),
        ({"prepared_models": []}, "V-ALLOC-01"),
        ({"input_roles": [role(model_index=1, probability=1)]}, "V-ALLOC-03"),
        ({"input_roles": [role(io_index=2**31 - 1, probability=1)]}, "V-ALLOC-03"),
        ({"input_roles": [role(io_index=-1, probability=1)]}, "V-ALLOC-03"),
        ({"input_roles": [role()]}, "V-ALLOC-03"),
        ({"input_roles": [role(probability=float("nan"))]}, "V-ALLOC-03"),
        ({"input_roles": [role(probability=1)] * 2}, "V-ALLOC-04"),
        ({"desc": types_pb2.BufferDesc(dimensions=[3])}, "V-ALLOC-06"),
        ({"desc": types_pb2.BufferDesc(dimensions=[-1])}, "V-WIRE-03"),
    ):
        error = expect_error(lambda c=changes: session.allocate(**c))  # type: ignore[misc]
        assert (error.status, error.rule) == (ErrorStatus.INVALID_ARGUMENT, rule)


def test_bursts_accept_tokens(session: RawBuffers) -> None:
    first, second = session.allocate(), session.allocate()
    session.copy_from(first.buffer)
    named = {"session": session.raw.session, "prepared_model": session.model}
    burst = session.raw.prepared_model.ConfigureExecutionBurst(prepared_model_pb2.PreparedModelRequest(**named)).burst
    stub = burst_pb2_grpc.BurstStub(session.raw.channel)
    execute = burst_pb2.BurstExecuteRequest(
        session=session.raw.session,
        burst=burst,
        request=buffer_request(first.token, second.token),
        memory_identifier_tokens=[-1, -1],
    )
    stub.ExecuteSynchronously(execute)
    assert session.read(second.buffer) == [2, 3]
    execute.request.CopyFrom(buffer_request(second.token, first.token))
    (response,) = stub.Stream(iter([burst_pb2.BurstStreamRequest(execute=execute)]))
    assert response.HasField("result"), response
    assert session.read(first.buffer) == [3, 4]


def test_fenced_and_reusable_executions_accept_tokens(session: RawBuffers) -> None:
    buffers = [session.allocate() for _ in range(4)]
    session.copy_from(buffers[0].buffer)
    token, model, stub = session.raw.session, session.model, session.raw.prepared_model
    fences: list[bytes] = []
    for source, target in itertools.pairwise(buffers):
        launch = prepared_model_pb2.ExecuteFencedRequest(
            session=token, prepared_model=model, request=buffer_request(source.token, target.token), wait_for=fences
        )
        fences = [stub.ExecuteFenced(launch).fence]
    ended = fence_pb2_grpc.FenceStub(session.raw.channel).Wait(fence_pb2.WaitRequest(session=token, fence=fences[0]))
    assert ended.state == fence_pb2.FENCE_STATE_SIGNALED
    assert session.read(buffers[3].buffer) == [4, 5]
    create = prepared_model_pb2.CreateReusableExecutionRequest(
        session=token, prepared_model=model, request=buffer_request(buffers[3].token, buffers[0].token)
    )
    run = execution_pb2.RunExecutionRequest(session=token, execution=stub.CreateReusableExecution(create).execution)
    execution_pb2_grpc.ExecutionStub(session.raw.channel).ExecuteSynchronously(run)
    assert session.read(buffers[0].buffer) == [5, 6]
    create.request.pools[0].token = 2**30
    assert expect_error(lambda: stub.CreateReusableExecution(create)).rule == "V-REQ-02"


def test_concurrent_executions_and_copies(service: Service) -> None:
    """Each read returns a value that was written as a whole."""
    with nnhal.connect(service.target) as device:
        prepared = device.prepare(add(tensor(T.TENSOR_FLOAT32, (500,)))).result(60)
        buffer = device.allocate(inputs=[(prepared, 0), (prepared, 1)], outputs=[(prepared, 0)])
        values = [np.full(500, n, np.float32) for n in range(3)]
        buffer.write(values[0])
        torn: list[AnyArray] = []

        def check(value: AnyArray) -> None:
            if value.min() != value.max():
                torn.append(value)

        def work(number: int) -> None:
            for _ in range(30):
                match number % 4:
                    case 0:
                        buffer.write(values[1])
                    case 1:
                        prepared.execute([values[2], values[0]], outputs=[buffer])
                    case 2:
                        check(buffer.read())
                    case 3:
                        check(prepared.execute([buffer, buffer])[0])

        run_concurrently(8, work)
        assert not torn


# ---- Limits and leaks -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    options = ["--limit=memory_bytes=10000", "--limit=buffers=5"]
    running = start_service(tmp_path_factory.mktemp("small_service"), *options, NNHAL_SESSION_GRACE_S="0")
    yield running
    stop_service(running)


HALF = tensor(T.TENSOR_FLOAT32, (1250,))


def exceeded_limit(call: Callable[[], object]) -> str:
    with pytest.raises(HalError) as caught:
        call()
    assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    return caught.value.limit


def test_memory_of_buffers_counts_until_released(small_service: Service) -> None:
    for ending in ("closed", "collected", "session", "session", "cut"):
        device = nnhal.connect(small_service.target)
        prepared = device.prepare(relu(HALF)).result(60)
        first, second = (device.allocate(inputs=[(prepared, 0)], outputs=[(prepared, 0)]) for _ in range(2))
        assert exceeded_limit(lambda: device.allocate(inputs=[(prepared, 0)])) == "memory_bytes"  # noqa: B023
        prepared.execute([np.ones(1250, np.float32)], outputs=[first])
        prepared.execute([first], outputs=[second])
        if ending == "closed":
            first.close()
            second.close()
        elif ending == "collected":
            del first, second
            gc.collect()
        if ending in ("closed", "collected"):
            kept = [device.allocate(inputs=[(prepared, 0)]) for _ in range(2)]
            assert len({buffer.token for buffer in kept}) == 2
        if ending == "cut":
            device._connection._channel.close()
        else:
            device.close()


def test_memory_that_is_allocated_later_counts(small_service: Service) -> None:
    with nnhal.connect(small_service.target) as device:
        prepared = device.prepare(relu(OPEN)).result(60)
        buffer = device.allocate(inputs=[(prepared, 0)], outputs=[(prepared, 0)])
        rows = 800
        for _ in range(3):
            buffer.write(np.ones((rows, 3), np.float32))
        other = device.allocate(inputs=[(prepared, 0)], outputs=[(prepared, 0)])
        assert exceeded_limit(lambda: other.write(np.ones((100, 3), np.float32))) == "memory_bytes"
        large = np.ones((100, 3), np.float32)
        assert exceeded_limit(lambda: prepared.execute([large], outputs=[other])) == "memory_bytes"
        assert error_status(other.read) == ErrorStatus.GENERAL_FAILURE
        buffer.write(np.ones((10, 3), np.float32))
        prepared.execute([large], outputs=[other])


def test_buffers_are_limited(small_service: Service) -> None:
    with nnhal.connect(small_service.target) as device:
        prepared = device.prepare(relu(X)).result(60)
        kept = [device.allocate(inputs=[(prepared, 0)]) for _ in range(5)]
        assert exceeded_limit(lambda: device.allocate(inputs=[(prepared, 0)])) == "buffers"
        kept.pop().close()
        kept.append(device.allocate(inputs=[(prepared, 0)]))


def count_live_buffers() -> int:
    gc.collect()
    return sum(type(item) in (Buffer, BufferState) for item in gc.get_objects())


def test_buffers_are_freed_with_their_session() -> None:
    before = count_live_buffers()
    with Server(Settings(listen=("127.0.0.1:0",), session_grace_s=0.0)) as server:
        with nnhal.connect(server.addresses[0]) as device:
            prepared = device.prepare(relu(X)).result(60)
            buffer = device.allocate(inputs=[(prepared, 0)], outputs=[(prepared, 0)])
            prepared.execute([A], outputs=[buffer])
            prepared.execute([buffer])
            with pytest.raises(HalError):
                prepared.execute([A], outputs=[buffer], deadline=0.0)
            assert count_live_buffers() == before + 2
        assert count_live_buffers() == before
