"""A lane: one connection to the data socket, the memory behind it, and the requests that the service knows on it.

Tensors lie in one memfd, which is sent once; a request is defined once for each model and shape of inputs. An execution
is then: copy the inputs in, send 24 bytes, receive the answer, copy the outputs out. What is sent and what an answer
means is worked out here; who waits for the socket, and how, is `nnhal.local` and `nnhal.aio_local`.
"""

import itertools
import os
import socket
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np

from nnhal import frames, wire
from nnhal.alertness import Alertness
from nnhal.buffered import AnyOutputs, BufferedExecution
from nnhal.data_socket import SharedMemory, constant_memory, raise_error, send
from nnhal.errors import HalError
from nnhal.frames import Definition, Frame, Kind, Place
from nnhal.tensors import Ends, Outputs
from nnhal.types import (
    DTYPES,
    UNMEASURED,
    AnyArray,
    BufferToken,
    Bytes,
    DataLocation,
    Memory,
    Operand,
    Request,
    RequestArgument,
    RequestMemoryPool,
    ReturnedPool,
    Timing,
    byte_size,
    is_fully_specified,
)
from nnhal.v1 import types_pb2

ALIGNMENT = 64
DEFINITIONS = 16
"""Requests that a lane keeps defined."""
FIRST_ROOM = 4096
"""Bytes for returned outputs, until it turns out that more are needed."""
MIN_AREA = 2**16
LONGEST_LOOK_S = 1e-3
"""An answer that takes longer is slept for."""

Arrays = Sequence[AnyArray | None]
ReadMemory = Callable[[bytes], Bytes]


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, eq=False)
class Defined:
    """A request that the service knows, and where its tensors lie.

    Attributes:
        inputs: where each input goes; None for those that are omitted or kept.
        outputs: where each output appears; None where its size is not known before.
        returned: where outputs of unknown size appear.
        attempt: of an execution that uses buffers, to define it.
    """

    number: int
    inputs: tuple[AnyArray | None, ...]
    outputs: tuple[AnyArray | None, ...]
    returned: Bytes
    attempt: "Attempt | None" = None


class Attempt:
    """The definition of a request for one execution alone, which ends with what is refused here.

    Attributes:
        error: why it was refused.
    """

    def __init__(self) -> None:
        self.error: HalError | None = None

    def take(self, frame: Frame) -> None:
        """Takes the answer."""
        try:
            raise_error(frame)
        except HalError as error:
            self.error = error


class Layout:
    """Where the tensors of one request lie in a slot.

    Args:
        identifiers: of the inputs, -1 for those that are not kept.
        room: bytes for outputs of unknown size.
    """

    def __init__(self, ends: Ends, arrays: Arrays, identifiers: Sequence[int], room: int) -> None:
        self.size = 0
        self.inputs = [
            None if array is None or kept >= 0 else self._take(array.nbytes)
            for array, kept in zip(arrays, identifiers, strict=True)
        ]
        self.outputs = [
            self._take(byte_size(operand.type, operand.dimensions))
            if is_fully_specified(operand.type, operand.dimensions)
            else None
            for operand in ends.outputs
        ]
        self.room = room if None in self.outputs else 0
        self.returned = self._take(self.room)

    def _take(self, size: int) -> int:
        start = self.size
        self.size += _aligned(size)
        return start


