"""Bursts: a rapid sequence of executions of one prepared model, over a line of its own.

with prepared.burst() as burst:
    outputs = burst.execute([image])  # one after another
    futures = [burst.submit([image]) for image in images]  # or several on their way; answered in order
    weights = burst.keep(weights)  # an input that stays the same is sent once
    outputs = burst.execute([image, weights])

The line is one gRPC stream; on the same machine it is a socket, and tensors lie in shared memory (`nnhal.lines`).
"""

import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, Unpack, overload

import numpy as np

from nnhal import wire
from nnhal.buffered import AnyOutputs, BufferedExecution, BufferInputs, BufferOutputs, How, Targets, without_buffers
from nnhal.enums import ErrorStatus
from nnhal.errors import HalError, general_failure
from nnhal.owned import goes_with
from nnhal.pools import sender
from nnhal.templates import Templates, pools_of
from nnhal.tensors import Ends, Outputs
from nnhal.types import AnyArray, Memory
from nnhal.v1 import burst_pb2, types_pb2

READER_IDLE_S = 1.0
"""How long the thread that reads the answers of `submit` waits for more."""

Arrays = Sequence[AnyArray | None]
F = TypeVar("F")


class Kept:
    """Inputs that stay the same, by identifier. An array is known by itself, not by its value."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._kept: dict[int, tuple[int, AnyArray]] = {}

    def add(self, array: AnyArray) -> AnyArray:
        """A read-only copy that is kept from its first use on."""
        kept = np.array(array, order="C")
        kept.flags.writeable = False
        self._kept[id(kept)] = (next(self._numbers), kept)
        return kept

    def remove(self, array: AnyArray) -> int:
        """Gives the identifier of an array that is no longer kept; -1 if it was not."""
        return self._kept.pop(id(array), (-1, array))[0]

    def __len__(self) -> int:
        return len(self._kept)

    def identifier(self, array: AnyArray | None) -> int:
        """The identifier of an array; -1 if it is not kept."""
        return self._kept[id(array)][0] if id(array) in self._kept else -1

    def identifiers(self, arrays: Arrays) -> tuple[int, ...]:
        """The identifiers of arrays; () where nothing is kept."""
        return tuple(map(self.identifier, arrays)) if self._kept else ()


class Messages:
    """What a burst sends, as messages. Not thread safe."""

    def __init__(self, ends: Ends, session: bytes, burst: bytes) -> None:
        self.kept = Kept()
        self._session = session
        self._burst = burst
        self._known: set[int] = set()
        self._templates = Templates(ends)

    def pools(self, sent: "Waiting[F]") -> list[Memory | None]:
        """The pools of the inputs that are given; None where the service has the bytes already."""
        arrays = sent.arrays
        if sent.buffered is not None:
            return [
                pool if isinstance(pool, Memory) and self.kept.identifier(array) not in self._known else None
                for pool, array in zip(sent.buffered.request.pools, sent.buffered.arrays, strict=True)
            ]
        if not self.kept:
            return [*pools_of(arrays)]
        return [
            None if self.kept.identifier(array) in self._known else Memory.of(array)
            for array in arrays
            if array is not None
        ]

    def execute(
        self,
        sent: "Waiting[F]",
        pools: Sequence[Memory | None],
        elsewhere: Mapping[Memory, types_pb2.Memory],
        deadline: float | None,
        measure_timing: bool,
    ) -> burst_pb2.BurstStreamRequest:
        """The message of an execution. `elsewhere`: messages of the pools that are too large for it."""
        message = burst_pb2.BurstStreamRequest()
        call = message.execute
        call.session, call.burst = self._session, self._burst
        if sent.buffered is not None:
            call.request.CopyFrom(_buffered_request(sent.buffered, pools, elsewhere))
            given: Arrays = sent.buffered.arrays
        else:
            self._templates.fill(call.request, sent.arrays, pools, elsewhere)
            given = [*(array for array in sent.arrays if array is not None), None]
        identifiers = [-1] * len(given)
        if self.kept:
            identifiers = [self.kept.identifier(array) for array in given]
            self._known.update(identifier for identifier in identifiers if identifier >= 0)
        call.memory_identifier_tokens.extend(identifiers)
        call.measure_timing = measure_timing
        if deadline is not None:
            call.deadline_ns = int(deadline * 1e9)
        return message

    def release(self, identifier: int) -> burst_pb2.BurstStreamRequest:
        """The message that forgets a kept input."""
        self._known.discard(identifier)
        return burst_pb2.BurstStreamRequest(
            release=burst_pb2.ReleaseMemoryResourceRequest(
                session=self._session, burst=self._burst, memory_identifier_token=identifier
            )
        )

    def failed(self, arrays: Arrays) -> None:
        """An execution failed: perhaps the service never saw the bytes of what it was to keep."""
        self._known.difference_update(map(self.kept.identifier, arrays))


def _buffered_request(
    execution: BufferedExecution, fresh: Sequence[Memory | None], elsewhere: Mapping[Memory, types_pb2.Memory]
) -> types_pb2.Request:
    """The request of an execution that uses buffers. `fresh`: the pools whose bytes the service does not have yet."""
    send = sender(elsewhere)
    return wire.request_message(execution.request, lambda pool: send(pool) if pool in fresh else types_pb2.Memory())


def answered(response: burst_pb2.BurstStreamResponse) -> types_pb2.ExecutionResult:
    """The result in an answer.

    Raises:
        HalError: the execution failed.
    """
    if response.HasField("error"):
        detail = response.error
        raise HalError(detail.status, detail.reason, rule=detail.rule, kind=detail.kind, limit=detail.limit)
    return response.result


@dataclass(eq=False, slots=True)
class Waiting(Generic[F]):
    """An execution that is on its way.

    Attributes:
        arrays: one entry per input; None where it is omitted, or a buffer.
        buffered: it uses buffers.
        handles: Memory objects that it uses.
    """

    arrays: Arrays
    future: F
    buffered: BufferedExecution | None = None
    handles: list[bytes] = field(default_factory=list)

    @staticmethod
    def of(ends: Ends, inputs: BufferInputs, outputs: Targets | None, future: F) -> "Waiting[F]":
        """One that is to be sent.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not fit, or there is no output of a name or number.
        """
        plain = without_buffers(inputs, outputs)
        if plain is not None:
            return Waiting(ends.arrays(plain), future)
        execution = BufferedExecution(ends, inputs, outputs)
        return Waiting(execution.inputs, future, execution)

    def failed(self) -> None:
        """Notes that what it was to fill is uninitialised."""
        if self.buffered is not None:
            self.buffered.failed()


class Promised:
    """What an execution brings, for a thread that fetches it itself: a Future costs more than some models run."""

    def __init__(self) -> None:
        self.outputs: AnyOutputs | None = None
        self.error: HalError | None = None

    def done(self) -> bool:
        """Whether it is there."""
        return self.outputs is not None or self.error is not None

    def result(self) -> AnyOutputs:
        """The outputs, once they are there.

        Raises:
            HalError: the execution failed.
        """
        if self.error is not None:
            raise self.error
        assert self.outputs is not None
        return self.outputs


Sent = Waiting[Future[Any] | Promised]


class Line(Protocol):
    """What carries the executions of a burst; used by one thread at a time on either side."""

    depth: int
    """How many executions may be on their way."""
    kept: Kept

    def send(self, sent: Sent, deadline: float | None, measure_timing: bool) -> None:
        """Sends an execution.

        Raises:
            LineBroken: nothing can be sent any more.
            HalError: the service takes no more memory.
        """
        ...

    def release(self, identifier: int) -> Sent | None:
        """Forgets a kept input; gives what is to be waited for, if there is an answer."""
        ...

    def receive(self, sent: Sent) -> AnyOutputs:
        """Waits for the next answer, which belongs to the execution sent longest ago.

        Raises:
            LineBroken: no answer will ever come.
            HalError: the execution failed.
        """
        ...

    def close(self) -> None:
        """Ends it."""
        ...


class LineBroken(Exception):
    """A line that answers no more. `error`: what its executions end with."""

    def __init__(self, error: HalError) -> None:
        super().__init__(str(error))
        self.error = error


class Burst:
    """A burst. Thread safe. Close it, or use it as a context manager; what is on its way is waited for."""

    def __init__(self, line: Line, ends: Ends) -> None:
        self._line = line
        self._ends = ends
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._waiting: deque[Sent] = deque()
        self._arrived = threading.Condition()
        self._reader: threading.Thread | None = None
        self._broken: HalError | None = None
        self._finalizer = goes_with(self, line.close)

    @overload
    def execute(self, inputs: BufferInputs, *, outputs: None = None, **how: Unpack[How]) -> Outputs: ...

    @overload
    def execute(self, inputs: BufferInputs, *, outputs: Targets, **how: Unpack[How]) -> BufferOutputs: ...

    def execute(
        self,
        inputs: BufferInputs,
        *,
        outputs: Targets | None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
    ) -> AnyOutputs:
        """Runs the model and waits; arguments, result and errors as those of `PreparedModel.execute`."""
        promised = Promised()
        self._send(Waiting.of(self._ends, inputs, outputs, promised), deadline, measure_timing)
        while not promised.done():
            self._advance(promised)
        return promised.result()

    @overload
    def submit(self, inputs: BufferInputs, *, outputs: None = None, **how: Unpack[How]) -> "Future[Outputs]": ...

    @overload
    def submit(self, inputs: BufferInputs, *, outputs: Targets, **how: Unpack[How]) -> "Future[BufferOutputs]": ...

    def submit(
        self,
        inputs: BufferInputs,
        *,
        outputs: Targets | None = None,
        deadline: float | None = None,
        measure_timing: bool = False,
    ) -> "Future[Any]":
        """Sends an execution and does not wait for it, unless too many are on their way. Inputs may change at once.

        Executions run in the order in which they were sent: one may read a buffer that one before it fills. A buffer
        whose shape is open must be there first, for an execution that reads it says of what shape it is.

        Returns:
            a future of the outputs.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not fit; or the burst has been closed.
        """
        future: Future[Any] = Future()
        self._send(Waiting.of(self._ends, inputs, outputs, future), deadline, measure_timing)
        with self._arrived:
            if self._reader is None:
                self._reader = threading.Thread(target=self._read, name="nnhal-burst", daemon=True)
                self._reader.start()
            self._arrived.notify()
        return future

    def keep(self, array: AnyArray) -> AnyArray:
        """A read-only copy of an input; given as it is, its bytes travel with its first use alone."""
        with self._sending:
            return self._line.kept.add(array)

    def release(self, array: AnyArray) -> None:
        """Forgets an array of `keep`."""
        with self._sending:
            identifier = self._line.kept.remove(array)
            if identifier >= 0 and self._broken is None and (sent := self._line.release(identifier)) is not None:
                self._waiting.append(sent)

    def _send(self, sent: Sent, deadline: float | None, measure_timing: bool) -> None:
        while (before := self._sent(sent, deadline, measure_timing)) is not None:
            self._advance(before)

    def _sent(self, sent: Sent, deadline: float | None, measure_timing: bool) -> Future[Any] | Promised | None:
        """Sends an execution; or, where too many are on their way, gives the one that is to be waited for."""
        try:
            with self._sending:
                if self._broken is not None:
                    raise self._broken.with_traceback(None)
                if len(self._waiting) >= self._line.depth:
                    return self._waiting[0].future
                self._line.send(sent, deadline, measure_timing)
                self._waiting.append(sent)
                return None
        except LineBroken as error:
            self._break(error.error)
            raise error.error from None

    def _advance(self, until: Future[Any] | Promised) -> None:
        """Takes the next answer, unless another thread has brought what is waited for."""
        with self._receiving:
            if until.done():
                return
            sent = self._waiting[0]
            outputs, failed = None, None
            try:
                outputs = self._line.receive(sent)
            except LineBroken as error:
                self._break(error.error)
                return
            except HalError as error:
                failed = error
                sent.failed()
            except BaseException:
                # which answer comes next cannot be known any more
                self._break(general_failure("the burst was interrupted"))
                raise
            self._waiting.popleft()
            _settle(sent.future, outputs, failed)

    def _break(self, error: HalError) -> None:
        with self._sending:
            self._broken = self._broken or error
            while self._waiting:
                _settle(self._waiting.popleft().future, None, error)
        self._finalizer()

    def _read(self) -> None:
        """Reads the answers of `submit`, for as long as there are any."""
        end = time.monotonic() + READER_IDLE_S
        while True:
            with contextlib.suppress(IndexError):
                while True:
                    self._advance(self._waiting[0].future)
                    end = time.monotonic() + READER_IDLE_S
            with self._arrived:
                if self._waiting:
                    continue
                if self._broken is not None or not self._arrived.wait(end - time.monotonic()):
                    self._reader = None
                    return

    def close(self) -> None:
        """Waits for what is on its way, then ends the line. A second call does nothing."""
        with contextlib.suppress(IndexError):
            while True:
                self._advance(self._waiting[0].future)
        self._break(HalError(ErrorStatus.DEVICE_UNAVAILABLE, "the burst has been closed"))

    def __enter__(self) -> "Burst":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _settle(future: Future[Any] | Promised, outputs: AnyOutputs | None, error: HalError | None) -> None:
    """Ends a future, unless it was cancelled."""
    if isinstance(future, Promised):
        future.outputs, future.error = outputs, error
        return
    if not future.set_running_or_notify_cancel():
        return
    if error is not None:
        future.set_exception(error)
    else:
        assert outputs is not None
        future.set_result(outputs)
