"""Driver-managed buffers of a real service: through both clients, and through the generated stubs."""

import gc
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import grpc
import numpy as np
import pytest

import nnhal
import nnhal.aio
from driver.buffer import Buffer, Contents
from nnhal.errors import HalError
from nnhal.types import AnyArray, ErrorKind, ErrorStatus, Model, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
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
from service.server import Server
from service.settings import Settings
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.conftest import Service, start, stop
from tests.end_to_end.raw import Raw, chain, detail, prepare_request, raw_session
from tests.threads import at_once

X = tensor(T.TENSOR_FLOAT32, (2, 3))
OPEN = tensor(T.TENSOR_FLOAT32, (0, 3))
A = np.arange(6, dtype=np.float32).reshape(2, 3)


def add(operand: Operand) -> Model:
    model = model_of(Op.ADD, [(operand, 0), (operand, 0), int32(0)], [operand], constants=False)
    return replace(model, input_names=("left", "right"), output_names=("sum",))


def relu(operand: Operand) -> Model:
    return model_of(Op.RELU, [(operand, 0)], [operand], constants=False)


def split(operand: Operand) -> Model:
    """Two outputs: the first row and the second."""
    row = replace(operand, dimensions=(1, 3))
    model = model_of(Op.SPLIT, [(operand, 0), int32(0), int32(2)], [row, row], constants=False)
    return replace(model, output_names=("top", "bottom"))


def status(call: Callable[[], object]) -> int:
    with pytest.raises(HalError) as caught:
        call()
    return caught.value.status


@pytest.fixture(scope="module")
def device(service: Service) -> Iterator[nnhal.Device]:
    with nnhal.connect(service.target) as made:
        yield made


# ---- The client -----------------------------------------------------------------------------------------


def test_writing_and_reading(device: nnhal.Device) -> None:
    prepared = device.prepare(add(X)).result(10)
    with device.allocate(inputs=[(prepared, "left")]) as buffer:
        assert (buffer.shape, buffer.dtype) == ((2, 3), np.float32)
        assert status(buffer.read) == ErrorStatus.GENERAL_FAILURE
        buffer.write(A)
        np.testing.assert_array_equal(buffer.read(), A)
        buffer.write([[1, 2, 3], [4, 5, 6]])
        found = buffer.read()
        assert found.tolist() == [[1, 2, 3], [4, 5, 6]]
        found_before = found.copy()
        found[:] = 0
        assert status(lambda: buffer.write(A[:1])) == ErrorStatus.INVALID_ARGUMENT
        assert status(lambda: buffer.write(A.astype(np.float64))) == ErrorStatus.INVALID_ARGUMENT
        assert buffer.read().tolist() == [[1, 2, 3], [4, 5, 6]]
        (result,) = prepared.execute([buffer, A])
        np.testing.assert_array_equal(result, A + found_before)
        np.testing.assert_array_equal(prepared.execute({"right": A, "left": buffer})["sum"], result)


def test_values_larger_than_a_message(device: nnhal.Device) -> None:
    large = tensor(T.TENSOR_FLOAT32, (1500, 1000))
    prepared = device.prepare(relu(large)).result(10)
    data = np.random.default_rng(1).standard_normal((1500, 1000)).astype(np.float32)
    with device.allocate(inputs=[(prepared, 0)], outputs=[(prepared, 0)]) as buffer:
        buffer.write(data)
        np.testing.assert_array_equal(buffer.read(), data)
        prepared.execute([data], outputs=[buffer])
        np.testing.assert_array_equal(buffer.read(), np.maximum(data, 0))


def test_two_models_in_a_chain(device: nnhal.Device) -> None:
    first, second = device.prepare(add(X)).result(10), device.prepare(relu(X)).result(10)
    between = device.allocate(outputs=[(first, "sum")], inputs=[(second, 0)])
    for shift in (3, 4):
        outputs = first.execute([A, A - shift], outputs={"sum": between}, measure_timing=True)
        assert outputs[0] is outputs["sum"] is between
        assert outputs.timing.time_on_device_ns >= 0
        (result,) = second.execute([between])
        np.testing.assert_array_equal(result, np.maximum(2 * A - shift, 0))
    assert status(lambda: first.execute([between, A])) == ErrorStatus.INVALID_ARGUMENT
    assert status(lambda: second.execute([A], outputs={0: between})) == ErrorStatus.INVALID_ARGUMENT


