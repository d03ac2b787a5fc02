"""A client that uses everything that a service offers, step by step, and checks every answer."""

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
from tests.end_to_end.raw import chain

OPEN = tensor(T.TENSOR_FLOAT32, (0,))
FIXED = tensor(T.TENSOR_FLOAT32, (1000,))
ADD = model_of(Op.ADD, [(OPEN, 0), (OPEN, 0), int32(0)], [OPEN], constants=False)
ADD_FIXED = replace(
    model_of(Op.ADD, [(FIXED, 0), (FIXED, 0), int32(0)], [FIXED], constants=False), input_names=("left", "right")
)
SIZES = (10, 100_000, 1_000_000)
"""Elements of inputs: in a message, in a larger one, and in a Memory object."""
TOKENS = [bytes([number]) * 32 for number in range(4)]
"""A few: the store must not grow with the clients."""

Step = Callable[["Client"], None]
STEPS: list[Step] = []


def step(function: Step) -> Step:
    """Registers a step."""
    STEPS.append(function)
    return function


class Client:
    """Two sessions on a service, over shared memory and over gRPC alone, with a model or two each."""

    def __init__(self, target: str, seed: int) -> None:
        self.target = target
        self.rng = random.Random(seed)
        self.near = nnhal.connect(target, timeout=60)
        self.far = nnhal.connect(target, timeout=60, transport="grpc")
        self.devices = (self.near, self.far)
        self.add = [device.prepare(ADD).result(60) for device in self.devices]
        self.fixed = [device.prepare(ADD_FIXED).result(60) for device in self.devices]

    def ones(self, size: int = 1000) -> AnyArray:
        """An input: all its elements are the same, chosen at random."""
        return np.full(size, self.rng.randrange(100), np.float32)

    def close(self) -> None:
        """Ends both sessions."""
        for device in self.devices:
            device.close()


def same(found: AnyArray, wanted: AnyArray) -> None:
    """Every answer must be right."""
    np.testing.assert_array_equal(found, wanted)


@step
def sessions(client: Client) -> None:
    """Opens and closes."""
    with nnhal.connect(client.target, timeout=60, transport=client.rng.choice(("auto", "grpc"))) as device:
        assert device.interface_version == 4


@step
def uploads(client: Client) -> None:
    """A model whose constant is new to the service and too large for a message."""
    constant = np.random.default_rng(client.rng.randrange(2**32)).standard_normal(2**20).astype(np.float32)
    builder = nnhal.ModelBuilder()
    wide = Operand(T.TENSOR_FLOAT32, constant.shape)
    x = builder.input(wide.type, wide.dimensions)
    builder.output(builder.add(Op.ADD, x, builder.constant(constant), 0, output=wide))
    device = client.rng.choice(client.devices)
    with device.prepare(builder.build()).result(60) as prepared:
        value = client.ones(2**20)
        same(prepared.execute([value])[0], value + constant)


@step
def preparations(client: Client) -> None:
    """Several at once; one is abandoned."""
    started = [device.prepare(ADD) for device in client.devices for _ in range(2)]
    started.pop().cancel()
    x = client.ones()
    for preparation in started:
        with preparation.result(60) as prepared:
            same(prepared.execute([x, x])[0], 2 * x)


@step
def executions(client: Client) -> None:
    """Small and large ones, over shared memory and over gRPC."""
    for prepared in client.add:
        x = client.ones(client.rng.choice(SIZES))
        same(prepared.execute([x, x], measure_timing=True)[0], 2 * x)


@step
def buffers(client: Client) -> None:
    """What one model writes another one reads."""
    for device, prepared in zip(client.devices, client.fixed, strict=True):
        a, b = client.ones(), client.ones()
        with device.allocate(inputs=[(prepared, 0)], outputs=[(prepared, 0)]) as buffer:
            buffer.write(a)
            same(prepared.execute([buffer, b])[0], a + b)
            prepared.execute([a, b], outputs=[buffer])
            same(prepared.execute([buffer, b])[0], a + 2 * b)
            same(buffer.read(), a + b)


def burst(client: Client, prepared: "nnhal.PreparedModel") -> None:
    """Several executions on their way, one input of which is kept."""
    size = client.rng.choice(SIZES)
    with prepared.burst() as opened:
        kept_value, values = client.ones(size), [client.ones(size) for _ in range(3)]
        kept = opened.keep(kept_value)
        for value, future in [(value, opened.submit([kept, value])) for value in values]:
            same(future.result(60)[0], kept_value + value)


@step
def bursts_over_the_data_socket(client: Client) -> None:
    """On the same machine."""
    burst(client, client.add[0])


@step
def bursts_over_grpc(client: Client) -> None:
    """A stream."""
    burst(client, client.add[1])


@step
def fences(client: Client) -> None:
    """A chain that waits for the client's own fence."""
    for device, prepared in zip(client.devices, client.fixed, strict=True):
        x, go = client.ones(), device.fence()
        links = [prepared.execute_fenced([x, x], wait_for=[go])]
        for _ in range(4):
            links.append(prepared.execute_fenced([links[-1].outputs[0], x], duration=60))
        go.signal()
        same(links[-1].result(60)[0], 6 * x)


@step
def reusable_executions(client: Client) -> None:
    """Frozen, written to, run in both ways."""
    for prepared in client.fixed:
        a, b, c = client.ones(), client.ones(), client.ones()
        with prepared.reusable([a, b]) as execution:
            same(execution.run()[0], a + b)
            execution.write({"left": c})
            same(execution.run_fenced().result(60)[0], c + b)


@step
def stored_models(client: Client) -> None:
    """Saved under a token, and prepared from it alone. Others save and load the same entries at the same time."""
    connection = client.rng.choice(client.devices)._connection
    cache = types_pb2.CompilationCache(form=types_pb2.CACHE_FORM_STORED, token=client.rng.choice(TOKENS))
    again = device_pb2.PrepareModelFromCacheRequest(session=connection.session, cache=cache)
    connection.discard(notified(connection.device.PrepareModel(saving(connection.session, cache))))
    connection.discard(notified(connection.device.PrepareModelFromCache(again)))
    connection.tidy()


@step
def cache_files(client: Client) -> None:
    """Opened, written and read; and handed to a preparation. Which is damaged where two clients do so at a time."""
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
    prepared = notified(connection.device.PrepareModel(saving(session, cache)))
    connection.discard(model, data, plain, prepared)
    connection.tidy()


def saving(session: bytes, cache: types_pb2.CompilationCache) -> device_pb2.PrepareModelRequest:
    """Prepares a small model and saves it."""
    return device_pb2.PrepareModelRequest(
        session=session,
        model=chain(3),
        preference=enums_pb2.EXECUTION_PREFERENCE_FAST_SINGLE_ANSWER,
        priority=enums_pb2.PRIORITY_MEDIUM,
        cache=cache,
    )


def notified(events: Iterable[device_pb2.PrepareModelEvent]) -> bytes:
    """The handle of the prepared model: the preparation succeeds."""
    *_, last = events
    assert last.notify.status == enums_pb2.ERROR_STATUS_NONE, last.notify.reason
    return last.notify.prepared_model
