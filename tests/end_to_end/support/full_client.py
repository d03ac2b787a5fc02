"""A client that uses all features of a service, step by step, and checks every result."""

import random
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

import nnhal
from nnhal.types import AnyArray, Operand
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import cache_pb2, cache_pb2_grpc, device_pb2, enums_pb2, types_pb2
from tests.driver.one_operation import int32, model_of, tensor
from tests.end_to_end.support.raw_client import add_chain

OPEN = tensor(T.TENSOR_FLOAT32, (0,))
FIXED = tensor(T.TENSOR_FLOAT32, (1000,))
ADD = model_of(Op.ADD, [(OPEN, 0), (OPEN, 0), int32(0)], [OPEN], constants=False)
ADD_FIXED = replace(
    model_of(Op.ADD, [(FIXED, 0), (FIXED, 0), int32(0)], [FIXED], constants=False), input_names=("left", "right")
)
SIZES = (10, 100_000, 1_000_000)
"""Input sizes in elements: for a small message, a large message, and a Memory object."""
TOKENS = [bytes([number]) * 32 for number in range(4)]
"""Cache tokens. A few are enough: the store must not grow with the number of clients."""

Step = Callable[["Client"], None]
STEPS: list[Step] = []


def step(function: Step) -> Step:
    """Register a step."""
    STEPS.append(function)
    return function


class Client:
    """Two sessions on a service, `local` over shared memory and `remote` over gRPC, with two models each."""

    def __init__(self, target: str, seed: int) -> None:
        self.target = target
        self.rng = random.Random(seed)
        self.local = nnhal.connect(target, timeout=60)
        self.remote = nnhal.connect(target, timeout=60, transport="grpc")
        self.devices = (self.local, self.remote)
        self.add = [device.prepare(ADD).result(60) for device in self.devices]
        self.fixed = [device.prepare(ADD_FIXED).result(60) for device in self.devices]

    def ones(self, size: int = 1000) -> AnyArray:
        """Return an input whose elements all have the same random value."""
        return np.full(size, self.rng.randrange(100), np.float32)

    def close(self) -> None:
        """End both sessions."""
        for device in self.devices:
            device.close()


def assert_same(actual: AnyArray, expected: AnyArray) -> None:
    """Assert that two arrays are equal."""
    np.testing.assert_array_equal(actual, expected)


@step
def sessions(client: Client) -> None:
    """Open and close a session."""
    with nnhal.connect(client.target, timeout=60, transport=client.rng.choice(("auto", "grpc"))) as device:
        assert device.interface_version == 4


@step
def uploads(client: Client) -> None:
    """Prepare a model with a constant that is new to the service and too large for a message."""
    constant = np.random.default_rng(client.rng.randrange(2**32)).standard_normal(2**20).astype(np.float32)
    builder = nnhal.ModelBuilder()
    wide = Operand(T.TENSOR_FLOAT32, constant.shape)
    x = builder.input(wide.type, wide.dimensions)
    builder.output(builder.add(Op.ADD, x, builder.constant(constant), 0, output=wide))
    device = client.rng.choice(client.devices)
    with device.prepare(builder.build()).result(60) as prepared:
        value = client.ones(2**20)
        assert_same(prepared.execute([value])[0], value + constant)


@step
def preparations(client: Client) -> None:
    """Start several preparations at once and cancel one."""
    started = [device.prepare(ADD) for device in client.devices for _ in range(2)]
    started.pop().cancel()
    x = client.ones()
    for preparation in started:
        with preparation.result(60) as prepared:
            assert_same(prepared.execute([x, x])[0], 2 * x)


@step
def executions(client: Client) -> None:
    """Execute with small and large inputs, over shared memory and over gRPC."""
    for prepared in client.add:
        x = client.ones(client.rng.choice(SIZES))
        assert_same(prepared.execute([x, x], measure_timing=True)[0], 2 * x)


@step
def buffers(client: Client) -> None:
    """Write a buffer with one execution and read it with another."""
    for device, prepared in zip(client.devices, client.fixed, strict=True):
        a, b = client.ones(), client.ones()
        with device.allocate(inputs=[(prepared, 0)], outputs=[(prepared, 0)]) as buffer:
            buffer.write(a)
            assert_same(prepared.execute([buffer, b])[0], a + b)
            prepared.execute([a, b], outputs=[buffer])
            assert_same(prepared.execute([buffer, b])[0], a + 2 * b)
            assert_same(buffer.read(), a + b)