def test_one_output_in_a_buffer_and_one_not(device: nnhal.Device) -> None:
    prepared = device.prepare(split(X)).result(10)
    top = device.allocate(outputs=[(prepared, "top")])
    for outputs in (prepared.execute([A], outputs=[top, None]), prepared.execute([A], outputs={"top": top})):
        assert outputs[0] is top
        np.testing.assert_array_equal(np.asarray(outputs["bottom"]), A[1:])
        np.testing.assert_array_equal(top.read(), A[:1])
    assert status(lambda: prepared.execute([A], outputs=[top])) == ErrorStatus.INVALID_ARGUMENT
    assert status(lambda: prepared.execute([A], outputs={"left": top})) == ErrorStatus.INVALID_ARGUMENT
    assert status(lambda: prepared.execute([A], outputs={2: top})) == ErrorStatus.INVALID_ARGUMENT


def test_shapes_that_change(device: nnhal.Device) -> None:
    prepared = device.prepare(add(OPEN)).result(10)
    both = [(prepared, "left"), (prepared, "right")]
    source, target = device.allocate(inputs=both), device.allocate(outputs=[(prepared, 0)])
    assert source.shape is None
    assert status(lambda: prepared.execute([source, source])) == ErrorStatus.GENERAL_FAILURE
    for rows in (1, 4, 2):
        data = np.full((rows, 3), rows, np.float32)
        source.write(data)
        assert source.shape == (rows, 3)
        np.testing.assert_array_equal(prepared.execute([source, source])[0], 2 * data)
        prepared.execute([source, data], outputs=[target])
        assert target.shape == (rows, 3)
        np.testing.assert_array_equal(target.read(), 2 * data)
    assert status(lambda: prepared.execute([A, np.ones((5, 3), np.float32)], outputs=[target]))
    assert target.shape is None
    assert status(target.read) == ErrorStatus.GENERAL_FAILURE
    fixed = device.allocate(inputs=both, dimensions=(2, 3))
    assert fixed.shape == (2, 3)
    assert status(lambda: fixed.write(np.ones((3, 3), np.float32))) == ErrorStatus.INVALID_ARGUMENT


def test_roles_in_words(device: nnhal.Device) -> None:
    prepared = device.prepare(add(X)).result(10)
    for inputs, outputs in (([(prepared, "up")], []), ([], [(prepared, "left")]), ([(prepared, 2)], []), ([], [])):
        assert status(lambda i=inputs, o=outputs: device.allocate(inputs=i, outputs=o)) == ErrorStatus.INVALID_ARGUMENT  # type: ignore[misc]


def test_a_buffer_that_is_closed_or_collected(device: nnhal.Device) -> None:
    prepared = device.prepare(relu(X)).result(10)
    closed, collected = (device.allocate(inputs=[(prepared, 0)]) for _ in range(2))
    for buffer in (closed, collected):
        buffer.write(A)
    token = collected.token
    closed.close()
    assert status(lambda: prepared.execute([closed])) == ErrorStatus.INVALID_ARGUMENT
    assert status(closed.read) == ErrorStatus.INVALID_ARGUMENT
    del buffer, collected
    gc.collect()
    left = device.allocate(inputs=[(prepared, 0)])
    left.write(A)
    left.token = token
    assert status(lambda: prepared.execute([left])) == ErrorStatus.INVALID_ARGUMENT


def test_a_model_that_is_closed_leaves_the_buffer(device: nnhal.Device) -> None:
    first, second = (device.prepare(relu(X)).result(10) for _ in range(2))
    buffer = device.allocate(inputs=[(first, 0), (second, 0)])
    buffer.write(A)
    first.close()
    np.testing.assert_array_equal(buffer.read(), A)
    np.testing.assert_array_equal(second.execute([buffer])[0], A)


async def test_asyncio(service: Service) -> None:
    async with nnhal.aio.connect(service.target) as device:
        first, second = await device.prepare(add(OPEN)), await device.prepare(relu(OPEN))
        async with await device.allocate(outputs=[(first, "sum")], inputs=[(second, 0)]) as between:
            with pytest.raises(HalError, match="uninitialised"):
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


