"""Fences and fenced executions: the common base of both clients, their messages, and outputs that stay on the service.

Outputs of fenced executions are in Memory objects of the session or in driver-managed buffers. An output can be an
input of another execution without a transfer to the client.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from google.protobuf.message import Message
from numpy.typing import ArrayLike

from nnhal import wire
from nnhal.alignment import align
from nnhal.client.core.arguments import optional_nanoseconds, type_error
from nnhal.client.core.arrays import ModelIO, Outputs, has_fixed_shape, require_dtype, value_size
from nnhal.client.core.buffered_execution import BufferedExecution, BufferOutputs, OutputBuffers
from nnhal.client.core.buffers import BufferBase
from nnhal.client.core.handles import C, ProcessBound, release_with
from nnhal.client.core.memory import memory_object_message
from nnhal.client.core.session import lost_error
from nnhal.errors import argument_error, general_failure, reported_type
from nnhal.types import (
    Bytes,
    ErrorStatus,
    ExecutionConfig,
    Operand,
    Timing,
)
from nnhal.v1 import fence_pb2, prepared_model_pb2, types_pb2

NO_BYTES: Bytes = np.empty(0, np.uint8)
"""Bytes of a Memory object that is not needed."""

R = TypeVar("R")
"""Result of an execution: Outputs, or BufferOutputs if buffers take some of them."""


class FencedTiming(NamedTuple):
    """Measured times from the launch, and from the last signal of the fences, to the end. -1 if not measured."""

    launched: Timing
    fenced: Timing


def lay_out(sizes: Iterable[int]) -> tuple[list[int], int]:
    """Return the offsets of values one after another in a Memory object, and its size: in bytes, at least 1."""
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end += align(size)
    return offsets, max(end, 1)


@dataclass(frozen=True, eq=False)
class FencedOutput:
    """Output of a fenced execution that stays on the service. It can be an input of another fenced execution.

    Attributes:
        fence: fence of the execution. Executions that use the output wait for it.
        operand: its type and shape.
        memory, offset, length: its location in a Memory object; b"" if it is in `buffer`.
    """

    fence: Any
    operand: Operand
    memory: bytes
    offset: int
    length: int
    buffer: BufferBase | None = None

    def fill_pool(self, pool: types_pb2.RequestMemoryPool) -> types_pb2.DataLocation:
        """Make a pool of a request refer to the output, and return the location in the pool."""
        if self.buffer is not None:
            pool.token = self.buffer.token
            return types_pb2.DataLocation()
        pool.pool.CopyFrom(memory_object_message(self.memory))
        return types_pb2.DataLocation(offset=self.offset, length=self.length)


FencedInput: TypeAlias = ArrayLike | FencedOutput | BufferBase | None
FencedInputs: TypeAlias = Sequence[FencedInput] | Mapping[str, FencedInput]
"""One value per input, by position or by name: an array, an output of another fenced execution, a buffer, or None."""


class FixedOutputs:
    """Outputs of fenced runs of an execution. Their shapes must be known before the run.

    Attributes:
        locations: for each output, its operand with that shape; its buffer, or None; and its offset and size in a
            Memory object in bytes.
        size: size of the Memory object in bytes; 0 if none is needed.

    Raises:
        HalError: INVALID_ARGUMENT: the shape of an output is not fixed, or the size of its type is not known.
    """

    def __init__(self, io: ModelIO, execution: BufferedExecution) -> None:
        self.execution = execution
        targets = execution.targets
        pairs = list(zip(io.outputs, targets, strict=True))
        operands = [_fixed_operand(io, number, *pair) for number, pair in enumerate(pairs)]
        sizes = [
            value_size(operand, operand.dimensions) if target is None else 0
            for operand, target in zip(operands, targets, strict=True)
        ]
        offsets, size = lay_out(sizes)
        self.locations = list(zip(operands, targets, offsets, sizes, strict=True))
        self.size = size if None in targets else 0

    def fill_request(self, message: types_pb2.Request, memory: bytes) -> None:
        """Replace the ReturnedPool, which is the last pool if there is one, by the Memory object."""
        pool = len(message.pools) - 1
        if memory:
            message.pools[pool].pool.CopyFrom(memory_object_message(memory))
        for argument, (operand, target, offset, size) in zip(message.outputs, self.locations, strict=True):
            argument.dimensions[:] = operand.dimensions
            if target is None:
                argument.location.CopyFrom(types_pb2.DataLocation(pool_index=pool, offset=offset, length=size))


def _fixed_operand(io: ModelIO, number: int, operand: Operand, target: BufferBase | None) -> Operand:
    """Return the operand of an output with the shape that the model or the buffer fixes."""
    declared = operand if target is None or has_fixed_shape(operand) else target.operand
    if not has_fixed_shape(declared):
        name = f" ({io.output_names[number]})" if io.output_names else ""
        raise argument_error(
            f"output {number}{name} has shape {list(operand.dimensions)}: fenced executions need outputs of fixed "
            "shape",
            "V-REQMODEL-04",
        )
    return replace(operand, dimensions=declared.dimensions)


class FencedLaunch:
    """Fenced execution to launch. Its arrays travel in pools; outputs of other executions stay on the service.

    The arguments are those of `PreparedModel.execute_fenced`. It also waits for the executions whose outputs it uses.

    Attributes:
        pools: pools of the request, to be uploaded if they are too large for a message.
        outputs: locations of the outputs, with the size of the Memory object that they need.

    Raises:
        HalError: INVALID_ARGUMENT: an input does not match its operand, or the shape of an output is not fixed.
    """

    def __init__(
        self,
        io: ModelIO,
        inputs: FencedInputs,
        outputs: OutputBuffers | None,
        wait_for: "Iterable[FenceBase[Any]]",
        deadline: float | None,
        duration: float | None,
        measure_timing: bool,
        profile: bool = False,
    ) -> None:
        values: Sequence[FencedInput] = io.by_position(inputs)
        self._links = {number: value for number, value in enumerate(values) if isinstance(value, FencedOutput)}
        for number, link in self._links.items():
            _check_link(io.inputs[number], link, f"input {number}")
        own = [None if isinstance(value, FencedOutput) else value for value in values]
        self._execution = BufferedExecution(io, own, outputs)
        self.outputs = FixedOutputs(io, self._execution)
        self.pools = self._execution.request.pools
        self._fences = [*wait_for] if isinstance(wait_for, Iterable) else wait_for
        fence_handles(self._fences)
        self._times = {
            "deadline_ns": optional_nanoseconds(deadline),
            "duration_ns": optional_nanoseconds(duration, "duration"),
        }
        self._config = ExecutionConfig(measure_timing, profile=profile)

    def call(
        self, connection: Any, prepared_model: bytes, encode_pool: wire.SendMemory, memory: bytes
    ) -> tuple[Any, Message]:
        """Return the method that launches the execution, and its message.

        `memory` is the handle of the Memory object for outputs, or b"".
        """
        self._execution.require_buffers()
        fields: dict[str, Any] = {
            "session": connection.session,
            "prepared_model": prepared_model,
            "request": self._request_message(encode_pool, memory),
            "wait_for": [*fence_handles(self._fences), *fence_handles(link.fence for link in self._links.values())],
            **self._times,
        }
        stub = connection.prepared_model
        if not self._config.profile:
            message = prepared_model_pb2.ExecuteFencedRequest(**fields, measure_timing=self._config.measure_timing)
            return stub.ExecuteFenced, message
        config = wire.execution_config_message(self._config)
        return stub.ExecuteFencedWithConfig, prepared_model_pb2.ExecuteFencedWithConfigRequest(**fields, config=config)

    @property
    def is_repeatable(self) -> bool:
        """True if the execution may run twice: it writes to no buffer."""
        return not self._execution.buffers

    def _request_message(self, encode_pool: wire.SendMemory, memory: bytes) -> types_pb2.Request:
        message = wire.request_message(self._execution.request, encode_pool)
        self.outputs.fill_request(message, memory)
        for number, link in self._links.items():
            location = link.fill_pool(message.pools.add())
            location.pool_index = len(message.pools) - 1
            argument = types_pb2.RequestArgument(location=location, dimensions=link.operand.dimensions)
            message.inputs[number].CopyFrom(argument)
        return message


def _check_link(operand: Operand, link: FencedOutput, name: str) -> None:
    expected, actual = operand.dimensions, link.operand.dimensions
    matches = not expected or (
        len(expected) == len(actual) and all(e in (0, a) for e, a in zip(expected, actual, strict=True))
    )
    given, taken = require_dtype(link.operand), require_dtype(operand)
    if given != taken or not matches:
        raise argument_error(
            f"{name} is {given} {list(actual)} on the device; the model takes {taken} {list(expected)}"
        )


def require_success(info: fence_pb2.GetExecutionInfoResponse) -> fence_pb2.GetExecutionInfoResponse:
    """Return the description of a fenced execution that succeeded.

    Raises:
        HalError: the execution failed.
    """
    if int(info.status) != ErrorStatus.NONE:
        raise reported_type(info.status)(info.status, info.reason)
    return info


# ---- Fences ---------------------------------------------------------------------------------------------


class FenceBase(ProcessBound, Generic[C]):
    """Fence of either client, without the calls. The service releases it, and `others`, with this object."""

    def __init__(self, connection: C, handle: bytes, *others: bytes) -> None:
        self._connection = connection
        self.handle = handle
        self._finalizer = release_with(self, connection.discard, handle, *others)

    def require_session(self) -> None:
        """Check that the fence still exists.

        Raises:
            SessionLostError: it was lost with its session.
        """
        if self._connection.lost:
            raise lost_error()


def fence_handles(fences: "Iterable[FenceBase[Any]]") -> list[bytes]:
    """Return the handles of fences to wait for.

    Raises:
        TypeError: the argument is not a list of fences.
        SessionLostError: a fence was lost with its session.
    """
    if not isinstance(fences, Iterable):
        raise type_error("wait_for", fences, "a list of fences")
    handles = []
    for fence in fences:
        if not isinstance(fence, FenceBase):
            raise type_error("wait_for", fence, "a fence")
        fence.require_session()
        handles.append(fence.handle)
    return handles


class StoredOutputs:
    """Outputs of one fenced run, on the service. They keep `owner` alive, and with it the memory.

    Attributes:
        superseded: whether a later run has overwritten them.
    """

    def __init__(self, outputs: FixedOutputs, memory: bytes, owner: object = None) -> None:
        self.memory = memory
        self.superseded = False
        self._outputs = outputs
        self._owner = owner

    def links(self, fence: "FenceBase[Any]") -> tuple[FencedOutput, ...]:
        """Return the outputs as inputs for other executions; `fence` is that of the run."""
        return tuple(
            FencedOutput(fence, operand, b"" if target else self.memory, offset, size, target)
            for operand, target, offset, size in self._outputs.locations
        )

    def read(self, data: Bytes, timing: FencedTiming) -> Outputs | BufferOutputs:
        """Return the outputs, given all bytes of the Memory object.

        Raises:
            HalError: GENERAL_FAILURE: a later run has overwritten them.
        """
        if self.superseded:
            raise general_failure("a later run of this execution has overwritten these outputs")
        arrays = [
            data[offset : offset + size].view(require_dtype(operand)).reshape(operand.dimensions)
            if target is None
            else None
            for operand, target, offset, size in self._outputs.locations
        ]
        return self._outputs.execution.combine_outputs(arrays, timing.launched)
