"""Every limit refuses, names itself, and lets the rest through."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from nnhal.types import ErrorKind, ErrorStatus
from nnhal.v1 import error_pb2, memory_pb2, session_pb2
from service.limits import LIMITS, Limits, markdown
from tests.end_to_end.conftest import Service, start, stop
from tests.end_to_end.raw import Raw, chain, detail, execute_request, prepare_request, raw_session

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
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    options = [f"--limit={name}={value}" for name, value in SMALL.items()]
    running = start(tmp_path_factory.mktemp("small"), *options, NNHAL_SESSION_GRACE_S="0")
    yield running
    stop(running)


def refusal(call: Callable[[], object]) -> error_pb2.ErrorDetail:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return detail(caught.value)


def named(found: error_pb2.ErrorDetail, limit: str) -> None:
    assert (found.kind, found.limit) == (ErrorKind.LIMIT, limit), found
    assert found.status == LIMITS[limit].answer
    assert limit in found.reason


def create(raw: Raw, size: int) -> memory_pb2.CreateMemoryResponse:
    return raw.memory.Create(memory_pb2.CreateMemoryRequest(session=raw.session, size=size))


def test_models(small: Service) -> None:
    with raw_session(small.target) as raw:
        assert raw.opened.limits["operands"] == 50
        wide = chain(1)
        for _ in range(60):
            wide.main.operands.add()
        deep = chain(1)
        for _ in range(3):
            deep.referenced.add()
        inline = chain(1)
        for _ in range(3):
            inline.pools.add(inline=bytes(400))
        for model, limit in (
            (wide, "operands"),
            (chain(21), "operations"),
            (deep, "subgraphs"),
            (inline, "inline_bytes"),
        ):
            named(refusal(lambda m=model: list(raw.device.PrepareModel(prepare_request(raw, m)))), limit)  # type: ignore[misc]
        assert list(raw.device.PrepareModel(prepare_request(raw, chain(20))))[1].notify.status == ErrorStatus.NONE


def test_prepared_models_are_counted_until_they_are_released(small: Service) -> None:
    with raw_session(small.target) as raw:

        def prepare() -> tuple[int, str, bytes]:
            notify = list(raw.device.PrepareModel(prepare_request(raw, chain(1))))[1].notify
            return notify.status, notify.reason, notify.prepared_model

        first, _ = prepare(), prepare()
        status, reason, handle = prepare()
        assert (status, handle) == (ErrorStatus.RESOURCE_EXHAUSTED_TRANSIENT, b"")
        assert "prepared_models" in reason
        raw.sessions.Release(session_pb2.ReleaseRequest(session=raw.session, handles=[first[2]]))
        assert prepare()[0] == ErrorStatus.NONE


def test_memory(small: Service) -> None:
    with raw_session(small.target) as raw:
        named(refusal(lambda: create(raw, 10_001)), "pool_bytes")
        handles = [create(raw, 10_000).memory for _ in range(2)]
        named(refusal(lambda: create(raw, 10_000)), "memory_bytes")
        raw.sessions.Release(session_pb2.ReleaseRequest(session=raw.session, handles=handles))
        handles = [create(raw, 10).memory for _ in range(6)]
        named(refusal(lambda: create(raw, 10)), "objects")


def test_requests(small: Service) -> None:
    with raw_session(small.target) as raw:
        handle = list(raw.device.PrepareModel(prepare_request(raw, chain(1))))[1].notify.prepared_model
        request = execute_request(raw, handle, [np.ones(2, np.float32)])
        request.request.pools[1].returned.size = 10_001
        named(refusal(lambda: raw.prepared_model.ExecuteSynchronously(request)), "pool_bytes")
        request = execute_request(raw, handle, [np.ones(2, np.float32)])
        request.request.pools.add().pool.inline = bytes(1001)
        named(refusal(lambda: raw.prepared_model.ExecuteSynchronously(request)), "inline_bytes")


def test_sessions(small: Service) -> None:
    with raw_session(small.target) as raw, raw_session(small.target), raw_session(small.target):
        named(refusal(lambda: list(raw.sessions.Open(session_pb2.OpenRequest()))), "sessions")


def test_queues(tmp_path: Path) -> None:
    service = start(tmp_path, "--limit=queued_preparations=1", "--limit=preparation_seconds=1")
    refused = []
    with raw_session(service.target) as raw:

        def prepare() -> None:
            try:
                list(raw.device.PrepareModel(prepare_request(raw, chain(3000))))
            except grpc.RpcError as error:
                refused.append(detail(error))

        threads = [threading.Thread(target=prepare) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    stop(service)
    assert refused
    for found in refused:
        named(found, "queued_preparations")


def test_messages_are_refused_by_grpc_itself(small: Service) -> None:
    with raw_session(small.target) as raw:
        model = chain(1)
        model.operand_values = bytes(5 * 2**20)
        with pytest.raises(grpc.RpcError) as caught:
            list(raw.device.PrepareModel(prepare_request(raw, model)))
        assert isinstance(caught.value, grpc.Call)
        assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def test_the_page_is_fresh() -> None:
    page = Path(__file__).parents[2] / "docs/limits.md"
    assert page.read_text() == markdown(), "run `python -m service.limits > docs/limits.md`"


@pytest.mark.parametrize("changed", [{"no_such_limit": 1}, {"operands": 0}])
def test_limits_that_make_no_sense_are_refused(changed: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=next(iter(changed))):
        Limits(changed)