class Lane:
    """What a lane knows. Used by one thread at a time; an error of the socket ends it.

    Args:
        numbers: gives numbers that the session has not used.
        depth: how many executions may be on their way at once; each has a slot of the memory.

    Attributes:
        broken: no more answers will come, or not those that are expected.
    """

    def __init__(self, connection: socket.socket, numbers: Iterator[int], depth: int) -> None:
        self.connection = connection
        self.broken = False
        self._numbers = numbers
        self._requests = itertools.count(1)
        self._defined: OrderedDict[tuple[object, ...], Defined] = OrderedDict()
        self._depth = depth
        self._slots = itertools.cycle(range(depth))
        self._slot_bytes = 0
        self._memory = 0
        self._bytes: Bytes = np.empty(0, np.uint8)
        self._room = self._wanted_room = FIRST_ROOM
        self._kept: dict[int, int] = {}
        self._packet = memoryview(bytearray(frames.MAX_BYTES))
        self._alertness = Alertness(LONGEST_LOOK_S)
        # None: the answer to something that is no execution, and must succeed
        self._expected: deque[Defined | Attempt | None] = deque()

    # ---- Sending ------------------------------------------------------------------------------------

    def start(
        self,
        handle: bytes,
        ends: Ends,
        arrays: Arrays,
        deadline: float | None,
        measure_timing: bool,
        identifiers: Sequence[int] = (),
    ) -> None:
        """Sends an execution.

        Args:
            identifiers: of the inputs, -1 for those that are not kept; () where none is.

        Raises:
            OSError: the connection is broken; the execution was not sent.
        """
        self._make_room()
        defined = self._find(handle, ends, arrays, identifiers)
        self._run(defined, arrays, deadline, measure_timing)

    def start_buffered(
        self,
        handle: bytes,
        ends: Ends,
        execution: BufferedExecution,
        deadline: float | None,
        measure_timing: bool,
        identifiers: Sequence[int] = (),
    ) -> None:
        """Sends an execution that uses buffers. Its request is defined for it alone: tokens are looked up each time.

        Raises:
            OSError: the connection is broken.
        """
        self._make_room()
        slot, arrays = next(self._slots), execution.inputs
        identifiers = identifiers or (-1,) * len(arrays)
        layout = self._laid_out(ends, arrays, identifiers)
        defined = self._define(handle, ends, arrays, identifiers, layout, slot, execution)
        self._run(defined, arrays, deadline, measure_timing)
        self._setup(Frame(Kind.FORGET, defined.number))

    def _make_room(self) -> None:
        if self._wanted_room > self._room:
            self._room = 1 << (self._wanted_room - 1).bit_length()
            self._forget_all()

    def _run(self, defined: Defined, arrays: Arrays, deadline: float | None, measure_timing: bool) -> None:
        for place, array in zip(defined.inputs, arrays, strict=True):
            if place is not None:
                place[...] = array
        deadline_ns = frames.ABSENT if deadline is None else int(deadline * 1e9)
        flags = frames.MEASURE if measure_timing else 0
        self._expected.append(defined)
        self.connection.send(Frame(Kind.RUN, defined.number, flags, deadline_ns).pack())

    def _setup(self, frame: Frame, descriptors: Sequence[int] = (), attempt: "Attempt | None" = None) -> None:
        self._expected.append(attempt)
        send(self.connection, frame.pack(), descriptors)

    def _find(self, handle: bytes, ends: Ends, arrays: Arrays, identifiers: Sequence[int]) -> Defined:
        slot = next(self._slots)
        shapes: list[tuple[int, ...] | None] = []
        for array in arrays:
            shapes.append(None if array is None else array.shape)
        key = (handle, slot, tuple(shapes), *identifiers)
        if key not in self._defined:
            identifiers = identifiers or (-1,) * len(arrays)
            layout = self._laid_out(ends, arrays, identifiers)
            self._defined[key] = self._define(handle, ends, arrays, identifiers, layout, slot)
            if len(self._defined) > DEFINITIONS * self._depth:
                _, oldest = self._defined.popitem(last=False)
                self._setup(Frame(Kind.FORGET, oldest.number))
        self._defined.move_to_end(key)
        return self._defined[key]

    def _laid_out(self, ends: Ends, arrays: Arrays, identifiers: Sequence[int]) -> Layout:
        layout = Layout(ends, arrays, identifiers, self._room)
        if layout.size > self._slot_bytes:
            self._grow(layout.size)
        return layout

    def _grow(self, slot_bytes: int) -> None:
        """Makes the slots larger: another memory, and all requests are defined anew."""
        self._forget_all()
        if self._memory:
            self._setup(Frame(Kind.DROP, self._memory))
        self._slot_bytes = max(MIN_AREA, 1 << (slot_bytes - 1).bit_length())
        memory = SharedMemory(self._slot_bytes * self._depth)
        self._memory, self._bytes = self._share(memory.descriptor), memory.bytes

    def _forget_all(self) -> None:
        for defined in self._defined.values():
            self._setup(Frame(Kind.FORGET, defined.number))
        self._defined.clear()

    def _share(self, descriptor: int) -> int:
        """Sends a descriptor, and closes it; gives its number."""
        number = next(self._numbers)
        try:
            self._setup(Frame(Kind.SHARE, number), [descriptor])
        finally:
            os.close(descriptor)
        return number

    def _define(
        self,
        handle: bytes,
        ends: Ends,
        arrays: Arrays,
        identifiers: Sequence[int],
        layout: Layout,
        slot: int,
        execution: BufferedExecution | None = None,
    ) -> Defined:
        base = slot * self._slot_bytes
        kept = [self._keep(number, array) for number, array in zip(identifiers, arrays, strict=True) if number >= 0]
        request = _request(ends, arrays, identifiers, layout, base)
        if execution is not None:
            request = _with_buffers(request, execution)
        message = wire.request_message(request, _shared([self._memory, *kept]))
        number = next(self._requests)
        definition = Definition(handle, self._memory, base + layout.returned, layout.room, message.SerializeToString())
        attempt = None if execution is None else Attempt()
        self._setup(Frame(Kind.DEFINE, number, body=definition.pack()), attempt=attempt)
        room = self._bytes[base + layout.returned : base + layout.returned + layout.room]
        inputs, outputs = self._inputs(arrays, layout, base), self._outputs(ends, layout, base)
        return Defined(number, inputs, outputs, room, attempt)

    def _keep(self, identifier: int, array: AnyArray | None) -> int:
        """The number of the memory of a kept input."""
        if identifier not in self._kept:
            assert array is not None
            self._kept[identifier] = self._share(constant_memory(array.reshape(-1).view(np.uint8)))
        return self._kept[identifier]

    def release(self, identifier: int) -> None:
        """Forgets a kept input, and the requests that use it."""
        for key in [key for key in self._defined if identifier in key[3:]]:
            self._setup(Frame(Kind.FORGET, self._defined.pop(key).number))
        if identifier in self._kept:
            self._setup(Frame(Kind.DROP, self._kept.pop(identifier)))

    def _inputs(self, arrays: Arrays, layout: Layout, base: int) -> tuple[AnyArray | None, ...]:
        return tuple(
            None
            if start is None or array is None
            else self._bytes[base + start : base + start + array.nbytes].view(array.dtype).reshape(array.shape)
            for start, array in zip(layout.inputs, arrays, strict=True)
        )

    def _outputs(self, ends: Ends, layout: Layout, base: int) -> tuple[AnyArray | None, ...]:
        outputs: list[AnyArray | None] = []
        for operand, start in zip(ends.outputs, layout.outputs, strict=True):
            if start is None:
                outputs.append(None)
            else:
                raw = self._bytes[base + start : base + start + byte_size(operand.type, operand.dimensions)]
                outputs.append(raw.view(DTYPES[operand.type]).reshape(operand.dimensions))
        return tuple(outputs)

    # ---- Receiving ----------------------------------------------------------------------------------

    def receive(self) -> bytes:
        """Waits for the next packet; b"" at the end of the stream.

        Raises:
            OSError: the connection is broken.
        """
        # into memory that stays: room for the largest packet, asked for each time, costs as much as the system call
        size = self._alertness.receive(self._receive_into)
        return bytes(self._packet[:size])

    def _receive_into(self, flags: int) -> int:
        return self.connection.recv_into(self._packet, 0, flags)

    def finish(self, packet: bytes) -> "Answer | None":
        """What a packet answers; None for what is no execution.

        Raises:
            HalError: the execution failed.
        """
        expected = self._expected.popleft()
        frame = Frame.unpack(packet)
        if expected is None:
            raise_setup_error(frame)
            return None
        if isinstance(expected, Attempt):
            expected.take(frame)
            return None
        if expected.attempt is not None and expected.attempt.error is not None:
            raise expected.attempt.error
        raise_error(frame)
        return Answer(frame, expected)

    def learn(self, needed: int) -> None:
        """From the next execution on there is room for so many bytes of returned outputs."""
        self._wanted_room = max(self._wanted_room, needed)


