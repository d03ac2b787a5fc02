"""Clients that break the contract: the errors that they get. Other clients work all the time and must not notice."""

import hashlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import grpc
import numpy as np
import pytest

from nnhal.types import ErrorKind, ErrorStatus
from nnhal.types import OperandType as T
from nnhal.types import OperationType as Op
from nnhal.v1 import device_pb2, memory_pb2, prepared_model_pb2, session_pb2, types_pb2
from nnhal.wire import model_message
from tests.concurrency import wait_until
from tests.driver.one_operation import int_tensor, model_of, tensor
from tests.end_to_end.support.allowed_outcomes import WATCHDOG_S, CallResult, check_call
from tests.end_to_end.support.attacked_service import attacked_service
from tests.end_to_end.support.raw_client import add_chain, prepare_request
from tests.end_to_end.support.rpc_methods import METHODS
from tests.end_to_end.support.service_process import Service
from tests.end_to_end.support.valid_requests import CONTENT, Stage, branches, inline_request, loop

INVALID = ErrorStatus.INVALID_ARGUMENT
Message = Any


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with attacked_service(tmp_path_factory.mktemp("victim")) as running:
        yield running


@pytest.fixture
def stage(service: Service) -> Iterator[Stage]:
    opened = Stage(service.target)
    yield opened
    opened.close()


def send(stage: Stage, name: str, *requests: Message) -> CallResult:
    raw = [request.SerializeToString() for request in requests]
    return check_call(lambda: METHODS[name].call(stage.channel, raw, WATCHDOG_S))


def untyped(stage: Stage) -> Any:
    """Return the channel without its type, for calls without message classes."""
    return stage.channel


def prepare(stage: Stage, model: types_pb2.Model) -> CallResult:
    return send(stage, "Device.PrepareModel", prepare_request(stage.raw, model))


def execute(stage: Stage, request: types_pb2.Request, model: bytes = b"") -> CallResult:
    message = prepared_model_pb2.ExecuteSynchronouslyRequest(
        session=stage.session, prepared_model=model or stage.model, request=request
    )
    return send(stage, "PreparedModel.ExecuteSynchronously", message)


# ---- Memory ---------------------------------------------------------------------------------------------


def create(stage: Stage, **fields: Any) -> CallResult:
    return send(stage, "MemoryService.Create", memory_pb2.CreateMemoryRequest(session=stage.session, **fields))


def upload(stage: Stage, memory: bytes, *chunks: tuple[int, bytes]) -> CallResult:
    requests = [
        memory_pb2.UploadRequest(session=stage.session, memory=memory, offset=offset, data=data)
        for offset, data in chunks
    ]
    return send(stage, "MemoryService.Upload", *requests)


@pytest.mark.parametrize("size", [0, -1, -(2**63)])
def test_sizes_below_one_are_rejected(stage: Stage, size: int) -> None:
    assert create(stage, size=size).status == INVALID


@pytest.mark.parametrize("size", [2**31 + 1, 2**40, 2**63 - 1])
def test_sizes_above_the_limit_are_rejected(stage: Stage, size: int) -> None:
    result = create(stage, size=size)
    assert result.detail is not None
    assert result.detail.limit == "pool_bytes"


@pytest.mark.parametrize("length", [1, 31, 33, 1000])
def test_digests_of_wrong_length_are_rejected(stage: Stage, length: int) -> None:
    assert create(stage, size=64, sha256=bytes(length)).status == INVALID


@pytest.mark.parametrize(
    ("chunks", "complaint"),
    [
        ([], "the upload is empty"),
        ([(0, CONTENT[:-1])], "63 bytes were uploaded"),
        ([(0, CONTENT), (0, b"x")], "65 bytes were uploaded"),
        ([(0, CONTENT[::-1])], "do not match the sha256 digest"),
        ([(0, CONTENT + b"x")], "lie outside"),
        ([(-1, CONTENT)], "lie outside"),
        ([(1, CONTENT)], "lie outside"),
        ([(2**63 - 1, CONTENT)], "lie outside"),
        ([(-(2**63), b"")], "lie outside"),
    ],
)
def test_uploads_of_wrong_bytes_are_rejected(stage: Stage, chunks: Sequence[tuple[int, bytes]], complaint: str) -> None:
    salt = hashlib.sha256(repr(chunks).encode()).digest()
    # the bytes must be new: the service shares memory objects with equal digests
    content = salt + CONTENT[32:]
    digest = hashlib.sha256(content).digest()
    (created,) = create(stage, size=64, sha256=digest).responses
    assert isinstance(created, memory_pb2.CreateMemoryResponse)
    result = upload(stage, created.memory, *chunks)
    assert (result.status, complaint in result.reason) == (INVALID, True), result
    assert upload(stage, created.memory, (0, content)).code == grpc.StatusCode.OK
    assert upload(stage, created.memory, (0, content)).status == INVALID, "a complete memory object is read-only"


