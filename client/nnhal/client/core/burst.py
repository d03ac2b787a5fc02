"""Common parts of bursts: cached inputs, messages, and executions in progress."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

import numpy as np

from nnhal import wire
from nnhal.client.core.arguments import nanoseconds
from nnhal.client.core.arrays import ModelIO
from nnhal.client.core.buffered_execution import (
    AnyOutputs,
    BufferedExecution,
    BufferInputs,
    OutputBuffers,
    plain_inputs,
)
from nnhal.client.core.cache import NO_DEADLINE, SharedDeadline
from nnhal.client.core.definitions import RequestDefinition
from nnhal.client.core.memory import pool_encoder
from nnhal.client.core.request_templates import RequestTemplates, input_pools
from nnhal.client.core.rpc_errors import error_from_detail
from nnhal.errors import DeadObjectError, HalError
from nnhal.types import AnyArray, ErrorStatus, Memory
from nnhal.v1 import burst_pb2, types_pb2

Arrays = Sequence[AnyArray | None]


class ResultHolder(Protocol):
    """Place for the outcome of an execution: a future, or less."""

    def done(self) -> bool:
        """Return whether there is an outcome."""

    def set_result(self, result: AnyOutputs, /) -> None:
        """Set the outputs."""

    def set_exception(self, exception: HalError, /) -> None:
        """Set the error."""


F = TypeVar("F", bound=ResultHolder)


class TransportClosed(Exception):
    """The transport of a burst cannot be used any more."""

    def __init__(self, error: HalError) -> None:
        super().__init__(str(error))
        self.error = error


class CachedInputs:
    """Inputs that a burst sends only once, with their identifiers. An array is known by its identity, not its value."""

    def __init__(self) -> None:
        self._numbers = itertools.count()
        self._entries: dict[int, tuple[int, AnyArray]] = {}

    def add(self, array: AnyArray) -> AnyArray:
        """Return a read-only copy, which is cached from its first use on."""
        copy = np.array(array, order="C")
        copy.flags.writeable = False
        self._entries[id(copy)] = (next(self._numbers), copy)
        return copy

    def remove(self, array: AnyArray) -> int:
        """Remove an array and return its identifier; -1 if it is not cached."""
        return self._entries.pop(id(array), (-1, array))[0]

    def __len__(self) -> int:
        return len(self._entries)

    def identifier(self, array: AnyArray | None) -> int:
        """Return the identifier of an array; -1 if it is not cached."""
        entry = self._entries.get(id(array))  # at once: another thread may remove it
        return -1 if entry is None else entry[0]

    def identifiers(self, arrays: Arrays) -> tuple[int, ...]:
        """Return the identifiers of arrays; () if nothing is cached."""
        return tuple(map(self.identifier, arrays)) if self._entries else ()


@dataclass(eq=False, slots=True)
class PendingExecution(Generic[F]):
    """Execution of a burst that is in progress.

    Attributes:
        arrays: array of each input; None for one that is omitted or in a buffer.
        future: takes the outputs.
        buffered: the execution, if it uses buffers.
        handles: Memory objects that it uses.
        definition: the definition that it runs; None if the whole request is sent.
        copy: whether to copy the outputs out of shared memory or out of the message.
    """

    arrays: Arrays
    future: F
    buffered: BufferedExecution | None = None
    handles: list[bytes] = field(default_factory=list)
    deadline: SharedDeadline = NO_DEADLINE
    measure_timing: bool = False
    definition: RequestDefinition | None = None
    copy: bool = True

    @staticmethod
    def of(
        io: ModelIO,
        inputs: BufferInputs,
        outputs: OutputBuffers | None,
        future: F,
        deadline: float | None,
        measure_timing: bool,
    ) -> "PendingExecution[F]":
        """Return an execution to send, whose deadline is in seconds from now.

        Raises:
            HalError: INVALID_ARGUMENT: an input does not match its operand, or there is no such output.
        """
        plain = plain_inputs(inputs, outputs)
        if plain is not None:
            execution = PendingExecution(io.arrays(plain), future)
        else:
            buffered = BufferedExecution(io, inputs, outputs)
            execution = PendingExecution(buffered.inputs, future, buffered)
        if deadline is not None:
            execution.deadline = SharedDeadline(deadline)
        execution.measure_timing = measure_timing
        return execution

    def copy_arrays(self) -> None:
        """Keep copies of arrays that the caller may change. Others stay the same objects."""
        self.arrays = [array if array is None or not array.flags.writeable else array.copy() for array in self.arrays]

    def again(self, future: F) -> "PendingExecution[F]":
        """Return the same execution without buffers, to be sent again."""
        return PendingExecution(
            self.arrays, future, deadline=self.deadline, measure_timing=self.measure_timing, copy=self.copy
        )

    def succeed(self, outputs: AnyOutputs) -> None:
        """Set its outputs, unless it has an outcome or was cancelled."""
        if not self.future.done():
            self.future.set_result(outputs)

    def fail(self, error: HalError) -> None:
        """Set its error, unless it has an outcome or was cancelled, and mark its output buffers as uninitialized."""
        if self.buffered is not None:
            self.buffered.clear_buffers()
        if not self.future.done():
            self.future.set_exception(error)


class BurstMessages:
    """Messages of a burst. Not thread safe."""

    def __init__(self, io: ModelIO, session: bytes, burst: bytes, cached_inputs: CachedInputs) -> None:
        self.cached_inputs = cached_inputs
        self._session = session
        self._burst = burst
        self._sent: set[int] = set()
        self._templates = RequestTemplates(io)

    def pools(self, execution: "PendingExecution[F]") -> list[Memory | None]:
        """Return the pools of the inputs that are present; None if the service has the bytes already."""
        arrays = execution.arrays
        if execution.buffered is not None:
            return [
                pool if isinstance(pool, Memory) and self.cached_inputs.identifier(array) not in self._sent else None
                for pool, array in zip(execution.buffered.request.pools, execution.buffered.arrays, strict=True)
            ]
        if not self.cached_inputs:
            return [*input_pools(arrays)]
        return [
            None if self.cached_inputs.identifier(array) in self._sent else Memory.of(array)
            for array in arrays
            if array is not None
        ]

    def execute(
        self,
        execution: "PendingExecution[F]",
        pools: Sequence[Memory | None],
        uploaded: Mapping[Memory, types_pb2.Memory],
    ) -> burst_pb2.BurstStreamRequest:
        """Return the message of an execution; `uploaded`: messages of the pools that are too large for it."""
        message = burst_pb2.BurstStreamRequest()
        call = message.execute
        call.session, call.burst = self._session, self._burst
        if execution.buffered is not None:
            execution.buffered.require_buffers()
            encode = pool_encoder(uploaded)
            request = wire.request_message(
                execution.buffered.request, lambda pool: encode(pool) if pool in pools else types_pb2.Memory()
            )
            call.request.CopyFrom(request)
            pool_arrays: Arrays = execution.buffered.arrays
        else:
            self._templates.fill(call.request, execution.arrays, pools, uploaded)
            pool_arrays = [*(array for array in execution.arrays if array is not None), None]
        identifiers = [-1] * len(pool_arrays)
        if self.cached_inputs:
            identifiers = [self.cached_inputs.identifier(array) for array in pool_arrays]
            self._sent.update(identifier for identifier in identifiers if identifier >= 0)
        call.memory_identifier_tokens.extend(identifiers)
        call.measure_timing = execution.measure_timing
        if (remaining := execution.deadline.remaining) is not None:
            call.deadline_ns = nanoseconds(remaining)
        return message

    def release(self, identifier: int) -> burst_pb2.BurstStreamRequest:
        """Return the message that releases a cached input."""
        self._sent.discard(identifier)
        return burst_pb2.BurstStreamRequest(
            release=burst_pb2.ReleaseMemoryResourceRequest(
                session=self._session, burst=self._burst, memory_identifier_token=identifier
            )
        )

    def send_again(self, arrays: Arrays) -> None:
        """Send cached inputs of a failed execution again; the service may not have received their bytes."""
        self._sent.difference_update(map(self.cached_inputs.identifier, arrays))


def burst_ended_error() -> DeadObjectError:
    """Return the error of the executions of a burst that the service has ended."""
    return DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, "the service ended the burst")


def burst_closed_error() -> HalError:
    """Return the error of a call after the burst was closed."""
    return HalError(ErrorStatus.DEVICE_UNAVAILABLE, "the burst has been closed")


def result_or_raise(response: burst_pb2.BurstStreamResponse) -> types_pb2.ExecutionResult:
    """Return the result in a response.

    Raises:
        HalError: the execution failed.
    """
    if response.HasField("error"):
        raise error_from_detail(response.error)
    return response.ran.result if response.HasField("ran") else response.result
