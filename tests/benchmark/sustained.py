"""Two clients at once with SUSTAINED_SPEED on MobileNet v2: how well they share two cores.

`python -m tests.benchmark.sustained` compares, round by round, two clients of the driver in this process with one; and
two clients of a service with two of a bare gRPC server, of the same kind and around the same engine, which passes raw
bytes and checks nothing. Both servers are processes of their own.
"""

import queue
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import grpc
import numpy as np
import psutil

import nnhal
import nnhal.tflite
from driver.backends import registry
from driver.device import Device, Outcome
from nnhal.types import (
    DataLocation,
    ExecutionPreference,
    Memory,
    PrepareModelConfig,
    Request,
    RequestArgument,
    ReturnedPool,
)
from tests.benchmark.figures import Figure, model, show
from tests.end_to_end.conftest import start, stop
from tools.benchmark.server_kinds import PAYLOADS, Call, LiteRT, bare_unary, calls_per_second, server_process

IN_PROCESS = 1.8
"""Times the throughput of one client that two must reach on two cores."""
OVER_GRPC = 0.9
"""Of a bare server's throughput that a service must reach."""

_CLIENTS = 2
_ROUNDS = 15
_WINDOW_S = 0.5
_CALLS = 30
_MODEL = "mobilenet_v2_1.0_224_quant"
_PAYLOAD = next(payload for payload in PAYLOADS if payload.name == "mobilenet v2")


def in_process() -> list[Figure]:
    """Two threads that call the driver, against one; and two bare interpreters against one, in the same rounds."""
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    device = Device("bench", registry.create(["CpuAcc", "CpuRef"]))
    config = PrepareModelConfig(ExecutionPreference.SUSTAINED_SPEED)
    device.prepare_model(nnhal.tflite.load(model(_MODEL)), outcomes.put, config)
    prepared = outcomes.get(timeout=60).prepared_model
    assert prepared is not None
    data = _PAYLOAD.example()
    given = RequestArgument(False, DataLocation(0, 0, len(data)))
    request = Request((given,), (RequestArgument(False, DataLocation(1)),), (Memory.of(data), ReturnedPool()))

    def call() -> bytes:
        (output,) = prepared.execute_synchronously(request).returned
        assert output is not None
        return output.tobytes()

    tensor = np.frombuffer(data, _PAYLOAD.dtype).reshape(_PAYLOAD.input_shape)
    engines = [partial(LiteRT(model(_MODEL)).run, tensor) for _ in range(_CLIENTS)]
    pairs = [(scaling([call] * _CLIENTS), scaling(engines)) for _ in range(_ROUNDS + 1)][1:]
    device.close()
    ours, machine = ([pair[side] for pair in pairs] for side in (0, 1))
    return [
        Figure("two clients in process against one", ours, "x", IN_PROCESS, True),
        Figure("two bare interpreters against one: what the machine allows", machine, "x", IN_PROCESS, True),
    ]


def scaling(calls: Sequence[Call]) -> float:
    """The throughput of all, divided by that of one."""
    return calls_per_second(calls, _WINDOW_S) / calls_per_second(calls[:1], _WINDOW_S)


def over_grpc() -> list[Figure]:
    """Two clients of a service, against two of a bare server; by processor time as well, which others disturb less."""
    with ExitStack() as stack:
        ours = stack.enter_context(clients())
        theirs = stack.enter_context(bare_clients())
        rates = [[calls_per_second(calls, _WINDOW_S) for calls in (ours, theirs)] for _ in range(_ROUNDS + 1)][1:]
        costs = [[processor_s(calls) for calls in (ours, theirs)] for _ in range(_ROUNDS)]
    name = "two clients over gRPC against two of a bare server"
    return [
        Figure(name, [a / b for a, b in rates], "x", OVER_GRPC, True),
        Figure(f"{name}: by processor time", [b / a for a, b in costs], "x", OVER_GRPC, True),
    ]


def processor_s(calls: Sequence[Call]) -> float:
    """Processor time of some calls side by side, in this process and in the servers."""
    before = _used_s()
    with ThreadPoolExecutor(len(calls)) as pool:
        list(pool.map(lambda call: [call() for _ in range(_CALLS)], calls))
    return _used_s() - before


def _used_s() -> float:
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return float(sum(each.user + each.system for each in times))


@contextmanager
def clients() -> Iterator[list[Call]]:
    """Calls of a service, each on a connection of its own."""
    image = np.frombuffer(_PAYLOAD.example(), _PAYLOAD.dtype).reshape(_PAYLOAD.input_shape)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        service = start(Path(folder))
        stack.callback(stop, service)
        calls: list[Call] = []
        for _ in range(_CLIENTS):
            device = stack.enter_context(nnhal.connect(service.target))
            source = nnhal.tflite.load(model(_MODEL))
            prepared = device.prepare(source, preference=ExecutionPreference.SUSTAINED_SPEED).result(60)
            calls.append(lambda prepared=prepared: prepared.execute([image])[0].tobytes())  # type: ignore[misc]
        yield calls


@contextmanager
def bare_clients() -> Iterator[list[Call]]:
    """Calls of a bare server, each on a connection of its own."""
    # gRPC would give both channels one connection
    own = [("grpc.use_local_subchannel_pool", 1)]
    with server_process("bare threads", "127.0.0.1:0") as target, ExitStack() as stack:
        channels = [stack.enter_context(grpc.insecure_channel(target, own)) for _ in range(_CLIENTS)]
        yield [stack.enter_context(bare_unary(channel, _PAYLOAD)) for channel in channels]


if __name__ == "__main__":
    show("CpuAcc, SUSTAINED_SPEED, MobileNet v2", lambda: [*in_process(), *over_grpc()])
