"""Attacks by name. An attack is a function that mistreats a service until a given time.

    @attack("silent calls")
    def silent_calls(target: str, end: float) -> str:
        ...

It gets the address of the service and the time to end at (`time.monotonic`), and returns in a few words what it did.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc

Attack = Callable[[str, float], str]

ATTACKS: dict[str, Attack] = {}
"""Every attack, in the order of registration."""

OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
"""Without this option gRPC gives all channels of a process one connection."""


def attack(name: str) -> Callable[[Attack], Attack]:
    """Register an attack."""

    def register(function: Attack) -> Attack:
        assert name not in ATTACKS, f"there are two attacks called {name}"
        ATTACKS[name] = function
        return function

    return register


@contextmanager
def own_channel(target: str) -> Iterator[grpc.Channel]:
    """Yield a channel with a connection of its own."""
    with grpc.insecure_channel(target, OWN_CONNECTION) as channel:
        yield channel


def wait_until(end: float) -> None:
    """Sleep until a time of `time.monotonic`."""
    time.sleep(max(0.0, end - time.monotonic()))


def end_calls(calls: "Iterable[grpc.RpcContext]", over: threading.Event) -> None:
    """Let the threads that would send the requests of calls end, and cancel the calls."""
    over.set()
    for call in calls:
        call.cancel()


def count_codes(calls: "Sequence[grpc.Future[Any]]") -> str:
    """Return how many calls have ended, and with which status codes."""
    codes: dict[str, int] = {}
    for call in calls:
        if call.done():
            error = None if call.cancelled() else call.exception()
            name = error.code().name if isinstance(error, grpc.RpcError) else "OK"
            codes[name] = codes.get(name, 0) + 1
    ended = ", ".join(f"{count} {name}" for name, count in sorted(codes.items())) or "none"
    return f"{len(calls)} calls, of which ended: {ended}"
