"""Throughput of two concurrent clients with SUSTAINED_SPEED on MobileNet v2, on two cores.

`python -m tests.benchmark.sustained` compares, round by round, two clients of the driver in this process with one, and
two clients of a service with two of a bare gRPC server around the same engine (see `bare.grpc_server`). Both servers
are processes of their own.
"""

import queue
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import grpc

import nnhal
import nnhal.tflite
from nnhal.types import (
    DataLocation,
    ExecutionPreference,
    Memory,
    PrepareModelConfig,
    Request,
    RequestArgument,
    ReturnedPool,
)
from nnhal_driver.backends import registry
from nnhal_driver.device import Device
from nnhal_driver.preparation.outcome import Outcome
from tests.benchmark.bare.grpc_server import MOBILENET, Call, LiteRTEngine, server_process, unary_call
from tests.benchmark.figures import Figure, model_path, show
from tests.benchmark.timing import calls_per_second, own_processes, processor_s
from tests.end_to_end.support.service_process import start_service, stop_service

IN_PROCESS = 1.8
"""Throughput that two clients must reach on two cores, in multiples of that of one."""
OVER_GRPC = 0.9
"""Share of the bare server's throughput that a service must reach."""

_CLIENTS = 2
_ROUNDS = 15
_WINDOW_S = 0.5
_CALLS = 30


def in_process() -> list[Figure]:
    """Return the scaling of two threads that call the driver, and that of two interpreters, from the same rounds."""
    outcomes: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
    device = Device("bench", registry.create(["CpuAcc", "CpuRef"]))
    config = PrepareModelConfig(ExecutionPreference.SUSTAINED_SPEED)
    device.prepare_model(nnhal.tflite.load(model_path(MOBILENET.model)), outcomes.put, config)
    prepared = outcomes.get(timeout=60).prepared_model
    assert prepared is not None
    data = MOBILENET.example()
    argument = RequestArgument(False, DataLocation(0, 0, len(data)))
    request = Request((argument,), (RequestArgument(False, DataLocation(1)),), (Memory.of(data), ReturnedPool()))

    def call() -> bytes:
        (output,) = prepared.execute_synchronously(request).returned
        assert output is not None
        return output.tobytes()

    tensor = MOBILENET.array(data)
    engines = [partial(LiteRTEngine(MOBILENET).run, tensor) for _ in range(_CLIENTS)]
    pairs = [(scaling([call] * _CLIENTS), scaling(engines)) for _ in range(_ROUNDS + 1)][1:]
    device.close()
    driver, machine = ([pair[side] for pair in pairs] for side in (0, 1))
    return [
        Figure("two clients in process against one", driver, "x", IN_PROCESS, True),
        Figure("two interpreters against one: upper bound on this machine", machine, "x", IN_PROCESS, True),
    ]


def scaling(calls: Sequence[Call]) -> float:
    """Return the throughput of all calls, divided by that of one."""
    return calls_per_second(calls, _WINDOW_S) / calls_per_second(calls[:1], _WINDOW_S)


def over_grpc() -> list[Figure]:
    """Return the throughput of two clients of a service, against two of the bare server.

    Processor time is compared as well: other processes affect it less.
    """
    with ExitStack() as stack:
        service = stack.enter_context(service_calls())
        bare = stack.enter_context(bare_calls())
        rates = [[calls_per_second(calls, _WINDOW_S) for calls in (service, bare)] for _ in range(_ROUNDS + 1)][1:]
        costs = [[processor_cost_s(calls) for calls in (service, bare)] for _ in range(_ROUNDS)]
    name = "two clients over gRPC against two of a bare server"
    return [
        Figure(name, [a / b for a, b in rates], "x", OVER_GRPC, True),
        Figure(f"{name}: by processor time", [b / a for a, b in costs], "x", OVER_GRPC, True),
    ]


def processor_cost_s(calls: Sequence[Call]) -> float:
    """Return the processor time of concurrent calls, in this process and in the servers."""
    processes = own_processes()
    before_s = processor_s(processes)
    with ThreadPoolExecutor(len(calls)) as pool:
        list(pool.map(lambda call: [call() for _ in range(_CALLS)], calls))
    return processor_s(processes) - before_s


@contextmanager
def service_calls() -> Iterator[list[Call]]:
    """Yield calls of a service, each on a connection of its own."""
    image = MOBILENET.array(MOBILENET.example())
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        service = start_service(Path(folder))
        stack.callback(stop_service, service)
        calls: list[Call] = []
        for _ in range(_CLIENTS):
            device = stack.enter_context(nnhal.connect(service.target))
            source = nnhal.tflite.load(model_path(MOBILENET.model))
            prepared = device.prepare(source, preference=ExecutionPreference.SUSTAINED_SPEED).result(60)
            calls.append(lambda prepared=prepared: prepared.execute([image])[0].tobytes())  # type: ignore[misc]
        yield calls


@contextmanager
def bare_calls() -> Iterator[list[Call]]:
    """Yield calls of the bare server, each on a connection of its own."""
    # without this option gRPC gives both channels one connection
    own = [("grpc.use_local_subchannel_pool", 1)]
    with server_process("tests.benchmark.bare.grpc_server", "127.0.0.1:0") as target, ExitStack() as stack:
        channels = [stack.enter_context(grpc.insecure_channel(target, own)) for _ in range(_CLIENTS)]
        yield [unary_call(channel, MOBILENET) for channel in channels]


if __name__ == "__main__":
    show("CpuAcc, SUSTAINED_SPEED, MobileNet v2", lambda: [*in_process(), *over_grpc()])
