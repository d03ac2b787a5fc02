"""Clients that read nothing, or send so slowly that they keep what they have begun."""

import threading
import time
from collections.abc import Iterator

import grpc

from nnhal.v1 import burst_pb2, burst_pb2_grpc, memory_pb2, session_pb2
from tests.benchmark.attacks.attack import attack, count_codes, end_calls, own_channel, wait_until
from tests.end_to_end.robustness.hostile_models import prepare_large_output
from tests.end_to_end.robustness.unreading_client import UnreadingClient
from tests.end_to_end.support.raw_client import add_chain, open_raw_session, prepare_request

_STREAMS = 600
"""More than the service has threads for calls."""
_UPLOADS = 32
_BURSTS = 140
_PAUSE_S = 0.05


@attack("unread responses")
def unread_responses(target: str, end: float) -> str:
    """Execute a model with an output of 1.6 MB again and again over a connection that reads nothing."""
    count = 0
    with open_raw_session(target) as raw:
        request = prepare_large_output(raw)
        with UnreadingClient(target) as client:
            while time.monotonic() < end:
                client.call("PreparedModel/ExecuteSynchronously", request)
                count += 1
                time.sleep(_PAUSE_S / 10)
            return f"{count} executions, {len(client.rejected)} rejected, {len(client.cancelled)} cancelled"


@attack("unread sessions")
def unread_sessions(target: str, end: float) -> str:
    """Open sessions whose first event is never read."""
    request = session_pb2.OpenRequest(client_name="unread").SerializeToString()
    return _call_unread(target, end, "Session/Open", request)


@attack("unread preparations")
def unread_preparations(target: str, end: float) -> str:
    """Prepare models whose first event is never read."""
    with open_raw_session(target) as raw:
        return _call_unread(target, end, "Device/PrepareModel", prepare_request(raw, add_chain(1)).SerializeToString())


def _call_unread(target: str, end: float, method: str, request: bytes) -> str:
    with UnreadingClient(target) as client:
        for _ in range(_STREAMS):
            client.call(method, request)
        wait_until(end)
        return f"{_STREAMS} calls, {len(client.rejected)} rejected, {len(client.cancelled)} cancelled"


@attack("slow uploads")
def slow_uploads(target: str, end: float) -> str:
    """Upload a byte now and then, as often at once as the service has threads for uploads."""
    over = threading.Event()
    with open_raw_session(target) as raw:

        def chunks(memory: bytes) -> Iterator[memory_pb2.UploadRequest]:
            yield memory_pb2.UploadRequest(session=raw.session, memory=memory, data=b"x")
            while not over.wait(_PAUSE_S):
                yield memory_pb2.UploadRequest(data=b"x")

        create = memory_pb2.CreateMemoryRequest(session=raw.session, size=100)
        calls = [raw.memory.Upload.future(chunks(raw.memory.Create(create).memory)) for _ in range(_UPLOADS)]
        wait_until(end)
        result = count_codes(calls)
        end_calls(calls, over)
    return result


@attack("silent bursts")
def silent_bursts(target: str, end: float) -> str:
    """Open streams of bursts that send nothing, more than the service allows."""
    over = threading.Event()

    def nothing() -> Iterator[burst_pb2.BurstStreamRequest]:
        over.wait()
        yield from ()

    with own_channel(target) as channel:
        stub = burst_pb2_grpc.BurstStub(channel)
        streams: list[grpc.Call] = [stub.Stream(nothing()) for _ in range(_BURSTS)]
        wait_until(end)
        end_calls(streams, over)
    return f"{_BURSTS} streams"
