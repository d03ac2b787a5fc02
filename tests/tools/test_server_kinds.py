"""The measurement of server kinds: its arithmetic, its checks, and the right bytes from every kind."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
import pytest

from nnhal.errors import HalError
from nnhal.v1 import burst_pb2, burst_pb2_grpc, prepared_model_pb2, prepared_model_pb2_grpc, types_pb2
from tools.benchmark import server_kinds as bench

TINY = bench.Payload("tiny one", "", "float32", (1, 5), 6, 5)
CHECKING = [name for name, kind in bench.KINDS.items() if not kind.bare]


def tiny_output() -> bytes:
    return (sum(TINY.example()).to_bytes(4, "little") * 2)[:6]


def tiny_request() -> types_pb2.Request:
    request = bench.request_of(TINY)
    request.pools[0].pool.inline = TINY.example()
    return request


@contextmanager
def running(name: str) -> Iterator[grpc.Channel]:
    """A server of the kind in this process, and a channel to it."""
    kind, reached, stop = bench.KINDS[name], queue.SimpleQueue[str](), threading.Event()
    handlers = kind.handlers([bench.Model(TINY, real=False)])
    thread = threading.Thread(target=kind.serve, args=(handlers, "127.0.0.1:0", reached.put, stop.wait))
    thread.start()
    try:
        with grpc.insecure_channel(reached.get(timeout=30)) as channel:
            yield channel
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()


def test_ratios_are_taken_round_by_round_to_the_better_floor() -> None:
    rounds = {"x": [150.0, 250.0, 800.0], "slow": [110.0, 210.0, 390.0], "fast": [100.0, 200.0, 400.0]}
    # The ratio of the medians would be 1.25.
    assert bench.summarise(rounds, ["slow", "fast"])["x"] == bench.Summary(250.0, 1.5)
    assert bench.summarise(rounds, ["slow", "fast"])["fast"] == bench.Summary(200.0, 1.0)
    assert bench.summarise(rounds, ["slow", "fast"], more_is_better=True)["slow"].ratio == 1.0


def test_a_wrong_output_ends_the_measurement() -> None:
    with pytest.raises(RuntimeError, match="wrong output"):
        bench.median_latency_us(lambda: b"no", 1, b"yes")


@pytest.mark.parametrize("method", bench.METHODS)
@pytest.mark.parametrize("name", bench.KINDS)
def test_every_kind_gives_the_engines_bytes(name: str, method: str) -> None:
    caller = bench.CALLERS[method, bench.KINDS[name].bare]
    with running(name) as channel, caller(channel, TINY) as call:
        assert [call(), call()] == [tiny_output()] * 2


def test_a_round_has_a_row_for_each_kind_and_a_floor_of_one() -> None:
    with running("threads") as threads, running("bare threads") as bare:
        channels = {"threads": threads, "bare threads": bare}
        rows = bench.measure(channels, TINY, "stream", bench.Effort(1, 1.0, 0.0), real=False)
    assert [row.kind for row in rows] == list(channels)
    assert (rows[1].ratio, rows[1].calls_ratio) == (1.0, 1.0)
    assert all(row.median_us > 0 and row.calls_per_s > 0 for row in rows)
    assert all(
        f"{row.median_us:.0f}" in line for row, line in zip(rows, bench.table(rows).splitlines()[2:], strict=True)
    )


@pytest.mark.parametrize("name", CHECKING)
def test_both_kinds_look_handles_up(name: str) -> None:
    message = prepared_model_pb2.ExecuteSynchronouslyRequest(
        session=bench.SESSION, prepared_model=bench.handle("another"), request=tiny_request()
    )
    with running(name) as channel, pytest.raises(grpc.RpcError, match="no such handle"):
        prepared_model_pb2_grpc.PreparedModelStub(channel).ExecuteSynchronously(message, timeout=30)


@pytest.mark.parametrize("name", CHECKING)
def test_a_burst_goes_on_after_an_error(name: str) -> None:
    good = burst_pb2.BurstExecuteRequest(
        session=bench.SESSION, burst=bench.handle(f"burst {TINY.name}"), request=tiny_request()
    )
    bad = burst_pb2.BurstExecuteRequest()
    bad.CopyFrom(good)
    bad.request.inputs[0].location.offset = 1
    messages = [burst_pb2.BurstStreamRequest(execute=each) for each in (bad, good)]
    with running(name) as channel:
        first, second = burst_pb2_grpc.BurstStub(channel).Stream(iter(messages), timeout=30)
    assert "ends past its pool" in first.error.reason
    assert second.result.returned[0].inline == tiny_output()


def room_of_5_bytes(request: types_pb2.Request) -> None:
    request.outputs[0].location.length = TINY.output_bytes
    request.pools[1].returned.size = 5


REFUSED: dict[str, Callable[[types_pb2.Request], object]] = {
    "one input and one output": lambda request: request.inputs.add(),
    "has no value": lambda request: setattr(request.inputs[0], "has_no_value", True),
    "pool 2 of 2": lambda request: setattr(request.outputs[0].location, "pool_index", 2),
    "pool -1 of 2": lambda request: setattr(request.inputs[0].location, "pool_index", -1),
    "negative": lambda request: setattr(request.inputs[0].location, "offset", -1),
    "ends past its pool of 20 bytes": lambda request: setattr(request.inputs[0].location, "padding", 1),
    "ends past its pool of 5 bytes": room_of_5_bytes,
    "19 bytes, the model has 20": lambda request: setattr(request.inputs[0].location, "length", 19),
    "as large as needed": lambda request: setattr(request.outputs[0].location, "length", 6),
    "pool for outputs": lambda request: request.inputs[0].location.CopyFrom(request.outputs[0].location),
    "read-only": lambda request: request.outputs[0].location.CopyFrom(
        types_pb2.DataLocation(pool_index=0, length=TINY.output_bytes)
    ),
    "only inline and returned pools": lambda request: setattr(request.pools[1], "token", 1),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_every_check_of_a_request_refuses(reason: str) -> None:
    request = tiny_request()
    REFUSED[reason](request)
    with pytest.raises(HalError, match=reason):
        bench.bind(request, bench.Model(TINY, real=False))


def test_an_input_is_taken_from_its_place_in_the_pool() -> None:
    request = tiny_request()
    request.pools[0].pool.inline = b"1234" + TINY.example() + b"5"
    request.inputs[0].location.offset = 4
    assert bench.bind(request, bench.Model(TINY, real=False)).tobytes() == TINY.example()
