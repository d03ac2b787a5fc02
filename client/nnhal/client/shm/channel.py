"""Channels: connections to the data socket, each with its memory and the requests that the service knows on it.

Tensors are in one memfd, which is sent once. A request is defined once for each model and shape of inputs. An execution
then copies the inputs in, sends 24 bytes, receives the result, and copies the outputs out. A channel does not wait by
itself: the two clients do, in `nnhal.client.sync.shm_transport` and `nnhal.client.aio.shm_transport`.
"""

import itertools
import os
import socket
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from nnhal import wire
from nnhal.client.core.arguments import nanoseconds
from nnhal.client.core.arrays import ModelIO
from nnhal.client.core.buffered_execution import BufferedExecution
from nnhal.client.core.burst import CachedInputs, F, PendingExecution
from nnhal.client.core.profile import StageTimer
from nnhal.client.core.session import connection_lost_error
from nnhal.client.shm.data_socket import SharedMemory, create_sealed_memory, raise_for_error, send_packet
from nnhal.client.shm.result import DefinedRequest, PendingDefinition, ShmResult
from nnhal.client.shm.slot_layout import (
    SlotLayout,
    build_slot_request,
    encode_shared,
    replace_buffered_arguments,
)
from nnhal.client.trace_context import trace_parent
from nnhal.errors import HalError
from nnhal.lru import LruDict
from nnhal.shm.protocol import MAX_BYTES, MEASURE, NONE, PROFILE, TRACE, Definition, Packet, PacketKind
from nnhal.shm.spin_wait import SpinThenBlock
from nnhal.types import AnyArray, Bytes

MAX_DEFINITIONS = 16
"""Largest number of requests that stay defined on a channel, for each slot."""
INITIAL_SCRATCH_BYTES = 4096
"""Size of the area for returned outputs, until they turn out to need more."""
MIN_SLOT_BYTES = 2**16
SPIN_S = 1e-3
"""Seconds to spin for a result before blocking."""

Arrays = Sequence[AnyArray | None]


