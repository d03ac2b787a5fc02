"""Calls of the Open Inference Protocol that the admin process makes at the private sockets of workers."""

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, cast
from zlib import crc32

import grpc
from anyio import CapacityLimiter, to_thread

from nnhal.errors import DETAILS_KEY
from nnhal_service.identity.http_caller import IdentifiedCaller
from nnhal_service.identity.identity import client_name
from nnhal_service.operating.admin.actions import AdminError
from nnhal_service.operating.admin.known_workers import KnownWorker
from nnhal_service.rpc.forwarded_inference import SOCKET

_REFRESH_S = 1.0
"""Seconds for which the list of workers counts."""
_LONGEST_S = 600.0
"""Seconds after which a call ends."""
_METHOD = "/inference.GRPCInferenceService/{}"


class Call(NamedTuple):
    """Call of a method.

    Attributes:
        is_bound: whether all such calls of a client go to the same worker, which keeps something for it.
    """

    method: str
    request: bytes
    caller: IdentifiedCaller
    is_bound: bool = True


class _Worker(NamedTuple):
    """Channel to a worker, through a descriptor of its folder: the path of its socket may be too long."""

    channel: grpc.Channel
    folder: int

    @classmethod
    def connect(cls, folder: str, options: Sequence[tuple[str, int]]) -> "_Worker":
        descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        return cls(grpc.insecure_channel(f"unix:/proc/self/fd/{descriptor}/{SOCKET}", options), descriptor)

    def close(self) -> None:
        self.channel.close()
        os.close(self.folder)


class WorkerCalls:
    """Calls of the workers that serve all clients. For one event loop.

    Args:
        find_workers: returns the workers.
        message_bytes: size of the largest message.
    """

    def __init__(self, find_workers: Callable[[], Sequence[KnownWorker]], message_bytes: int) -> None:
        self._find_workers = find_workers
        self._options = [(f"grpc.max_{way}_message_length", message_bytes) for way in ("receive", "send")]
        self._workers: dict[str, _Worker] = {}
        self._read_at = -_REFRESH_S
        self._turns = 0
        self._finder = CapacityLimiter(1)

    async def call(self, call: Call) -> bytes:
        """Return the encoded response. If no worker has received the request, another one gets it.

        Raises:
            grpc.RpcError: the worker refuses the call, or has ended.
            AdminError: there is no worker.
        """
        try:
            return await self._call(call)
        except grpc.RpcError as error:
            if (call.is_bound and call.method == "ModelInfer") or not _is_lost(error):
                raise
        self._read_at = -_REFRESH_S
        return await self._call(call)

    async def _call(self, call: Call) -> bytes:
        channel = (await self._choose(call)).channel
        method: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_METHOD.format(call.method))
        future = method.future(call.request, timeout=_LONGEST_S, metadata=call.caller.metadata())
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def end(_: object) -> None:
            loop.call_soon_threadsafe(ended.set)

        future.add_done_callback(end)
        try:
            await ended.wait()
        finally:
            future.cancel()  # does nothing if it has ended
        return future.result()

    async def _choose(self, call: Call) -> _Worker:
        if time.monotonic() - self._read_at >= _REFRESH_S:
            await self._refresh()
        if not self._workers:
            raise AdminError("no worker is ready")
        self._turns += 1
        number = crc32(client_name(call.caller.identity, call.caller.peer).encode()) if call.is_bound else self._turns
        return list(self._workers.values())[number % len(self._workers)]

    async def _refresh(self) -> None:
        found = [each.folder for each in await to_thread.run_sync(self._find_workers, limiter=self._finder)]
        self._read_at = time.monotonic()
        for folder in self._workers.keys() - found:
            self._workers.pop(folder).close()
        for folder in found:
            if folder not in self._workers:
                self._workers[folder] = _Worker.connect(folder, self._options)
        self._workers = {folder: self._workers[folder] for folder in found}


def _is_lost(error: grpc.RpcError) -> bool:
    """Return whether a call has failed because there was no worker any more: one that refuses a call has details."""
    keys = dict(cast(Any, error.trailing_metadata()) or ())
    return error.code() == grpc.StatusCode.UNAVAILABLE and DETAILS_KEY not in keys
