"""Thread pools of a server, so that calls of one kind do not keep those of another kind from being served."""

from nnhal_driver.scheduling.timers import Timers
from nnhal_service.grpc_support.stall_watchdog import StallWatchdog
from nnhal_service.grpc_support.thread_pool import ElasticThreadPool
from nnhal_service.settings import Settings

HEALTH_THREADS, REFLECTION_THREADS = 64, 8
"""Threads of their own for gRPC's services, so that a flood of calls does not keep these from answering."""
_HEALTH_CHECK_S, _REQUEST_CHECK_S, _TRANSFER_CHECK_S = 0.05, 0.1, 1.0
"""Seconds between two checks whether too many calls wait for their requests, or for the next chunk of a transfer."""
_WAITING_CALLS, _WAITING_TRANSFERS = 0.25, 0.75
"""Share of the threads that may wait long for their clients. Waiting is what those of transfers are for."""


class ThreadPools:
    """Thread pools of one server, and the watchdogs of their calls. Close them when done.

    Args:
        bursts: number of threads for bursts.

    Attributes:
        calls: the pool of all calls for which there is no other.
        by_name: the other pools, by the names that `handler` takes.
        watchdogs: the watchdogs, by the same names; "" for `calls`.
        threads: number of threads of all pools at most.
    """

    def __init__(self, settings: Settings, bursts: int, timers: Timers) -> None:
        idle_s = settings.idle_thread_s
        self.calls = ElasticThreadPool(settings.threads, idle_s, "nnhal-call")
        transfers = ElasticThreadPool(settings.transfers, idle_s, "nnhal-transfer")
        burst_pool = ElasticThreadPool(bursts, idle_s, "nnhal-burst")
        health = ElasticThreadPool(HEALTH_THREADS, idle_s, "nnhal-health", newest_first=True)
        reflection = ElasticThreadPool(REFLECTION_THREADS, idle_s, "nnhal-reflection", newest_first=True)
        self._all = (self.calls, transfers, burst_pool, health, reflection)
        self.threads = sum(pool.limit for pool in self._all)

        def watchdog(
            pool: ElasticThreadPool, share: float = _WAITING_CALLS, check_s: float = _REQUEST_CHECK_S
        ) -> StallWatchdog:
            return StallWatchdog(settings.transfer_idle_s, timers, int(pool.limit * share), check_s)

        self.by_name = {
            "transfers": transfers,
            "bursts": burst_pool,
            "health": health,
            "reflection": reflection,
            "sends": reflection,  # clients that watch the health must not keep others from checking it
        }
        reflection_watchdog = watchdog(reflection)
        self.watchdogs = {
            "": watchdog(self.calls),
            "transfers": watchdog(transfers, _WAITING_TRANSFERS, _TRANSFER_CHECK_S),
            "bursts": watchdog(burst_pool),
            "health": watchdog(health, check_s=_HEALTH_CHECK_S),
            "reflection": reflection_watchdog,
            "sends": reflection_watchdog,
        }

    def close(self) -> None:
        """End all threads."""
        for pool in self._all:
            pool.shutdown()
