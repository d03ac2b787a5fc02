"""Server of a Fence service, whose methods are registered as those of the product are."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import cast

import grpc

from nnhal.v1 import fence_pb2_grpc
from nnhal_driver.scheduling.timers import Timers
from nnhal_service.grpc_support.handlers import HandlerRegistrar
from nnhal_service.grpc_support.stall_watchdog import StallWatchdog
from nnhal_service.grpc_support.thread_pool import ElasticThreadPool
from nnhal_service.grpc_support.unread_responses import UnreadResponses
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.message_limits import count_elements
from nnhal_service.sessions.session_registry import SessionRegistry

TIMEOUT_S = 60


@contextmanager
def serving(
    servicer: fence_pb2_grpc.FenceServicer,
    pools: Mapping[str, ElasticThreadPool],
    timeout_s: float,
    capacity: int,
    check_s: float,
) -> Iterator[grpc.Channel]:
    """Serve, and yield a channel.

    Args:
        servicer: has the methods.
        pools: the thread pools by name; "" is the server's own.
        timeout_s: see StallWatchdog.
        capacity: see StallWatchdog.
        check_s: see StallWatchdog.
    """
    server = grpc.server(pools[""])
    timers, sessions = Timers("waits"), SessionRegistry(1)
    watchdog = StallWatchdog(timeout_s, timers, capacity, check_s)
    unread = UnreadResponses(sessions, MemoryQuota(Limits()), TIMEOUT_S, timers)
    registrar = HandlerRegistrar(
        server, pools, dict.fromkeys(pools, watchdog), unread, partial(count_elements, limits=Limits())
    )
    fence_pb2_grpc.add_FenceServicer_to_server(servicer, cast(grpc.Server, registrar))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    server.stop(None).wait()
    for pool in pools.values():
        pool.shutdown()
    sessions.close()
    timers.close()
