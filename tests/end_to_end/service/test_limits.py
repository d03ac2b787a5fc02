"""Limits: each error names the limit that was exceeded, and what is within the limits is accepted."""

from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from nnhal.types import ErrorKind, ErrorStatus
from nnhal.v1 import device_pb2, error_pb2, memory_pb2, session_pb2
from nnhal_service.sessions.limits import LIMITS, Limits
from tests.concurrency import run_concurrently
from tests.end_to_end.support.raw_client import (
    RawSession,
    add_chain,
    error_detail,
    execute_request,
    open_raw_session,
    prepare_request,
)
from tests.end_to_end.support.service_process import Service, start_service, stop_service

SMALL = {
    "inline_bytes": 1000,
    "pool_bytes": 10_000,
    "memory_bytes": 25_000,
    "operands": 50,
    "operations": 20,
    "subgraphs": 2,
    "sessions": 3,
    "objects": 6,
    "prepared_models": 2,
}


@pytest.fixture(scope="module")
def small_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    options = [f"--limit={name}={value}" for name, value in SMALL.items()]
    running = start_service(tmp_path_factory.mktemp("small"), *options, NNHAL_SESSION_GRACE_S="0")
    yield running
    stop_service(running)


def error_of(call: Callable[[], object]) -> error_pb2.ErrorDetail:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return error_detail(caught.value)


def assert_names(error: error_pb2.ErrorDetail, limit: str) -> None:
    assert (error.kind, error.limit) == (ErrorKind.LIMIT, limit), error
    assert error.status == LIMITS[limit].status
    assert limit in error.reason


def create(raw: RawSession, size: int) -> memory_pb2.CreateMemoryResponse:
    return raw.memory.Create(memory_pb2.CreateMemoryRequest(session=raw.session, size=size))


def test_model_limits(small_service: Service) -> None:
    with open_raw_session(small_service.target) as raw:
        assert raw.opened.limits["operands"] == 50
        wide = add_chain(1)
        for _ in range(60):
            wide.main.operands.add()
        deep = add_chain(1)
        for _ in range(3):
            deep.referenced.add()
        inline = add_chain(1)
        for _ in range(3):
            inline.pools.add(inline=bytes(400))
        for model, limit in (
            (wide, "operands"),
            (add_chain(21), "operations"),
            (deep, "subgraphs"),
            (inline, "inline_bytes"),
        ):
            events: list[device_pb2.PrepareModelEvent] = []
            stream = raw.device.PrepareModel(prepare_request(raw, model))
            assert_names(error_of(lambda e=events, s=stream: e.extend(s)), limit)  # type: ignore[misc]
            assert [event.notify.status for event in events] == [LIMITS[limit].status], "a launch error has a notify"
            supported = device_pb2.GetSupportedOperationsRequest(session=raw.session, model=model)
            assert_names(error_of(lambda r=supported: raw.device.GetSupportedOperations(r)), limit)  # type: ignore[misc]
        assert list(raw.device.PrepareModel(prepare_request(raw, add_chain(20))))[1].notify.status == ErrorStatus.NONE


def test_prepared_models_are_counted_until_they_are_released(small_service: Service) -> None:
    with open_raw_session(small_service.target) as raw:

        def prepare() -> tuple[int, str, bytes]:
            notify = list(raw.device.PrepareModel(prepare_request(raw, add_chain(1))))[1].notify
            return notify.status, notify.reason, notify.prepared_model

        first, _ = prepare(), prepare()
        status, reason, handle = prepare()
        assert (status, handle) == (ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, b"")
        assert "prepared_models" in reason
        raw.sessions.Release(session_pb2.ReleaseRequest(session=raw.session, handles=[first[2]]))
        assert prepare()[0] == ErrorStatus.NONE


def test_memory_limits(small_service: Service) -> None:
    with open_raw_session(small_service.target) as raw:
        assert_names(error_of(lambda: create(raw, 10_001)), "pool_bytes")
        handles = [create(raw, 10_000).memory for _ in range(2)]
        assert_names(error_of(lambda: create(raw, 10_000)), "memory_bytes")
        raw.sessions.Release(session_pb2.ReleaseRequest(session=raw.session, handles=handles))
        handles = [create(raw, 10).memory for _ in range(6)]
        assert_names(error_of(lambda: create(raw, 10)), "objects")


def test_request_limits(small_service: Service) -> None:
    with open_raw_session(small_service.target) as raw:
        handle = list(raw.device.PrepareModel(prepare_request(raw, add_chain(1))))[1].notify.prepared_model
        request = execute_request(raw, handle, [np.ones(2, np.float32)])
        request.request.pools[1].returned.size = 10_001
        assert_names(error_of(lambda: raw.prepared_model.ExecuteSynchronously(request)), "pool_bytes")
        request = execute_request(raw, handle, [np.ones(2, np.float32)])
        request.request.pools.add().pool.inline = bytes(1001)
        assert_names(error_of(lambda: raw.prepared_model.ExecuteSynchronously(request)), "inline_bytes")


def test_session_limit(small_service: Service) -> None:
    with (
        open_raw_session(small_service.target) as raw,
        open_raw_session(small_service.target),
        open_raw_session(small_service.target),
    ):
        assert_names(error_of(lambda: list(raw.sessions.Open(session_pb2.OpenRequest()))), "sessions")


@pytest.mark.slow
def test_queue_limit(tmp_path: Path) -> None:
    service = start_service(tmp_path, "--limit=queued_preparations=1")
    errors = []
    with open_raw_session(service.target) as raw:

        def prepare() -> None:
            try:
                list(raw.device.PrepareModel(prepare_request(raw, add_chain(3000))))
            except grpc.RpcError as error:
                errors.append(error_detail(error))

        run_concurrently(12, lambda _: prepare())
    stop_service(service)
    assert errors
    for error in errors:
        assert_names(error, "queued_preparations")


def test_message_size_is_limited_by_grpc(small_service: Service) -> None:
    with open_raw_session(small_service.target) as raw:
        model = add_chain(1)
        model.operand_values = bytes(5 * 2**20)
        with pytest.raises(grpc.RpcError) as caught:
            list(raw.device.PrepareModel(prepare_request(raw, model)))
        assert isinstance(caught.value, grpc.Call)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("changed", [{"no_such_limit": 1}, {"operands": 0}])
def test_invalid_limits_are_rejected(changed: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(changed))):
        Limits(changed)