# ---- By hand --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hand:
    """A session with a model of one ADD, input [2], and the stubs for buffers."""

    raw: Raw
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
                session=self.raw.session, prepared_model=self.model, request=request(source, target)
            )
        )

    def memory(self, sha256: bytes = b"") -> bytes:
        create = memory_pb2.CreateMemoryRequest(session=self.raw.session, size=8, sha256=sha256)
        return self.raw.memory.Create(create).memory


def request(source: int, target: int | None = None) -> types_pb2.Request:
    """Input from a buffer; output to a buffer, or returned."""
    made = types_pb2.Request(pools=[types_pb2.RequestMemoryPool(token=source)])
    made.inputs.add()
    made.outputs.add(location=types_pb2.DataLocation(pool_index=1))
    if target is None:
        made.pools.add(returned=types_pb2.ReturnedPool())
    else:
        made.pools.add(token=target)
    return made


@pytest.fixture
def hands(service: Service) -> Iterator[tuple[Hand, Hand]]:
    """Two sessions with the same model."""
    with raw_session(service.target) as one, raw_session(service.target) as other:
        yield hand(one), hand(other)


def hand(raw: Raw) -> Hand:
    prepared = list(raw.device.PrepareModel(prepare_request(raw, chain(1))))[1].notify.prepared_model
    return Hand(raw, prepared, buffer_pb2_grpc.BufferStub(raw.channel))


def refusal(call: Callable[[], object]) -> error_pb2.ErrorDetail:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return detail(caught.value)


def test_tokens_of_another_session_are_as_good_as_absent_ones(hands: tuple[Hand, Hand]) -> None:
    owner, other = hands
    made = owner.allocate()
    owner.copy_from(made.buffer)
    mine = other.allocate()
    other.copy_from(mine.buffer)
    absent = 2**30
    for call in (other.execute, lambda token: other.execute(mine.token, token)):
        found, wanted = (refusal(lambda c=call, t=t: c(t)) for t in (made.token, absent))  # type: ignore[misc]
        assert (found.status, found.rule) == (ErrorStatus.INVALID_ARGUMENT, "V-REQ-02")
        assert found.reason.replace(str(made.token), "N") == wanted.reason.replace(str(absent), "N")
        assert (found.status, found.rule, found.kind) == (wanted.status, wanted.rule, wanted.kind)
    assert owner.read(made.buffer) == [1, 2]


def test_handles_of_another_session_are_as_good_as_absent_ones(hands: tuple[Hand, Hand]) -> None:
    owner, other = hands
    made = owner.allocate()
    owner.copy_from(made.buffer)
    for call in (
        lambda: other.read(made.buffer),
        lambda: other.copy_from(made.buffer),
        lambda: other.copy_from(other.allocate().buffer, memory_at(owner.memory())),
        lambda: other.allocate(prepared_models=[owner.model]),
        lambda: other.allocate(prepared_models=[made.buffer]),
        lambda: other.allocate(prepared_models=[b""]),
        lambda: other.read(other.model),
    ):
        found = refusal(call)
        assert (found.status, found.kind) == (ErrorStatus.INVALID_ARGUMENT, ErrorKind.UNKNOWN_HANDLE)
    assert owner.read(made.buffer) == [1, 2]


def memory_at(handle: bytes) -> types_pb2.Memory:
    return types_pb2.Memory(mapped=types_pb2.MappedMemory(memory=handle))


def test_copies_from_and_to_memory(hands: tuple[Hand, Hand]) -> None:
    one = hands[0]
    buffer, memory = one.allocate().buffer, one.memory()
    one.copy_from(buffer)
    copy = buffer_pb2.CopyToRequest(session=one.raw.session, buffer=buffer, dst=memory_at(memory))
    assert not one.buffers.CopyTo(copy).HasField("returned")
    (chunk,) = one.raw.memory.Read(memory_pb2.ReadRequest(session=one.raw.session, memory=memory))
    assert np.frombuffer(chunk.data, np.float32).tolist() == [1, 2]
    other = one.allocate().buffer
    one.copy_from(other, memory_at(memory))
    assert one.read(other) == [1, 2]
    copy.dst.CopyFrom(types_pb2.Memory(inline=bytes(8)))
    assert refusal(lambda: one.buffers.CopyTo(copy)).status == ErrorStatus.INVALID_ARGUMENT
    copy.dst.Clear()
    copy.dst.SetInParent()
    assert refusal(lambda: one.buffers.CopyTo(copy)).rule == "V-WIRE-07"


