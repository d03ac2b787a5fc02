# Generated from aio/shm_transport.py by `python -m tools.dev.unasync_client`. Do not edit.
"""Executions over shared memory, for a service on the same machine. gRPC carries everything else.

A device has a few channels, which are opened as needed, and each burst has its own. If no channel can be used, the
caller uses gRPC. An execution that was sent is never retried here, see `nnhal.client.sync.connection`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nnhal.client.core.arrays import Inputs, ModelIO, Outputs
from nnhal.client.core.profile import SHARED_MEMORY, ExecutionProfile, StageTimer
from nnhal.client.shm.pool import ChannelFactory, ChannelPool
from nnhal.client.sync.concurrency import open_channel, receive_packet
from nnhal.client.sync.memory_objects import MemoryObjects
from nnhal.errors import HalError
from nnhal.types import Bytes
from nnhal.v1 import session_pb2

if TYPE_CHECKING:
    from nnhal.client.shm.channel import ShmChannel
    from nnhal.client.shm.result import ShmResult


class ShmTransport:
    """Executions of one device's models over its channels. Close it when done."""

    def __init__(self, opened: session_pb2.SessionOpened, session: MemoryObjects) -> None:
        self.factory = ChannelFactory(opened)
        self._pool = ChannelPool()
        self._session = session

    def execute(
        self, handle: bytes, io: ModelIO, inputs: Inputs, deadline: float | None, measure_timing: bool
    ) -> Outputs | None:
        """Execute a model.

        Returns:
            the outputs, or None if nothing was sent: no channel can be used, or the model does not fit the data socket.

        Raises:
            HalError: see `PreparedModel.execute`; DeadObjectError: the service died during the execution.
        """
        if not io.fits_shared_memory:
            return None
        arrays = io.arrays(inputs)
        self._session.flush_releases()
        with self._channel() as channel:
            if channel is None:
                return None
            try:
                channel.start(handle, io, arrays, deadline, measure_timing)
            except OSError:
                raise _NotSent from None
            result = receive_result(channel)
            return result.plain_outputs(io, take_large_outputs(channel, result, io, self._session))

    def profile(self, handle: bytes, io: ModelIO, inputs: Inputs, deadline: float | None) -> ExecutionProfile | None:
        """Execute a model with profiling.

        Returns:
            the profile, or None if no channel can be used, the model does not fit the data socket, or the service
            cannot profile executions over shared memory.

        Raises:
            HalError: see `execute`.
        """
        if not io.fits_shared_memory:
            return None
        timer = StageTimer()
        arrays = io.arrays(inputs)
        self._session.flush_releases()
        with self._channel() as channel:
            if channel is None:
                return None
            try:
                channel.start_profiled(handle, io, arrays, deadline, timer)
            except OSError:
                raise _NotSent from None
            return self._receive_profile(channel, io, timer)

    def _receive_profile(self, channel: "ShmChannel", io: ModelIO, timer: StageTimer) -> ExecutionProfile | None:
        result = receive_result(channel)
        timer.lap("wait")
        memories = take_large_outputs(channel, result, io, self._session)
        outputs = result.plain_outputs(io, memories)
        timer.lap("download")
        return timer.profile(outputs, result.spans(memories), SHARED_MEMORY) if result.is_profiled else None

    @contextmanager
    def _channel(self) -> Iterator["ShmChannel | None"]:
        channel = self._pool.take() or self._open_channel()
        usable = False
        try:
            yield channel
            usable = True
        except _NotSent:
            pass
        except HalError:
            usable = channel is not None and not channel.broken
            raise
        finally:
            if channel is not None:
                self._pool.give_back(channel, usable=usable)

    def _open_channel(self) -> "ShmChannel | None":
        if not self._pool.reserve():
            return None
        channel = None
        try:
            channel = open_channel(self.factory, 1)
            return channel
        finally:
            if channel is None:
                self._pool.give_back(None)

    def close(self) -> None:
        """Close the channels."""
        self._pool.close()


class _NotSent(Exception):
    """The channel broke before the execution was sent."""


def receive_result(channel: "ShmChannel") -> "ShmResult":
    """Wait for the result of the execution sent longest ago.

    Raises:
        HalError: the execution failed. The channel is `broken` if it cannot be used again.
    """
    while True:
        try:
            packet = receive_packet(channel)
        except OSError:
            packet = b""
        if (result := channel.take_packet(packet)) is not None:
            return result


def take_large_outputs(
    channel: "ShmChannel", result: "ShmResult", io: ModelIO, session: MemoryObjects
) -> dict[bytes, Bytes]:
    """Return the bytes of the outputs too large for the channel, by handle, and make room for the next ones."""
    if not result.memories:
        return {}
    channel.grow_scratch_to(result.scratch_size(io))
    return session.take_memories(result.memories)
