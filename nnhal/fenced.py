"""What fenced and reusable executions of both clients have in common: where values lie on the service, and requests.

Inputs and outputs of such executions lie in Memory objects of the session. An output can be an input of another
execution without coming to the client in between.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from nnhal import wire
from nnhal.buffer import BufferBase
from nnhal.errors import HalError, invalid_argument
from nnhal.pools import uploaded_memory
from nnhal.tensors import Ends, Inputs, Outputs
from nnhal.types import (
    DTYPES,
    OMITTED,
    AnyArray,
    Bytes,
    ErrorStatus,
    Operand,
    Request,
    Timing,
    byte_size,
    is_fully_specified,
)
from nnhal.v1 import fence_pb2, types_pb2

_ALIGNMENT = 64
"""Bytes; what vectorised kernels like best."""


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
    """

    fence: Any
    operand: Operand
    memory: bytes
    offset: int
    length: int


FencedInput: TypeAlias = ArrayLike | FencedOutput | BufferBase | None
FencedInputs: TypeAlias = Sequence[FencedInput] | Mapping[str, FencedInput]
"""One value per input, by position or by name: an array, an output of another fenced execution, a buffer, or None."""


def output_layout(ends: Ends) -> Layout:
    """Where the outputs of an execution lie.

    Raises:
        HalError: INVALID_ARGUMENT: the shape of one is not fixed.
    """
    for number, operand in enumerate(ends.outputs):
        if not is_fully_specified(operand.type, operand.dimensions):
            name = f" ({ends.output_names[number]})" if ends.output_names else ""
            raise invalid_argument(
                f"output {number}{name} has shape {list(operand.dimensions)}: fenced executions need outputs of fixed "
                "shape",
                "V-REQMODEL-04",
            )
    return Layout.of(byte_size(operand.type, operand.dimensions) for operand in ends.outputs)


def read_outputs(ends: Ends, layout: Layout, data: Bytes, timing: Timing) -> Outputs:
    """The arrays of outputs, out of the bytes of their Memory object."""
    arrays = []
    for operand, offset, size in zip(ends.outputs, layout.offsets, layout.sizes, strict=True):
        array: AnyArray = data[offset : offset + size].view(DTYPES[operand.type])
        arrays.append(array.reshape(operand.dimensions))
    return Outputs.of(arrays, ends.output_names, timing)


class FencedRequest:
    """The request of a fenced execution: arrays in pools, and outputs of others where they lie.

    Attributes:
        request: with the arrays; its pools are to be placed.
        fences: of the executions whose outputs it reads.

    Raises:
        HalError: INVALID_ARGUMENT: an input does not fit, or the shape of an output is not fixed.
    """

    def __init__(self, ends: Ends, inputs: FencedInputs) -> None:
        values: Sequence[FencedInput] = ends.by_position(inputs)
        self.layout = output_layout(ends)
        self._links: dict[int, FencedOutput | BufferBase] = {}
        arrays: list[AnyArray | None] = []
        for number, value in enumerate(values):
            if isinstance(value, FencedOutput | BufferBase):
                _check_link(ends.inputs[number], value, f"input {number}")
                self._links[number] = value
                arrays.append(None)
            else:
                arrays.append(ends.checked(number, value))
        self.request: Request = ends.request_of(arrays)
        self.fences = [link.fence for link in self._links.values() if isinstance(link, FencedOutput)]

    def message(self, send: wire.SendMemory, memory: bytes) -> types_pb2.Request:
        """The message. `memory`: handle of the Memory object for the outputs."""
        message = wire.request_message(self.request, send)
        place_outputs(message, self.layout, memory)
        for number, link in self._links.items():
            location = types_pb2.DataLocation(pool_index=len(message.pools))
            if isinstance(link, FencedOutput):
                message.pools.add(pool=uploaded_memory(link.memory))
                location.offset, location.length = link.offset, link.length
            else:
                message.pools.add(token=link.token)
            argument = types_pb2.RequestArgument(location=location, dimensions=_shape(link))
            message.inputs[number].CopyFrom(argument)
        return message


def _shape(link: FencedOutput | BufferBase) -> tuple[int, ...] | None:
    return link.operand.dimensions if isinstance(link, FencedOutput) else link.shape


def place_outputs(message: types_pb2.Request, layout: Layout, memory: bytes) -> None:
    """Puts a Memory object in the place of the ReturnedPool, which is the last pool."""
    pool = len(message.pools) - 1
    message.pools[pool].CopyFrom(types_pb2.RequestMemoryPool(pool=uploaded_memory(memory)))
    for argument, offset, size in zip(message.outputs, layout.offsets, layout.sizes, strict=True):
        argument.location.CopyFrom(types_pb2.DataLocation(pool_index=pool, offset=offset, length=size))


def _check_link(operand: Operand, link: FencedOutput | BufferBase, name: str) -> None:
    wanted, found = operand.dimensions, _shape(link) or ()
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


def _laid_out(arrays: Sequence[AnyArray | None]) -> tuple[Layout, Bytes]:
    """Where the inputs of a reusable execution lie in their Memory object, and its first contents."""
    layout = Layout.of(0 if array is None else array.nbytes for array in arrays)
    contents = np.zeros(layout.size, np.uint8)
    for array, offset in zip(arrays, layout.offsets, strict=True):
        if array is not None:
            contents[offset : offset + array.nbytes] = bytes_of(array)
    return layout, contents


def bytes_of(array: AnyArray) -> Bytes:
    """The bytes of an array."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class Frozen:
    """The inputs of a reusable execution: what they are, where they lie, and their first contents.

    Raises:
        HalError: INVALID_ARGUMENT: an input does not fit.
    """

    def __init__(self, ends: Ends, inputs: Inputs) -> None:
        self._ends = ends
        self._arrays = ends.arrays(inputs)
        self._layout, self.contents = _laid_out(self._arrays)

    def message(self, memory: bytes) -> types_pb2.Request:
        """A request whose inputs lie in this Memory object, and whose outputs are returned."""
        return _frozen_request(self._ends, self._arrays, self._layout, memory)

    def changes(self, inputs: Mapping[int | str, ArrayLike]) -> list[tuple[Bytes, int]]:
        """New values of inputs: bytes, and where they go.

        Raises:
            HalError: INVALID_ARGUMENT: there is no such input, it was omitted, or its shape is another one.
        """
        changes = []
        for key, value in inputs.items():
            number = self._ends.index(key, is_output=False)
            old = self._arrays[number]
            given: list[ArrayLike | None] = list(self._arrays)
            given[number] = value
            new = self._ends.arrays(given)[number]
            if old is None or new is None or new.shape != old.shape:
                shape = "nothing" if old is None else f"shape {list(old.shape)}"
                raise invalid_argument(f"input {key} was frozen with {shape}")
            changes.append((bytes_of(new), self._layout.offsets[number]))
        return changes


def _frozen_request(ends: Ends, arrays: Sequence[AnyArray | None], layout: Layout, memory: bytes) -> types_pb2.Request:
    message = wire.request_message(ends.request_of(arrays), lambda _: types_pb2.Memory())
    del message.pools[:]
    message.pools.add(pool=uploaded_memory(memory))
    message.pools.add(returned=types_pb2.ReturnedPool())
    for argument, offset, size in zip(message.inputs, layout.offsets, layout.sizes, strict=True):
        if not argument.has_no_value:
            argument.location.CopyFrom(types_pb2.DataLocation(pool_index=0, offset=offset, length=size))
    for argument in message.outputs:
        argument.location.CopyFrom(types_pb2.DataLocation(pool_index=1))
    return message