def test_a_copy_that_fails_leaves_the_buffer_uninitialised(hands: tuple[Hand, Hand]) -> None:
    one = hands[0]
    for source in (
        types_pb2.Memory(inline=bytes(4)),
        memory_at(b"nothing"),
        memory_at(one.memory(bytes(32))),
        types_pb2.Memory(inline=bytes(2**21 + 1)),
    ):
        buffer = one.allocate().buffer
        one.copy_from(buffer)
        assert refusal(lambda b=buffer, s=source: one.copy_from(b, s))  # type: ignore[misc]
        assert refusal(lambda b=buffer: one.read(b)).status == ErrorStatus.GENERAL_FAILURE  # type: ignore[misc]


def test_fields_out_of_range(hands: tuple[Hand, Hand]) -> None:
    one = hands[0]
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
        found = refusal(lambda c=changes: one.allocate(**c))  # type: ignore[misc]
        assert (found.status, found.rule) == (ErrorStatus.INVALID_ARGUMENT, rule)


def test_bursts_take_tokens(hands: tuple[Hand, Hand]) -> None:
    one = hands[0]
    first, second = one.allocate(), one.allocate()
    one.copy_from(first.buffer)
    named = {"session": one.raw.session, "prepared_model": one.model}
    burst = one.raw.prepared_model.ConfigureExecutionBurst(prepared_model_pb2.PreparedModelRequest(**named)).burst
    stub = burst_pb2_grpc.BurstStub(one.raw.channel)
    execute = burst_pb2.BurstExecuteRequest(
        session=one.raw.session,
        burst=burst,
        request=request(first.token, second.token),
        memory_identifier_tokens=[-1, -1],
    )
    stub.ExecuteSynchronously(execute)
    assert one.read(second.buffer) == [2, 3]
    execute.request.CopyFrom(request(second.token, first.token))
    (answer,) = stub.Stream(iter([burst_pb2.BurstStreamRequest(execute=execute)]))
    assert answer.HasField("result"), answer
    assert one.read(first.buffer) == [3, 4]


def test_fenced_and_reusable_executions_take_tokens(hands: tuple[Hand, Hand]) -> None:
    one = hands[0]
    buffers = [one.allocate() for _ in range(4)]
    one.copy_from(buffers[0].buffer)
    session, model, stub = one.raw.session, one.model, one.raw.prepared_model
    fences: list[bytes] = []
    for source, target in itertools.pairwise(buffers):
        launch = prepared_model_pb2.ExecuteFencedRequest(
            session=session, prepared_model=model, request=request(source.token, target.token), wait_for=fences
        )
        fences = [stub.ExecuteFenced(launch).fence]
    ended = fence_pb2_grpc.FenceStub(one.raw.channel).Wait(fence_pb2.WaitRequest(session=session, fence=fences[0]))
    assert ended.state == fence_pb2.FENCE_STATE_SIGNALED
    assert one.read(buffers[3].buffer) == [4, 5]
    create = prepared_model_pb2.CreateReusableExecutionRequest(
        session=session, prepared_model=model, request=request(buffers[3].token, buffers[0].token)
    )
    run = execution_pb2.RunExecutionRequest(session=session, execution=stub.CreateReusableExecution(create).execution)
    execution_pb2_grpc.ExecutionStub(one.raw.channel).ExecuteSynchronously(run)
    assert one.read(buffers[0].buffer) == [5, 6]
    create.request.pools[0].token = 2**30
    assert refusal(lambda: stub.CreateReusableExecution(create)).rule == "V-REQ-02"


