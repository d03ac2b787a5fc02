"""Attacks on memory: small messages that cause much of it."""

import threading
import time
from contextlib import ExitStack, suppress

import grpc

from nnhal.v1 import cache_pb2, cache_pb2_grpc, fence_pb2, fence_pb2_grpc, memory_pb2, prepared_model_pb2, types_pb2
from tests.benchmark.attacks.attack import attack, wait_until
from tests.end_to_end.robustness.hostile_models import overlapping_windows
from tests.end_to_end.support.raw_client import RawSession, add_chain, open_raw_session, prepare_request
from tests.end_to_end.support.valid_requests import inline_request, loop

_MEMORY_BYTES = 2**28
_RESERVES_BYTES = (2**21, 2**22, 2**23, 2**24)
_CHAIN, _PREPARATIONS = 2000, 8
_SPARSE_BYTES = 2**31
_WAITS = 30_000
_SESSIONS, _FILES = 9, 128
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


@attack("exhausted data limit")
def exhausted_data_limit(target: str, end: float) -> str:
    """Fill the process with memory that is never touched, except some MiB, and send calls that need more than that.

    A malloc that fails in gRPC, protobuf or the interpreter ends the process.
    """
    rounds = 0
    with open_raw_session(target) as raw:
        _create_all(raw, 2**31 - 4096)
        *_, event = raw.device.PrepareModel(prepare_request(raw, loop()))
        model = event.notify.prepared_model
        free = _find_free(raw, model, end)
        while time.monotonic() < end:
            request = _execution(raw, model, free - _RESERVES_BYTES[rounds % len(_RESERVES_BYTES)])
            execution = raw.prepared_model.ExecuteSynchronously.future(request)
            time.sleep(0.3)
            threads = [threading.Thread(target=_prepare_chain, args=(raw,)) for _ in range(_PREPARATIONS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            execution.cancel()
            rounds += 1
    return f"{rounds} rounds with {free >> 20} MiB of untouched outputs"


def _create_all(raw: RawSession, size: int) -> None:
    """Create memories until the service refuses."""
    with suppress(grpc.RpcError):
        while True:
            raw.memory.Create(memory_pb2.CreateMemoryRequest(session=raw.session, size=size))


def _find_free(raw: RawSession, model: bytes, end: float) -> int:
    """Return how many bytes of outputs the service still gives to an execution."""
    low, high = 0, 2**36
    while high - low > 2**20 and time.monotonic() < end:
        middle = (low + high) // 2
        request = _execution(raw, model, middle, 1)
        try:
            raw.prepared_model.ExecuteSynchronously(request, timeout=20)
            low = middle
        except grpc.RpcError as error:
            assert isinstance(error, grpc.Call)
            is_given = error.code() == grpc.StatusCode.DEADLINE_EXCEEDED  # the loop has begun
            low, high = (middle, high) if is_given else (low, middle)
    return low


def _execution(
    raw: RawSession, model: bytes, size: int, loop_timeout_ns: int | None = None
) -> prepared_model_pb2.ExecuteSynchronouslyRequest:
    """Return an execution of an endless loop with more room for outputs than it needs."""
    request = inline_request()
    while size > 0:
        request.pools.add(returned=types_pb2.ReturnedPool(size=min(size, 2**31)))
        size -= 2**31
    return prepared_model_pb2.ExecuteSynchronouslyRequest(
        session=raw.session, prepared_model=model, request=request, loop_timeout_duration_ns=loop_timeout_ns
    )


def _prepare_chain(raw: RawSession) -> None:
    with suppress(grpc.RpcError):
        list(raw.device.PrepareModel(prepare_request(raw, add_chain(_CHAIN)), timeout=6))


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


@attack("open cache files")
def open_cache_files(target: str, end: float) -> str:
    """Open as many cache files as some sessions may, each with a descriptor of the service."""
    count = 0
    with ExitStack() as stack:
        for _ in range(_SESSIONS):
            raw = stack.enter_context(open_raw_session(target))
            stub = cache_pb2_grpc.CacheStub(raw.channel)
            for number in range(_FILES):
                mode = cache_pb2.ACCESS_MODE_READ_WRITE
                request = cache_pb2.OpenCacheFileRequest(session=raw.session, name=f"f{number}", mode=mode)
                with suppress(grpc.RpcError):
                    stub.Open(request)
                    count += 1
        wait_until(end)
    return f"{count} files"


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
