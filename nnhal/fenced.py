"""What fenced executions and fences of both clients have in common: where values lie on the service, and requests.

Outputs of such executions lie in Memory objects of the session, or in driver-managed buffers. An output can be an input
of another execution without coming to the client in between.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from nnhal import wire
from nnhal.buffer import BufferBase
from nnhal.buffered import BufferedExecution, BufferOutputs, Targets
from nnhal.enums import FenceState
from nnhal.errors import HalError, general_failure, invalid_argument
from nnhal.owned import C, goes_with
from nnhal.pools import uploaded_memory
from nnhal.tensors import Ends, Outputs
from nnhal.types import (
    DTYPES,
    OMITTED,
    AnyArray,
    Bytes,
    ErrorStatus,
    Operand,
    Timing,
    byte_size,
    is_fully_specified,
)
from nnhal.v1 import fence_pb2, prepared_model_pb2, types_pb2

_ALIGNMENT = 64
"""Bytes; what vectorised kernels like best."""
NO_BYTES: Bytes = np.empty(0, np.uint8)
"""Of a Memory object that is not needed."""


class FencedTiming(NamedTuple):
    """What was measured: from the launch, and from the last of the fences, to the end. -1s where nothing was."""

    launched: Timing
    fenced: Timing


@dataclass(frozen=True, slots=True)
class Layout:
    """Where values lie in one Memory object. `size`: bytes of all together."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    size: int

    @staticmethod
    def of(sizes: Iterable[int]) -> "Layout":
        """Puts values one after another."""
        offsets, given, end = [], tuple(sizes), 0
        for size in given:
            offsets.append(end)
            end += -(-size // _ALIGNMENT) * _ALIGNMENT
        return Layout(tuple(offsets), given, max(end, 1))


@dataclass(frozen=True, eq=False)
class FencedOutput:
    """An output of a fenced execution that stays on the service; an input of another execution may be one.

    Attributes:
        fence: of the execution; whoever uses the output waits for it.
        operand: its type and shape.
        memory, offset, length: where it lies; b"": in `buffer`.
    """

    fence: Any
    operand: Operand
    memory: bytes
    offset: int
    length: int
    buffer: BufferBase | None = None

    def put(self, pool: types_pb2.RequestMemoryPool) -> types_pb2.DataLocation:
        """Fills a pool of a request with what it lies in; gives where in that."""
        if self.buffer is not None:
            pool.token = self.buffer.token
            return types_pb2.DataLocation()
        pool.pool.CopyFrom(uploaded_memory(self.memory))
        return types_pb2.DataLocation(offset=self.offset, length=self.length)


FencedInput: TypeAlias = ArrayLike | FencedOutput | BufferBase | None
FencedInputs: TypeAlias = Sequence[FencedInput] | Mapping[str, FencedInput]
"""One value per input, by position or by name: an array, an output of another fenced execution, a buffer, or None."""


def _hold_base_types(ends: Ends) -> None:
    """Refuses extensions' types.

    Raises:
        HalError: INVALID_ARGUMENT.
    """
    if not ends.are_base_types:
        raise invalid_argument("fenced executions take no inputs and outputs of an extension's type")


class FixedOutputs:
    """The outputs of fenced runs of an execution, which need shapes that are known before.

    Attributes:
        operands: of the outputs, with those shapes.
        layout: of those that go to no buffer, in one Memory object.

    Raises:
        HalError: INVALID_ARGUMENT: the shape of one is not fixed.
    """

    def __init__(self, ends: Ends, execution: BufferedExecution) -> None:
        _hold_base_types(ends)
        self.execution = execution
        pairs = list(zip(ends.outputs, execution.targets, strict=True))
        self.operands = [_fixed(ends, number, *pair) for number, pair in enumerate(pairs)]
        self.layout = Layout.of(
            byte_size(operand.type, operand.dimensions) if target is None else 0
            for operand, target in zip(self.operands, execution.targets, strict=True)
        )

    @property
    def size(self) -> int:
        """Bytes of the Memory object; 0: none is needed."""
        return self.layout.size if None in self.execution.targets else 0

    def put(self, message: types_pb2.Request, memory: bytes) -> None:
        """Puts the Memory object in the place of the ReturnedPool, which is the last pool if there is one."""
        pool = len(message.pools) - 1
        if memory:
            message.pools[pool].pool.CopyFrom(uploaded_memory(memory))
        places = zip(self.operands, self.execution.targets, self.layout.offsets, self.layout.sizes, strict=True)
        for argument, (operand, target, offset, size) in zip(message.outputs, places, strict=True):
            argument.dimensions[:] = operand.dimensions
            if target is None:
                argument.location.CopyFrom(types_pb2.DataLocation(pool_index=pool, offset=offset, length=size))


def _fixed(ends: Ends, number: int, operand: Operand, target: BufferBase | None) -> Operand:
    """The operand of an output with the shape that model and buffer give it."""
    declared = operand if target is None or is_fully_specified(operand.type, operand.dimensions) else target.operand
    if not is_fully_specified(operand.type, declared.dimensions):
        name = f" ({ends.output_names[number]})" if ends.output_names else ""
        raise invalid_argument(
            f"output {number}{name} has shape {list(operand.dimensions)}: fenced executions need outputs of fixed "
            "shape",
            "V-REQMODEL-04",
        )
    return replace(operand, dimensions=declared.dimensions)


class FencedLaunch:
    """A fenced execution that is to be launched: arrays in pools, and outputs of others where they lie.

    Args:
        outputs: buffers for outputs.
        wait_for: fences; those of the executions whose outputs it reads come with the inputs.
        deadline, duration: seconds.

    Attributes:
        pools: to be placed.
        outputs: with the size of the Memory object that they need.

    Raises:
        HalError: INVALID_ARGUMENT: an input does not fit, or the shape of an output is not fixed.
    """

    def __init__(
        self,
        ends: Ends,
        inputs: FencedInputs,
        outputs: Targets | None,
        wait_for: "Iterable[FenceBase[Any]]",
        deadline: float | None,
        duration: float | None,
        measure_timing: bool,
    ) -> None:
        _hold_base_types(ends)
        values: Sequence[FencedInput] = ends.by_position(inputs)
        self._links = {number: value for number, value in enumerate(values) if isinstance(value, FencedOutput)}
        for number, link in self._links.items():
            _check_link(ends.inputs[number], link, f"input {number}")
        own = [None if isinstance(value, FencedOutput) else value for value in values]
        self._execution = BufferedExecution(ends, own, outputs)
        self.outputs = FixedOutputs(ends, self._execution)
        self.pools = self._execution.request.pools
        self._wait_for = [fence.handle for fence in (*wait_for, *(link.fence for link in self._links.values()))]
        self._times = (nanoseconds(deadline), nanoseconds(duration))
        self._measure_timing = measure_timing

    def message(
        self, session: bytes, prepared_model: bytes, send: wire.SendMemory, memory: bytes = b""
    ) -> prepared_model_pb2.ExecuteFencedRequest:
        """The message. `memory`: handle of the Memory object for the outputs."""
        deadline_ns, duration_ns = self._times
        return prepared_model_pb2.ExecuteFencedRequest(
            session=session,
            prepared_model=prepared_model,
            request=self._request_message(send, memory),
            wait_for=self._wait_for,
            measure_timing=self._measure_timing,
            deadline_ns=deadline_ns,
            duration_ns=duration_ns,
        )

    def _request_message(self, send: wire.SendMemory, memory: bytes) -> types_pb2.Request:
        message = wire.request_message(self._execution.request, send)
        self.outputs.put(message, memory)
        for number, link in self._links.items():
            location = link.put(message.pools.add())
            location.pool_index = len(message.pools) - 1
            argument = types_pb2.RequestArgument(location=location, dimensions=link.operand.dimensions)
            message.inputs[number].CopyFrom(argument)
        return message

    def stored(self, memory: bytes = b"") -> "StoredOutputs":
        """Where the outputs will lie."""
        return StoredOutputs(self.outputs, memory)


def _check_link(operand: Operand, link: FencedOutput, name: str) -> None:
    wanted, found = operand.dimensions, link.operand.dimensions
    known = not wanted or (len(wanted) == len(found) and all(w in (0, f) for w, f in zip(wanted, found, strict=True)))
    if DTYPES[link.operand.type] != DTYPES[operand.type] or not known:
        raise invalid_argument(
            f"{name} is {DTYPES[link.operand.type]} {list(found)} on the device; the model takes "
            f"{DTYPES[operand.type]} {list(wanted)}"
        )


def check_info(info: fence_pb2.GetExecutionInfoResponse) -> FencedTiming:
    """What was measured.

    Raises:
        HalError: the execution failed.
    """
    if int(info.status) != ErrorStatus.NONE:
        raise HalError(info.status, info.reason)
    return FencedTiming(wire.to_timing(info.timing_launched), wire.to_timing(info.timing_fenced))


def nanoseconds(seconds: float | None) -> int:
    """A time in seconds as the contract has it; -1 for none."""
    return OMITTED if seconds is None else int(seconds * 1e9)


# ---- Fences ---------------------------------------------------------------------------------------------


class FenceBase(Generic[C]):
    """A promise on the service that ends once: signalled, or in error. The service lets it go with this object.

    Args:
        others: handles to let go with it.
    """

    def __init__(self, connection: C, handle: bytes, *others: bytes) -> None:
        self._connection = connection
        self._handle = handle
        self._finalizer = goes_with(self, connection.discard, handle, *others)

    @property
    def handle(self) -> bytes:
        """Of the object in the session."""
        return self._handle

    def _wait_request(self, timeout: float | None) -> fence_pb2.WaitRequest:
        session = self._connection.session
        return fence_pb2.WaitRequest(session=session, fence=self._handle, timeout_ns=nanoseconds(timeout))

    def _signal_request(self, error: bool) -> fence_pb2.SignalFenceRequest:
        return fence_pb2.SignalFenceRequest(session=self._connection.session, fence=self._handle, error=error)

    def _info_request(self) -> fence_pb2.GetExecutionInfoRequest:
        return fence_pb2.GetExecutionInfoRequest(session=self._connection.session, fence=self._handle)


def hold_ended(state: int, timeout: float | None) -> None:
    """Refuses to go on with an execution that has not ended in time.

    Raises:
        TimeoutError: it has not.
    """
    if state == FenceState.ACTIVE:
        raise TimeoutError(f"the execution did not end within {timeout} s")


class StoredOutputs:
    """Where the outputs of one fenced run lie on the service.

    Args:
        memory: handle of the Memory object; b"" where all outputs go to buffers.
        owner: is kept alive, and with it the memory.

    Attributes:
        overtaken: a later run has written over them.
    """

    def __init__(self, outputs: FixedOutputs, memory: bytes, owner: object = None) -> None:
        self.memory = memory
        self.overtaken = False
        self._outputs = outputs
        self._owner = owner

    def links(self, fence: "FenceBase[Any]") -> tuple[FencedOutput, ...]:
        """The outputs as inputs of others. `fence`: of the run."""
        outputs = self._outputs
        places = zip(
            outputs.operands, outputs.layout.offsets, outputs.layout.sizes, outputs.execution.targets, strict=True
        )
        return tuple(
            FencedOutput(fence, operand, b"" if target else self.memory, offset, size, target)
            for operand, offset, size, target in places
        )

    def read(self, data: Bytes, timing: FencedTiming) -> Outputs | BufferOutputs:
        """The outputs. `data`: all bytes of the Memory object.

        Raises:
            HalError: GENERAL_FAILURE: a later run has written over them.
        """
        if self.overtaken:
            raise general_failure("a later run of this execution has written over these outputs")
        outputs, layout = self._outputs, self._outputs.layout
        arrays: list[AnyArray | None] = []
        for operand, target, offset, size in zip(
            outputs.operands, outputs.execution.targets, layout.offsets, layout.sizes, strict=True
        ):
            if target is not None:
                arrays.append(None)
                continue
            array: AnyArray = data[offset : offset + size].view(DTYPES[operand.type])
            arrays.append(array.reshape(operand.dimensions))
        return outputs.execution.outputs(arrays, timing.launched)