def test_many_executions_and_copies_at_once(service: Service) -> None:
    """Whatever is read was written whole."""
    with nnhal.connect(service.target) as device:
        prepared = device.prepare(add(tensor(T.TENSOR_FLOAT32, (500,)))).result(10)
        buffer = device.allocate(inputs=[(prepared, 0), (prepared, 1)], outputs=[(prepared, 0)])
        values = [np.full(500, n, np.float32) for n in range(3)]
        buffer.write(values[0])
        odd: list[AnyArray] = []

        def judge(found: AnyArray) -> None:
            if found.min() != found.max():
                odd.append(found)

        def work(number: int) -> None:
            for _ in range(30):
                match number % 4:
                    case 0:
                        buffer.write(values[1])
                    case 1:
                        prepared.execute([values[2], values[0]], outputs=[buffer])
                    case 2:
                        judge(buffer.read())
                    case 3:
                        judge(prepared.execute([buffer, buffer])[0])

        at_once(8, work)
        assert not odd


# ---- Limits and leaks -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    options = ["--limit=memory_bytes=10000", "--limit=buffers=5"]
    running = start(tmp_path_factory.mktemp("small"), *options, NNHAL_SESSION_GRACE_S="0")
    yield running
    stop(running)


HALF = tensor(T.TENSOR_FLOAT32, (1250,))


def limit_of(call: Callable[[], object]) -> str:
    with pytest.raises(HalError) as caught:
        call()
    assert caught.value.status == ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT
    return caught.value.limit


def test_memory_of_buffers_is_counted_and_given_back(small: Service) -> None:
    for how in ("closed", "collected", "session", "session", "cut"):
        device = nnhal.connect(small.target)
        prepared = device.prepare(relu(HALF)).result(10)
        one, two = (device.allocate(inputs=[(prepared, 0)], outputs=[(prepared, 0)]) for _ in range(2))
        assert limit_of(lambda: device.allocate(inputs=[(prepared, 0)])) == "memory_bytes"  # noqa: B023
        prepared.execute([np.ones(1250, np.float32)], outputs=[one])
        prepared.execute([one], outputs=[two])
        if how == "closed":
            one.close()
            two.close()
        elif how == "collected":
            del one, two
            gc.collect()
        if how in ("closed", "collected"):
            kept = [device.allocate(inputs=[(prepared, 0)]) for _ in range(2)]
            assert len({buffer.token for buffer in kept}) == 2
        if how == "cut":
            device._connection._channel.close()
        else:
            device.close()


def test_memory_that_comes_later_is_counted_too(small: Service) -> None:
    with nnhal.connect(small.target) as device:
        prepared = device.prepare(relu(OPEN)).result(10)
        buffer = device.allocate(inputs=[(prepared, 0)], outputs=[(prepared, 0)])
        rows = 800
        for _ in range(3):
            buffer.write(np.ones((rows, 3), np.float32))
        other = device.allocate(inputs=[(prepared, 0)], outputs=[(prepared, 0)])
        assert limit_of(lambda: other.write(np.ones((100, 3), np.float32))) == "memory_bytes"
        large = np.ones((100, 3), np.float32)
        assert limit_of(lambda: prepared.execute([large], outputs=[other])) == "memory_bytes"
        assert status(other.read) == ErrorStatus.GENERAL_FAILURE
        buffer.write(np.ones((10, 3), np.float32))
        prepared.execute([large], outputs=[other])


def test_buffers_are_limited(small: Service) -> None:
    with nnhal.connect(small.target) as device:
        prepared = device.prepare(relu(X)).result(10)
        kept = [device.allocate(inputs=[(prepared, 0)]) for _ in range(5)]
        assert limit_of(lambda: device.allocate(inputs=[(prepared, 0)])) == "buffers"
        kept.pop().close()
        kept.append(device.allocate(inputs=[(prepared, 0)]))


def alive() -> int:
    gc.collect()
    return sum(type(thing) in (Buffer, Contents) for thing in gc.get_objects())


def test_buffers_go_with_their_session() -> None:
    before = alive()
    with Server(Settings(listen=("127.0.0.1:0",), session_grace_s=0.0)) as server:
        with nnhal.connect(server.addresses[0]) as device:
            prepared = device.prepare(relu(X)).result(10)
            buffer = device.allocate(inputs=[(prepared, 0)], outputs=[(prepared, 0)])
            prepared.execute([A], outputs=[buffer])
            prepared.execute([buffer])
            with pytest.raises(HalError):
                prepared.execute([A], outputs=[buffer], deadline=0.0)
            assert alive() == before + 2
        assert alive() == before