@pytest.mark.parametrize(("offset", "length"), [(-1, 4), (65, 0), (0, 65), (0, -1), (2**63 - 1, 1), (1, 2**63 - 1)])
def test_reads_out_of_bounds_are_rejected(stage: Stage, offset: int, length: int) -> None:
    request = memory_pb2.ReadRequest(session=stage.session, memory=stage.memory, offset=offset, length=length)
    assert send(stage, "MemoryService.Read", request).status == INVALID


def test_cancelled_uploads(stage: Stage) -> None:
    for stop_after in (0, 1, 3):
        ended = threading.Event()

        def chunks(count: int = stop_after, over: threading.Event = ended) -> Iterator[memory_pb2.UploadRequest]:
            for i in range(count):
                yield memory_pb2.UploadRequest(session=stage.session, memory=stage.memory, offset=i, data=b"x")
            over.wait(WATCHDOG_S)

        call = stage.raw.memory.Upload.future(chunks())
        time.sleep(0.05)
        call.cancel()
        ended.set()
    assert upload(stage, stage.memory, (0, CONTENT)).code == grpc.StatusCode.OK


@pytest.mark.slow
def test_stalled_uploads_do_not_block_others(stage: Stage, service: Service) -> None:
    """The service has 32 threads for transfers, and cancels an upload after 2 s without a chunk."""
    over = threading.Event()

    def chunks() -> Iterator[memory_pb2.UploadRequest]:
        yield memory_pb2.UploadRequest(session=stage.session, memory=stage.memory, data=b"x")
        over.wait(WATCHDOG_S)

    stuck = [stage.raw.memory.Upload.future(chunks()) for _ in range(40)]
    assert upload(stage, stage.memory, (0, CONTENT)).code == grpc.StatusCode.OK
    assert {call.code() for call in stuck} == {grpc.StatusCode.CANCELLED}
    over.set()
    assert service.logged("transfer-stalled")


def test_memory_that_changes_during_an_execution(stage: Stage) -> None:
    """Indices are checked before they are used, and must not change in between."""
    rows = 2**18
    model = model_of(
        Op.GATHER,
        [(tensor(T.TENSOR_FLOAT32, (2,)), 0), (tensor(T.INT32), 0), (tensor(T.TENSOR_INT32, (rows,)), 0)],
        [tensor(T.TENSOR_FLOAT32)],
        constants=False,
    )
    handle = prepare(stage, model_message(model)).prepared_model
    (created,) = create(stage, size=4 * rows).responses
    assert isinstance(created, memory_pb2.CreateMemoryResponse)
    request = types_pb2.Request()
    request.pools.add().pool.inline = bytes(8)
    request.pools.add().pool.mapped.memory = created.memory
    request.pools.add().returned.SetInParent()
    request.inputs.add(location=types_pb2.DataLocation(length=8))
    request.inputs.add(location=types_pb2.DataLocation(pool_index=1, length=4 * rows))
    request.outputs.add(location=types_pb2.DataLocation(pool_index=2))
    over = threading.Event()

    def change() -> None:
        good, bad = bytes(4 * rows), b"\x7f" * 4 * rows
        while not over.is_set():
            upload(stage, created.memory, (0, bad))
            upload(stage, created.memory, (0, good))

    changing = threading.Thread(target=change)
    changing.start()
    try:
        ends = {execute(stage, request, handle).code for _ in range(100)}
    finally:
        over.set()
        changing.join()
    assert ends <= {grpc.StatusCode.OK, grpc.StatusCode.INTERNAL}


# ---- Handles and sessions -------------------------------------------------------------------------------


def test_handles_of_another_kind_look_unknown(stage: Stage) -> None:
    for name, absent, others in (
        ("prepared_model", bytes(16), (stage.memory, stage.session, b"", stage.model[:-1], stage.model + b"x")),
        ("memory", bytes(16), (stage.model, stage.session, b"", stage.memory[:-1])),
    ):
        results = []
        for handle in (absent, *others):
            if name == "memory":
                request: Message = memory_pb2.ReadRequest(session=stage.session, memory=handle)
                results.append(send(stage, "MemoryService.Read", request))
            else:
                results.append(execute(stage, inline_request(), handle or b"\0"))
        details = [result.detail for result in results if result.detail is not None]
        assert len(details) == len(results) and details[0].kind == ErrorKind.UNKNOWN_HANDLE
        for detail in details:
            detail.request = ""
        assert all(detail == details[0] for detail in details)