class ShmChannel:
    """Channel of the same-machine transport. Used by one thread at a time; an error of the socket ends it.

    Args:
        connection: a connection to the data socket.
        numbers: yields numbers of memories that are unused in the session.
        depth: number of executions in progress at once. Each has a slot of the memory.

    Attributes:
        broken: whether the channel can no longer be used.
    """

    def __init__(self, connection: socket.socket, numbers: Iterator[int], depth: int) -> None:
        self.connection = connection
        self.broken = False
        self._numbers = numbers
        self._request_numbers = itertools.count(1)
        self._defined: LruDict[tuple[object, ...], DefinedRequest] = LruDict(MAX_DEFINITIONS * depth)
        self._depth = depth
        self._slot = 0  # of the last execution
        self._sent = self._finished = 0
        self._reserved_slot: int | None = None  # of the inputs that the caller writes in place
        self._slot_bytes = 0
        self._memory = 0
        self._bytes: Bytes = np.empty(0, np.uint8)
        self._scratch_bytes = self._needed_scratch_bytes = INITIAL_SCRATCH_BYTES
        self._cached_memories: dict[int, int] = {}
        self._packet = memoryview(bytearray(MAX_BYTES))
        self._waiter = SpinThenBlock(SPIN_S)
        # None: an answer to anything but an execution, which must be a success
        self._expected: deque[DefinedRequest | PendingDefinition | None] = deque()

    # ---- Sending ------------------------------------------------------------------------------------

    def start(
        self,
        handle: bytes,
        io: ModelIO,
        arrays: Arrays,
        deadline: float | None,
        measure_timing: bool,
        identifiers: Sequence[int] = (),
    ) -> None:
        """Send an execution.

        Args:
            handle: handle of a prepared model or a burst.
            io: inputs and outputs of the model.
            arrays: the checked inputs.
            deadline: seconds from now.
            measure_timing: whether to measure the execution.
            identifiers: identifier of each input, -1 if it is not cached; () if none is.

        Raises:
            OSError: the connection is broken; the execution was not sent.
        """
        self._grow_scratch()
        request = self._find_or_define(handle, io, arrays, identifiers, self._next_slot())
        self.run(request, arrays, deadline, measure_timing)

    def reserve_inputs(self, handle: bytes, io: ModelIO, arrays: Arrays) -> tuple[AnyArray | None, ...]:
        """Return views of the inputs of the next execution. One with these arrays copies nothing.

        The handle is that of a prepared model or a burst. The arrays are of the same shapes.

        Raises:
            OSError: the connection is broken.
        """
        self._grow_scratch()
        slot = self._next_slot()
        request = self._find_or_define(handle, io, arrays, (), slot)
        self._reserved_slot = slot
        return request.inputs

    def start_profiled(
        self, handle: bytes, io: ModelIO, arrays: Arrays, deadline: float | None, timer: StageTimer
    ) -> None:
        """Send an execution that is profiled, like `start`.

        Raises:
            OSError: the connection is broken; the execution was not sent.
        """
        self._grow_scratch()
        request = self._find_or_define(handle, io, arrays, (), self._next_slot())
        timer.lap("encode")
        _copy_inputs(request, arrays)
        timer.lap("upload")
        self._send_run(request, deadline, MEASURE | PROFILE)
        timer.lap("send")

    def start_pending(
        self, burst: bytes, io: ModelIO, execution: PendingExecution[F], cached_inputs: CachedInputs
    ) -> None:
        """Send an execution of a burst.

        Raises:
            OSError: the connection is broken; the execution was not sent.
        """
        identifiers = cached_inputs.identifiers(execution.arrays)
        deadline, measure_timing = execution.deadline.remaining, execution.measure_timing
        if execution.buffered is None:
            self.start(burst, io, execution.arrays, deadline, measure_timing, identifiers)
        else:
            self._start_buffered(burst, io, execution.buffered, deadline, measure_timing, identifiers)

    def _start_buffered(
        self,
        handle: bytes,
        io: ModelIO,
        execution: BufferedExecution,
        deadline: float | None,
        measure_timing: bool,
        identifiers: Sequence[int],
    ) -> None:
        """Send an execution that uses buffers. Its request is defined for it alone: tokens are looked up each time."""
        request = self.define_buffered(handle, io, execution, identifiers)
        self.run(request, execution.inputs, deadline, measure_timing)
        self.forget(request)

    def define_buffered(
        self, handle: bytes, io: ModelIO, execution: BufferedExecution, identifiers: Sequence[int] = ()
    ) -> DefinedRequest:
        """Define a request that uses buffers, for the next slot. It keeps them alive until the caller forgets it.

        Raises:
            OSError: the connection is broken.
            SessionLostError: a buffer was lost with its session.
        """
        execution.require_buffers()
        self._grow_scratch()
        slot, arrays = self._next_slot(), execution.inputs
        identifiers = identifiers or (-1,) * len(arrays)
        layout = self._lay_out(io, arrays, identifiers)
        return self._define(handle, io, arrays, identifiers, layout, slot, execution)

    def forget(self, request: DefinedRequest) -> None:
        """Forget a request of `define_buffered`.

        Raises:
            OSError: the connection is broken.
        """
        self._send(Packet(PacketKind.FORGET, request.number))

    def _grow_scratch(self) -> None:
        if self._needed_scratch_bytes > self._scratch_bytes:
            self._scratch_bytes = 1 << (self._needed_scratch_bytes - 1).bit_length()
            self._forget_all()

    def run(self, request: DefinedRequest, arrays: Arrays, deadline: float | None, measure_timing: bool) -> None:
        """Send an execution of a defined request, with an array for each of its inputs.

        Raises:
            OSError: the connection is broken; the execution was not sent.
        """
        _copy_inputs(request, arrays)
        self._send_run(request, deadline, MEASURE if measure_timing else 0)

    def _send_run(self, request: DefinedRequest, deadline: float | None, flags: int) -> None:
        deadline_ns = NONE if deadline is None else nanoseconds(deadline)
        self._expected.append(request)
        self._sent += 1
        parent = trace_parent()
        body = b""
        if parent is not None:
            flags, body = flags | TRACE, parent.encode()
        self.connection.send(Packet(PacketKind.RUN, request.number, flags, deadline_ns, body=body).pack())

    def _send(
        self, packet: Packet, descriptors: Sequence[int] = (), definition: PendingDefinition | None = None
    ) -> None:
        self._expected.append(definition)
        send_packet(self.connection, packet.pack(), descriptors)

    def _next_slot(self) -> int:
        slot, self._reserved_slot = self._reserved_slot, None
        if slot is None:
            # executions one after another share a slot: further ones would cost memory and the processor's caches
            slot = self._slot = 0 if self._sent == self._finished else (self._slot + 1) % self._depth
        return slot

    def finish(self) -> None:
        """Note that the result of the execution sent longest ago is no longer read. Its slot may be used again.

        Called by the thread that receives. A channel of depth 1 does not need it.
        """
        self._finished += 1

    def _find_or_define(
        self, handle: bytes, io: ModelIO, arrays: Arrays, identifiers: Sequence[int], slot: int
    ) -> DefinedRequest:
        shapes: list[tuple[int, ...] | None] = []
        for array in arrays:  # hot path: a comprehension costs more
            shapes.append(None if array is None else array.shape)
        key = (handle, slot, tuple(shapes), *identifiers)
        if key in self._defined:
            return self._defined.use(key)
        identifiers = identifiers or (-1,) * len(arrays)
        layout = self._lay_out(io, arrays, identifiers)
        request = self._define(handle, io, arrays, identifiers, layout, slot)
        if (evicted := self._defined.put(key, request)) is not None:
            self._send(Packet(PacketKind.FORGET, evicted[1].number))
        return request

    def _lay_out(self, io: ModelIO, arrays: Arrays, identifiers: Sequence[int]) -> SlotLayout:
        layout = SlotLayout(io, arrays, identifiers, self._scratch_bytes)
        if layout.size > self._slot_bytes:
            self._grow_slots(layout.size)
        return layout

    def _grow_slots(self, slot_bytes: int) -> None:
        """Replace the memory by a larger one. All requests must be defined again."""
        self._forget_all()
        if self._memory:
            self._send(Packet(PacketKind.DROP, self._memory))
        self._slot_bytes = max(MIN_SLOT_BYTES, 1 << (slot_bytes - 1).bit_length())
        memory = SharedMemory(self._slot_bytes * self._depth)
        self._memory, self._bytes = self._share(memory.descriptor), memory.bytes

    def _forget_all(self) -> None:
        for request in self._defined.values():
            self._send(Packet(PacketKind.FORGET, request.number))
        self._defined.clear()

    def _share(self, descriptor: int) -> int:
        """Send a descriptor and close it. Return its number."""
        number = next(self._numbers)
        try:
            self._send(Packet(PacketKind.SHARE, number), [descriptor])
        finally:
            os.close(descriptor)
        return number

    def _define(
        self,
        handle: bytes,
        io: ModelIO,
        arrays: Arrays,
        identifiers: Sequence[int],
        layout: SlotLayout,
        slot: int,
        execution: BufferedExecution | None = None,
    ) -> DefinedRequest:
        base = slot * self._slot_bytes
        cached = [
            self._share_cached(identifier, array)
            for identifier, array in zip(identifiers, arrays, strict=True)
            if identifier >= 0
        ]
        request = build_slot_request(io, arrays, identifiers, layout, base)
        if execution is not None:
            request = replace_buffered_arguments(request, execution)
        message = wire.request_message(request, encode_shared([self._memory, *cached]))
        number = next(self._request_numbers)
        definition = Definition(
            handle, self._memory, base + layout.scratch, layout.scratch_size, message.SerializeToString()
        )
        pending = None if execution is None else PendingDefinition()
        self._send(Packet(PacketKind.DEFINE, number, body=definition.pack()), definition=pending)
        return DefinedRequest(
            number,
            layout.input_views(arrays, self._bytes, base),
            layout.output_views(io, self._bytes, base),
            layout.scratch_view(self._bytes, base),
            pending,
        )

    def _share_cached(self, identifier: int, array: AnyArray | None) -> int:
        """Return the number of the memory of a cached input, which is shared on first use."""
        if identifier not in self._cached_memories:
            assert array is not None
            descriptor = create_sealed_memory(array.reshape(-1).view(np.uint8))
            self._cached_memories[identifier] = self._share(descriptor)
        return self._cached_memories[identifier]

    def release(self, identifier: int) -> None:
        """Release a cached input, and the requests that use it.

        Raises:
            OSError: the connection is broken.
        """
        for key in [key for key in self._defined if identifier in key[3:]]:
            self._send(Packet(PacketKind.FORGET, self._defined.pop(key).number))
        if identifier in self._cached_memories:
            self._send(Packet(PacketKind.DROP, self._cached_memories.pop(identifier)))

    # ---- Receiving ----------------------------------------------------------------------------------

    def receive(self) -> bytes:
        """Wait for the next packet.

        Returns:
            the packet, or b"" at the end of the stream.

        Raises:
            OSError: the connection is broken.
        """
        # into a buffer that stays: allocating room for the largest packet costs as much as the system call
        size = self._waiter.receive(self._receive_into)
        return bytes(self._packet[:size])

    def _receive_into(self, flags: int) -> int:
        return self.connection.recv_into(self._packet, 0, flags)

    def take_packet(self, packet: bytes) -> ShmResult | None:
        """Handle a received packet, which is b"" if the connection has ended.

        Returns:
            the result of the execution sent longest ago, or None if the packet answers anything else.

        Raises:
            HalError: the execution failed. The channel is `broken` if it cannot be used again.
        """
        if not packet:
            self.broken = True
            raise connection_lost_error()
        expected = self._expected.popleft()
        answer = Packet.unpack(packet)
        if expected is None:
            try:
                raise_for_error(answer)
            except HalError:
                self.broken = True
                raise
            return None
        if isinstance(expected, PendingDefinition):
            try:
                raise_for_error(answer)
            except HalError as error:
                expected.error = error
            return None
        if expected.pending is not None and expected.pending.error is not None:
            raise expected.pending.error
        raise_for_error(answer)
        return ShmResult(answer, expected)

    def grow_scratch_to(self, size: int) -> None:
        """Provide at least `size` bytes for returned outputs, from the next execution on."""
        self._needed_scratch_bytes = max(self._needed_scratch_bytes, size)


def _copy_inputs(request: DefinedRequest, arrays: Arrays) -> None:
    for view, array in zip(request.inputs, arrays, strict=True):
        if view is not None and view is not array:
            view[...] = array