class SetupFailed(Exception):
    """The service refused what an execution needs; `error` says why. The lane is of no more use."""

    def __init__(self, error: HalError) -> None:
        super().__init__(str(error))
        self.error = error


def raise_setup_error(frame: Frame) -> None:
    """Raises what went wrong before an execution.

    Raises:
        SetupFailed: it did.
    """
    try:
        raise_error(frame)
    except HalError as error:
        raise SetupFailed(error) from None


class Answer:
    """The answer to an execution.

    Attributes:
        memories: handles of the outputs that are too large for the room; the caller reads and releases them.
    """

    def __init__(self, frame: Frame, defined: Defined) -> None:
        self._defined = defined
        self._timing = Timing(frame.first, frame.second) if frame.first != frames.ABSENT else UNMEASURED
        self._outputs, self.memories = _unpacked(frame.body, len(defined.outputs))

    def room(self, ends: Ends) -> int:
        """Bytes that all returned outputs together take."""
        pairs = zip(ends.outputs, self._outputs, strict=True)
        sizes = (_size(operand, output) for operand, output in pairs if output.place != Place.REGION)
        return sum(map(_aligned, sizes))

    def outputs(self, ends: Ends, read: dict[bytes, Bytes]) -> Outputs:
        """The outputs, copied. `read`: the bytes of `memories`."""
        triples = zip(ends.outputs, self._outputs, self._defined.outputs, strict=True)
        return Outputs.of([self._array(*triple, read) for triple in triples], ends.output_names, self._timing)

    def buffered_outputs(self, ends: Ends, read: dict[bytes, Bytes], execution: BufferedExecution) -> AnyOutputs:
        """The outputs of an execution that uses buffers, copied but for those that went there."""
        triples = zip(ends.outputs, self._outputs, self._defined.outputs, strict=True)
        execution.filled(output.shape.dimensions for output in self._outputs)
        arrays = [
            None if target is not None else self._array(*triple, read)
            for target, triple in zip(execution.targets, triples, strict=True)
        ]
        return execution.outputs(arrays, self._timing)

    def _array(
        self, operand: Operand, output: frames.Output, region: AnyArray | None, read: dict[bytes, Bytes]
    ) -> AnyArray:
        if region is not None:
            return region.copy()
        if output.place == Place.MEMORY:
            raw = read[output.memory]
        else:
            raw = self._defined.returned[output.offset : output.offset + _size(operand, output)]
        return raw.view(DTYPES[operand.type]).reshape(output.shape.dimensions).copy()