def test_calls_in_a_closed_session(stage: Stage) -> None:
    calls = stage.calls()
    stage.raw.sessions.Close(session_pb2.CloseRequest(session=stage.session))
    for name, messages in calls:
        if "session" in messages[0].DESCRIPTOR.fields_by_name and messages[0].session:  # type: ignore[attr-defined]
            result = send(stage, name, *messages)
            assert result.detail is not None, name
            assert result.detail.kind in (ErrorKind.SESSION_LOST, ErrorKind.UNIMPLEMENTED), name


def test_streams_of_a_session_are_limited(stage: Stage) -> None:
    """A client that attaches to its session many times leaves no streams."""
    request = session_pb2.OpenRequest(session=stage.session)
    for _ in range(100):
        assert send(stage, "Session.Open", request).status == ErrorStatus.NONE
    streams = [stage.raw.sessions.Open(request) for _ in range(15)]
    assert [next(stream).opened.session for stream in streams] == [stage.session] * 15
    rejected = send(stage, "Session.Open", request)
    assert rejected.detail is not None
    assert rejected.detail.limit == "session_streams"
    for stream in streams:
        stream.cancel()
    assert wait_until(lambda: send(stage, "Session.Open", request).status == ErrorStatus.NONE)


@pytest.mark.parametrize(("number", "name"), [(1, "\x1b[31m"), (2, "\n12:00:00.000 INFO "), (3, "\r"), (4, "\u202e")])
def test_client_name_is_logged_in_one_short_line(stage: Stage, service: Service, number: int, name: str) -> None:
    name += f"FORGED{number}" + "x" * 100_000
    assert send(stage, "Session.Open", session_pb2.OpenRequest(client_name=name)).status == ErrorStatus.NONE
    (line,) = [line for line in service.log.read_text().split("\n") if f"FORGED{number}" in line]
    assert " session-opened " in line
    assert line.isprintable()
    assert len(line) < 300


# ---- Models ---------------------------------------------------------------------------------------------


def _changed_chain(change: Callable[[types_pb2.Model], object]) -> types_pb2.Model:
    model = add_chain(3)
    change(model)
    return model


def _refer(model: types_pb2.Model, *callees: int) -> None:
    """Add referenced subgraphs: subgraph i refers to subgraph `callees[i]`."""
    for callee in callees:
        model.referenced.add().CopyFrom(branches(1).main)
        model.referenced[-1].operands[1].location.offset = callee


def _type(model: types_pb2.Model, type_: int) -> None:
    model.main.operands[0].type = type_  # type: ignore[assignment]


def _operation(model: types_pb2.Model, type_: int) -> None:
    model.main.operations[0].type = type_  # type: ignore[assignment]


