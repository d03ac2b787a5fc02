"""Attacks on memory: small messages that cause much of it."""

import time

import grpc

from nnhal.v1 import cache_pb2, cache_pb2_grpc, fence_pb2, fence_pb2_grpc, memory_pb2, types_pb2
from tests.benchmark.attacks.attack import attack, wait_until
from tests.end_to_end.robustness.hostile_models import overlapping_windows
from tests.end_to_end.support.raw_client import open_raw_session, prepare_request

_MEMORY_BYTES = 2**28
_SPARSE_BYTES = 2**31
_WAITS = 30_000
_DEADLINE_NS = 5 * 10**9


@attack("untouched memory")
def untouched_memory(target: str, end: float) -> str:
    """Create memories that are never touched until the service refuses, and keep trying."""
    created = refused = 0
    with open_raw_session(target) as raw:
        request = memory_pb2.CreateMemoryRequest(session=raw.session, size=_MEMORY_BYTES)
        while time.monotonic() < end:
            try:
                raw.memory.Create(request)
                created += 1
            except grpc.RpcError:
                refused += 1
                time.sleep(0.01)
    return f"{created} memories of {_MEMORY_BYTES >> 20} MiB, {refused} refused"


@attack("overlapping constants")
def overlapping_constants(target: str, end: float) -> str:
    """Prepare a model of 1.6 MB whose constants would be 640 MB if they were copied."""
    statuses: dict[int, int] = {}
    with open_raw_session(target) as raw:
        request = prepare_request(raw, overlapping_windows(), _DEADLINE_NS)
        while time.monotonic() < end:
            *_, event = raw.device.PrepareModel(request)
            statuses[event.notify.status] = statuses.get(event.notify.status, 0) + 1
    return f"preparations by status: {statuses}"


@attack("sparse cache files")
def sparse_cache_files(target: str, end: float) -> str:
    """Check cache files of 2 GiB that take no space."""
    count = 0
    with open_raw_session(target) as raw:
        stub = cache_pb2_grpc.CacheStub(raw.channel)
        mode = cache_pb2.ACCESS_MODE_READ_WRITE
        model, data = (
            stub.Open(cache_pb2.OpenCacheFileRequest(session=raw.session, name=name, mode=mode)).file
            for name in ("model", "data")
        )
        stub.Truncate(cache_pb2.TruncateCacheFileRequest(session=raw.session, file=model, size=_SPARSE_BYTES))
        cache = types_pb2.CompilationCache(
            form=types_pb2.CACHE_FORM_FILES, token=bytes(32), model_cache=[model], data_cache=[data]
        )
        while time.monotonic() < end:
            stub.Check(cache_pb2.CheckCacheRequest(session=raw.session, cache=cache))
            count += 1
    return f"{count} checks"


@attack("fence waits")
def fence_waits(target: str, end: float) -> str:
    """Wait for a fence that is never signalled, many times at once."""
    with open_raw_session(target) as raw:
        stub = fence_pb2_grpc.FenceStub(raw.channel)
        fence = stub.Create(fence_pb2.CreateFenceRequest(session=raw.session)).fence
        request = fence_pb2.WaitRequest(session=raw.session, fence=fence)
        calls = [stub.Wait.future(request) for _ in range(_WAITS)]
        wait_until(end)
        return f"{len(calls)} calls, of which ended: {sum(call.done() for call in calls)}"