@lru_cache(maxsize=256)
def _unpacked(body: bytes, count: int) -> tuple[tuple[frames.Output, ...], tuple[bytes, ...]]:
    """The outputs of a RESULT, and which memories they are in; those of one request are mostly the same bytes."""
    outputs = frames.unpack_outputs(body, count)
    return outputs, tuple(output.memory for output in outputs if output.place == Place.MEMORY)


def _size(operand: Operand, output: frames.Output) -> int:
    """Bytes of an output."""
    return prod(output.shape.dimensions) * DTYPES[operand.type].itemsize


def _request(ends: Ends, arrays: Arrays, identifiers: Sequence[int], layout: Layout, base: int) -> Request:
    """The request: pool 0 is the memory, then come the kept inputs, then the pool of returned outputs."""
    pools = itertools.count(1)
    inputs = []
    for operand, array, start in zip(ends.inputs, arrays, layout.inputs, strict=True):
        if array is None:
            inputs.append(RequestArgument(has_no_value=True))
            continue
        pool, offset = (0, base + start) if start is not None else (next(pools), 0)
        dimensions = () if is_fully_specified(operand.type, operand.dimensions) else array.shape
        inputs.append(RequestArgument(False, DataLocation(pool, offset, array.nbytes), dimensions))
    kept = sum(identifier >= 0 for identifier in identifiers)
    outputs = []
    for operand, start in zip(ends.outputs, layout.outputs, strict=True):
        if start is None:
            outputs.append(RequestArgument(False, DataLocation(kept + 1)))
        else:
            size = byte_size(operand.type, operand.dimensions)
            outputs.append(RequestArgument(False, DataLocation(0, base + start, size)))
    places: list[RequestMemoryPool] = [_anywhere() for _ in range(kept + 1)]
    if None in layout.outputs:
        places.append(ReturnedPool())
    return Request(tuple(inputs), tuple(outputs), tuple(places))


def _with_buffers(request: Request, execution: BufferedExecution) -> Request:
    """The same with buffers in place of the arguments that lie in some."""
    pools = list(request.pools)

    def placed(argument: RequestArgument, given: RequestArgument) -> RequestArgument:
        pool = None if given.has_no_value else execution.request.pools[given.location.pool_index]
        if not isinstance(pool, BufferToken):
            return argument
        pools.append(pool)
        return replace(given, location=DataLocation(len(pools) - 1))

    inputs = tuple(map(placed, request.inputs, execution.request.inputs))
    outputs = tuple(map(placed, request.outputs, execution.request.outputs))
    return Request(inputs, outputs, tuple(pools))


def _anywhere() -> Memory:
    """Stands for a memory; its message says which."""
    return Memory(np.empty(0, np.uint8))


def _shared(numbers: Sequence[int]) -> wire.SendMemory:
    """Gives the messages of shared memories, in the order of the pools."""
    left = iter(numbers)
    return lambda pool: types_pb2.Memory(shared=next(left))