def _lifetime(model: types_pb2.Model, lifetime: int) -> None:
    model.main.operands[0].lifetime = lifetime  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda m: _refer(m, 0), "V-MODEL-03"),
        (lambda m: _refer(m, 1, 0), "V-MODEL-03"),
        (lambda m: _refer(m, 1, 2, 3, 0), "V-MODEL-03"),
        (lambda m: _refer(m, 99), "V-MODEL-03"),
        (lambda m: _refer(m, 2**40), "V-WIRE-04"),
        (lambda m: m.main.operations.reverse(), "V-SUBGRAPH-08"),
        (lambda m: m.main.operations[0].inputs.__setitem__(0, 2**31 - 1), "V-OPERATION-02"),
        (lambda m: m.main.operations[0].inputs.__setitem__(0, -(2**31)), "V-WIRE-03"),
        (lambda m: m.main.operations[0].inputs.extend([0] * 90_000), "V-OPERATION-04"),
        (lambda m: m.main.operations[0].outputs.extend([4] * 90_000), "V-OPERATION-04"),
        (lambda m: m.main.output_indexes.append(2**31 - 1), "V-SUBGRAPH-04"),
        (lambda m: m.main.operands[0].dimensions.extend([2**31 - 1] * 100_000), "V-OPERAND-04"),
        (lambda m: m.main.operands[0].dimensions.append(-1), "V-WIRE-03"),
        (lambda m: setattr(m.main.operands[0].location, "offset", -1), "V-WIRE-04"),
        (lambda m: setattr(m.main.operands[0].location, "length", 2**63 - 1), "V-WIRE-04"),
        (lambda m: setattr(m.main.operands[0].location, "offset", 2**32 - 1), "V-OPERAND-17"),
        (lambda m: setattr(m.main.operands[0], "scale", float("nan")), "V-OPERAND-07"),
        (lambda m: setattr(m.main.operands[0], "scale", float("inf")), "V-OPERAND-07"),
        (lambda m: _type(m, 99), "V-OPERAND-01"),
        (lambda m: _type(m, -1), "V-WIRE-01"),
        (lambda m: _type(m, 10000), "V-WIRE-02"),
        (lambda m: _operation(m, 9999), "V-OPERATION-01"),
        (lambda m: _operation(m, -(2**31)), "V-WIRE-01"),
        (lambda m: _lifetime(m, 7), "V-WIRE-06"),
        (lambda m: _lifetime(m, -1), "V-WIRE-06"),
        (lambda m: m.main.operands[0].extra_params.SetInParent(), "V-WIRE-07"),
        (lambda m: m.pools.add(), "V-WIRE-07"),
        (lambda m: m.ClearField("main"), "V-SUBGRAPH-01"),
        (lambda m: m.extension_name_to_prefix.add(name="a.b", prefix=2**32 - 1), "V-EXT-06"),
    ],
)
def test_models_that_break_a_rule(stage: Stage, change: Callable[[types_pb2.Model], object], rule: str) -> None:
    model = _changed_chain(change)
    for name in ("Device.PrepareModel", "Device.GetSupportedOperations"):
        if name == "Device.PrepareModel":
            request: Message = prepare_request(stage.raw, model)
        else:
            request = device_pb2.GetSupportedOperationsRequest(session=stage.session, model=model)
        result = send(stage, name, request)
        assert result.detail is not None
        assert (result.detail.status, result.detail.rule) == (INVALID, rule), result.detail


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        (lambda m: m.main.operands.extend([types_pb2.Operand()] * 200_001), "operands"),
        (lambda m: m.main.operations.extend([types_pb2.Operation()] * 100_001), "operations"),
        (lambda m: m.main.operations[0].inputs.extend([0] * 1_000_001), "arguments"),
        (lambda m: m.referenced.extend([types_pb2.Subgraph()] * 10_001), "subgraphs"),
        (lambda m: m.pools.extend([types_pb2.Memory(inline=b"x")] * 10_001), "pools"),
    ],
)
def test_models_above_a_limit(stage: Stage, change: Callable[[types_pb2.Model], object], limit: str) -> None:
    result = prepare(stage, _changed_chain(change))
    assert result.detail is not None
    assert result.detail.limit == limit


def test_depth_of_nested_subgraphs_is_limited(stage: Stage) -> None:
    good = prepare(stage, branches(60))
    handle = good.prepared_model
    assert execute(stage, inline_request(), handle).code == grpc.StatusCode.OK
    for depth in (64, 5000):
        result = prepare(stage, branches(depth))
        assert result.status == ErrorStatus.GENERAL_FAILURE
        assert "nested" in result.reason


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"preference": 7}, "V-PREP-01"),
        ({"preference": -1}, "V-PREP-01"),
        ({"priority": 3}, "V-PREP-02"),
        ({"deadline_ns": -2}, "V-PREP-03"),
        ({"deadline_ns": -(2**63)}, "V-PREP-03"),
    ],
)
def test_preparation_arguments_out_of_range(stage: Stage, fields: dict[str, int], rule: str) -> None:
    request = prepare_request(stage.raw, add_chain(1))
    for name, value in fields.items():
        setattr(request, name, value)
    result = send(stage, "Device.PrepareModel", request)
    assert result.detail is not None
    assert (result.detail.status, result.detail.rule) == (INVALID, rule)