def burst(client: Client, prepared: "nnhal.PreparedModel") -> None:
    """Run several executions in flight, with one cached input."""
    size = client.rng.choice(SIZES)
    with prepared.burst() as opened:
        kept_value, values = client.ones(size), [client.ones(size) for _ in range(3)]
        kept = opened.keep(kept_value)
        for value, future in [(value, opened.submit([kept, value])) for value in values]:
            assert_same(future.result(60)[0], kept_value + value)


@step
def bursts_over_the_data_socket(client: Client) -> None:
    """Run a burst over shared memory."""
    burst(client, client.add[0])


@step
def bursts_over_grpc(client: Client) -> None:
    """Run a burst over a gRPC stream."""
    burst(client, client.add[1])


@step
def fences(client: Client) -> None:
    """Run a chain of fenced executions that waits for a fence of the client."""
    for device, prepared in zip(client.devices, client.fixed, strict=True):
        x, go = client.ones(), device.fence()
        links = [prepared.execute_fenced([x, x], wait_for=[go])]
        for _ in range(4):
            links.append(prepared.execute_fenced([links[-1].outputs[0], x], duration=60))
        go.signal()
        assert_same(links[-1].result(60)[0], 6 * x)


@step
def reusable_executions(client: Client) -> None:
    """Create a reusable execution, change an input, and run it directly and fenced."""
    for prepared in client.fixed:
        a, b, c = client.ones(), client.ones(), client.ones()
        with prepared.reusable([a, b]) as execution:
            assert_same(execution.run()[0], a + b)
            execution.write({"left": c})
            assert_same(execution.run_fenced().result(60)[0], c + b)


@step
def stored_models(client: Client) -> None:
    """Save a model under a token and prepare it from the cache, while other clients use the same entries."""
    connection = client.rng.choice(client.devices)._connection
    cache = types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=client.rng.choice(TOKENS))
    again = device_pb2.PrepareModelFromCacheRequest(session=connection.session, cache=cache)
    connection.discard(notified_handle(connection.device.PrepareModel(saving_request(connection.session, cache))))
    connection.discard(notified_handle(connection.device.PrepareModelFromCache(again)))
    connection.flush_releases()


@step
def cache_files(client: Client) -> None:
    """Open, write and read cache files, and prepare with them. Concurrent clients damage each other's files."""
    connection = client.rng.choice(client.devices)._connection
    session, files = connection.session, cache_pb2_grpc.CacheStub(connection._channel)
    mode, number = cache_pb2.ACCESS_MODE_READ_WRITE, client.rng.randrange(2)
    model, data, plain = (
        files.Open(cache_pb2.OpenCacheFileRequest(session=session, name=f"{kind}-{number}", mode=mode)).file
        for kind in ("model", "data", "plain")
    )
    files.Write(cache_pb2.WriteCacheFileRequest(session=session, file=plain, data=b"hello"))
    files.Seek(cache_pb2.SeekCacheFileRequest(session=session, file=plain, offset=1))
    assert files.Read(cache_pb2.ReadCacheFileRequest(session=session, file=plain, length=2)).data == b"el"
    cache = types_pb2.CompilationCache(model_cache=[model], data_cache=[data], token=TOKENS[0])
    prepared = notified_handle(connection.device.PrepareModel(saving_request(session, cache)))
    connection.discard(model, data, plain, prepared)
    connection.flush_releases()


def saving_request(session: bytes, cache: types_pb2.CompilationCache) -> device_pb2.PrepareModelRequest:
    """Return a request that prepares and saves a small model."""
    return device_pb2.PrepareModelRequest(
        session=session,
        model=add_chain(3),
        preference=enums_pb2.EXECUTION_PREFERENCE_FAST_SINGLE_ANSWER,
        priority=enums_pb2.PRIORITY_MEDIUM,
        cache=cache,
    )


def notified_handle(events: Iterable[device_pb2.PrepareModelEvent]) -> bytes:
    """Return the handle of the prepared model, and assert that the preparation succeeded."""
    *_, last = events
    assert last.notify.status == enums_pb2.ERROR_STATUS_NONE, last.notify.reason
    return last.notify.prepared_model
