"""Extension names in requests: every call that takes a table of names rejects malformed ones."""

from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest

from nnhal.v1 import (
    burst_pb2,
    burst_pb2_grpc,
    device_pb2,
    enums_pb2,
    prepared_model_pb2,
    types_pb2,
)
from nnhal_service.server import Server
from nnhal_service.settings import Settings
from tests.end_to_end.support.preparation_events import kinds, read_events
from tests.end_to_end.support.raw_client import (
    RawSession,
    add_chain,
    error_detail,
    execute_request,
    open_raw_session,
    prepare_request,
)

Names = list[types_pb2.ExtensionNameAndPrefix]
TABLES = [
    ([("com.Example", 1)], "V-EXT-01"),
    ([("com.exa mple", 1)], "V-EXT-01"),
    ([("example", 1)], "V-EXT-02"),
    ([("", 1)], "V-EXT-02"),
    ([("com.a", 1), ("com.a", 2)], "V-EXT-04"),
    ([("com.a", 1), ("com.b", 1)], "V-EXT-05"),
    ([("com.a", 32768)], "V-EXT-06"),
]


@pytest.fixture(scope="module")
def raw() -> Iterator[RawSession]:
    settings = Settings(listen=("127.0.0.1:0",), cache_bytes=0, backends=("CpuRef",))
    with Server(settings) as server, open_raw_session(server.addresses[0]) as session:
        yield session


@pytest.fixture(scope="module")
def prepared(raw: RawSession) -> bytes:
    return read_events(raw.device.PrepareModel(prepare_request(raw, add_chain(1))))[0][1].notify.prepared_model


@pytest.fixture(params=TABLES, ids=lambda table: f"{table[1]} {table[0]}")
def table(request: pytest.FixtureRequest) -> tuple[Names, str]:
    pairs, rule = request.param
    return [types_pb2.ExtensionNameAndPrefix(name=name, prefix=prefix) for name, prefix in pairs], rule


def check_rejected(call: Callable[[], object], rule: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    detail = error_detail(caught.value)
    assert (detail.status, detail.rule) == (enums_pb2.ERROR_STATUS_INVALID_ARGUMENT, rule)


def test_models(raw: RawSession, table: tuple[Names, str]) -> None:
    names, rule = table
    model = add_chain(1)
    model.extension_name_to_prefix.extend(names)
    query = device_pb2.GetSupportedOperationsRequest(session=raw.session, model=model)
    check_rejected(lambda: raw.device.GetSupportedOperations(query), rule)
    events, error = read_events(raw.device.PrepareModel(prepare_request(raw, model)))
    assert error is not None and kinds(events) == ["notify"]
    assert events[0].notify.rule == error_detail(error).rule == rule


def test_configurations_of_preparations(raw: RawSession, table: tuple[Names, str]) -> None:
    names, rule = table
    config = types_pb2.PrepareModelConfig(extension_name_to_prefix=names)
    request = device_pb2.PrepareModelWithConfigRequest(session=raw.session, model=add_chain(1), config=config)
    events, error = read_events(raw.device.PrepareModelWithConfig(request))
    assert error is not None and kinds(events) == ["notify"]
    assert events[0].notify.rule == error_detail(error).rule == rule


def test_configurations_of_executions(raw: RawSession, prepared: bytes, table: tuple[Names, str]) -> None:
    names, rule = table
    config = types_pb2.ExecutionConfig(extension_name_to_prefix=names)
    request = execute_request(raw, prepared, [np.ones(2, np.float32)]).request
    model, stub = raw.prepared_model, burst_pb2_grpc.BurstStub(raw.channel)
    named: dict[str, Any] = {"session": raw.session, "prepared_model": prepared}
    configured: dict[str, Any] = {**named, "request": request, "config": config}
    burst = model.ConfigureExecutionBurst(prepared_model_pb2.PreparedModelRequest(**named)).burst
    calls: list[Callable[[], object]] = [
        lambda: model.ExecuteSynchronouslyWithConfig(
            prepared_model_pb2.ExecuteSynchronouslyWithConfigRequest(**configured)
        ),
        lambda: model.ExecuteFencedWithConfig(prepared_model_pb2.ExecuteFencedWithConfigRequest(**configured)),
        lambda: model.CreateReusableExecution(prepared_model_pb2.CreateReusableExecutionRequest(**configured)),
        lambda: stub.ExecuteSynchronouslyWithConfig(
            burst_pb2.BurstExecuteWithConfigRequest(
                session=raw.session,
                burst=burst,
                request=request,
                memory_identifier_tokens=[-1] * len(request.pools),
                config=config,
            )
        ),
    ]
    for call in calls:
        check_rejected(call, rule)