# ---- Requests -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["pool_index", "offset", "length", "padding"])
@pytest.mark.parametrize("value", [-1, 1, 3, 9, 2**31 - 1, 2**32 - 1, 2**32, 2**63 - 1, -(2**63)])
def test_locations_out_of_bounds(stage: Stage, field: str, value: int) -> None:
    value = max(min(value, 2**31 - 1), -(2**31)) if field == "pool_index" else value
    for arguments in ("inputs", "outputs"):
        request = inline_request()
        setattr(getattr(request, arguments)[0].location, field, value)
        if (arguments, field, value) != ("outputs", "pool_index", 1):
            assert execute(stage, request).status == INVALID, (arguments, field, value)


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r.pools.add(),
        lambda r: r.pools[0].pool.Clear(),
        lambda r: r.pools.add(token=0),
        lambda r: r.pools.add(token=1),
        lambda r: r.pools.add(token=-5),
        lambda r: setattr(r.pools[1].returned, "size", 0),
        lambda r: setattr(r.pools[1].returned, "size", -(2**63)),
        lambda r: r.inputs[0].dimensions.extend([2**31 - 1] * 1000),
        lambda r: r.inputs[0].dimensions.extend([-1, -1]),
        lambda r: r.outputs[0].dimensions.extend([2**31 - 1] * 2),
        lambda r: r.inputs.add(),
        lambda r: r.ClearField("outputs"),
        lambda r: r.Clear(),
        lambda r: setattr(r.pools.add().pool, "shared", 5),
        lambda r: setattr(r.inputs[0], "has_no_value", True),
    ],
)
def test_requests_that_break_a_rule(stage: Stage, change: Callable[[types_pb2.Request], object]) -> None:
    request = inline_request()
    change(request)
    assert execute(stage, request).status == INVALID


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        (lambda r: r.inputs.extend([types_pb2.RequestArgument()] * 1_000_001), "arguments"),
        (lambda r: r.pools.extend([types_pb2.RequestMemoryPool()] * 10_001), "pools"),
        (lambda r: setattr(r.pools[1].returned, "size", 2**63 - 1), "pool_bytes"),
    ],
)
def test_requests_above_a_limit(stage: Stage, change: Callable[[types_pb2.Request], object], limit: str) -> None:
    request = inline_request()
    change(request)
    result = execute(stage, request)
    assert result.detail is not None
    assert result.detail.limit == limit


def test_ranks_above_the_maximum(stage: Stage) -> None:
    ones = [1] * 70
    shapes = {
        "constant": model_of(Op.ABS, [(tensor(T.TENSOR_FLOAT32, ones), np.ones(1))], [tensor(T.TENSOR_FLOAT32)]),
        "input": model_of(Op.ABS, [(tensor(T.TENSOR_FLOAT32), 0)], [tensor(T.TENSOR_FLOAT32)], constants=False),
        "output": model_of(
            Op.RESHAPE,
            [(tensor(T.TENSOR_FLOAT32, (2,)), 0), int_tensor([*ones, 2])],
            [tensor(T.TENSOR_FLOAT32)],
            constants=False,
        ),
    }
    for name, model in shapes.items():
        result = prepare(stage, model_message(model))
        if name == "output":  # its shape is counted before it is read
            assert result.status == ErrorStatus.GENERAL_FAILURE, (name, result)
            assert "shape has 71 elements; this device takes at most 64" in result.reason, (name, result)
            continue
        if name != "constant":
            handle = result.prepared_model
            request = inline_request()
            request.inputs[0].dimensions.extend([*ones, 2])
            result = execute(stage, request, handle)
        assert result.status == ErrorStatus.GENERAL_FAILURE, (name, result)
        assert "rank 7" in result.reason, (name, result)


@pytest.mark.parametrize("operation", [Op.LOGISTIC, Op.TANH])
def test_infinite_scales(stage: Stage, operation: Op) -> None:
    scale, zero_point = (1 / 256, 0) if operation == Op.LOGISTIC else (1 / 128, 128)
    q8 = T.TENSOR_QUANT8_ASYMM
    model = model_of(operation, [(tensor(q8, (8,), np.inf), 0)], [tensor(q8, (8,), scale, zero_point)], constants=False)
    handle = prepare(stage, model_message(model)).prepared_model
    result = execute(stage, inline_request(), handle)
    assert result.status == ErrorStatus.GENERAL_FAILURE
    assert operation.name in result.reason


# ---- Calls ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(METHODS))
def test_bytes_that_cannot_be_decoded(stage: Stage, name: str) -> None:
    method = METHODS[name]
    result = check_call(lambda: method.call(stage.channel, [b"\xff\xff\xff"], WATCHDOG_S))
    if result.code != grpc.StatusCode.UNIMPLEMENTED:
        assert (result.code, result.status) == (grpc.StatusCode.INVALID_ARGUMENT, INVALID)
        assert "cannot be decoded" in result.reason


@pytest.mark.parametrize("name", ["Device.GetType", "Session.Open", "MemoryService.Upload", "Burst.Stream"])
def test_messages_above_the_maximum_size(stage: Stage, name: str) -> None:
    result = check_call(partial(METHODS[name].call, stage.channel, [bytes(2**22 + 1)], WATCHDOG_S))
    assert result.code in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNIMPLEMENTED)


def test_unknown_methods(stage: Stage) -> None:
    for path in ("/nnhal.v1.Device/Nothing", "/nnhal.v1.Nothing/Open", "/", "/x"):
        with pytest.raises(grpc.RpcError) as caught:
            untyped(stage).unary_unary(path)(b"", timeout=WATCHDOG_S)
        assert isinstance(caught.value, grpc.Call)
        assert caught.value.code() == grpc.StatusCode.UNIMPLEMENTED


def _unary_call_with(call: Any, requests: Sequence[bytes]) -> Iterator[Any]:
    yield call(iter(requests), timeout=WATCHDOG_S)


@pytest.mark.parametrize("count", [0, 2])
def test_wrong_number_of_requests(stage: Stage, count: int) -> None:
    """Call methods that take one request with none, and with two."""
    for name, method in METHODS.items():
        if not method.takes_stream and not method.descriptor.server_streaming:
            call = untyped(stage).stream_unary(method.path)
            result = check_call(partial(_unary_call_with, call, [b""] * count))
            assert result.code == grpc.StatusCode.INVALID_ARGUMENT or count == 2, name


def test_calls_without_a_request_do_not_block_others(stage: Stage) -> None:
    over = threading.Event()

    def nothing() -> Iterator[bytes]:
        over.wait(WATCHDOG_S)
        yield from ()

    paths = [METHODS["Device.GetType"].path] * 40 + [METHODS["Session.Close"].path] * 10
    half_open = [untyped(stage).stream_unary(path).future(nothing()) for path in paths]
    assert send(stage, "Device.GetType", device_pb2.DeviceRequest()).code == grpc.StatusCode.OK
    for call in half_open:
        call.cancel()
    over.set()
    assert send(stage, "Device.GetType", device_pb2.DeviceRequest()).code == grpc.StatusCode.OK


def test_calls_cancelled_at_random_times(stage: Stage) -> None:
    moments = random.Random(1)
    execution = prepared_model_pb2.ExecuteSynchronouslyRequest(
        session=stage.session, prepared_model=stage.model, request=inline_request()
    )
    chunk = memory_pb2.UploadRequest(session=stage.session, memory=stage.memory, data=CONTENT)
    reading = memory_pb2.ReadRequest(session=stage.session, memory=stage.memory)
    for _ in range(60):
        calls: list[Any] = [
            stage.raw.device.PrepareModel(prepare_request(stage.raw, add_chain(30))),
            stage.raw.prepared_model.ExecuteSynchronously.future(execution),
            stage.raw.memory.Upload.future(iter([chunk] * 3)),
            stage.raw.memory.Read(reading),
            stage.raw.sessions.Open(session_pb2.OpenRequest(session=stage.session)),
        ]
        moments.shuffle(calls)
        for call in calls:
            time.sleep(moments.random() * 0.004)
            call.cancel()
    assert wait_until(lambda: execute(stage, inline_request()).code == grpc.StatusCode.OK)


@pytest.mark.parametrize("letter", ["x", "ü", "€", "\0", "\U0001f600"])
def test_long_reasons_reach_the_client(stage: Stage, letter: str) -> None:
    """The service shortens reasons: gRPC would replace an error whose trailers have more than 8 KB."""
    result = send(stage, "Device.GetType", device_pb2.DeviceRequest(device=letter * 100_000))
    assert result.detail is not None
    assert result.detail.status == INVALID
    assert "there is no device" in result.reason


def test_endless_loops_end_at_the_loop_timeout(stage: Stage) -> None:
    handle = prepare(stage, loop()).prepared_model
    request = prepared_model_pb2.ExecuteSynchronouslyRequest(
        session=stage.session,
        prepared_model=handle,
        request=inline_request(),
    )
    for timeout in (0, 10**6, 3 * 10**8):
        request.loop_timeout_duration_ns = timeout
        result = send(stage, "PreparedModel.ExecuteSynchronously", request)
        assert result.status == ErrorStatus.MISSED_DEADLINE_TRANSIENT
        assert "loop timeout" in result.reason
    request.loop_timeout_duration_ns = 2**63 - 1
    assert send(stage, "PreparedModel.ExecuteSynchronously", request).status == INVALID
