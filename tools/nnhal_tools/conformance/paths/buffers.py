"""Paths of MEMORY_DOMAIN: arguments lie in buffers of the device with a single role, where possible."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np

from nnhal.types import Bytes, ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckRecorder, Skipped
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.results import CallOutcome, ExecutionOutcome, PathStep
from nnhal_tools.conformance.device.target import Target, mapped_pool
from nnhal_tools.conformance.paths.path import ExecutionPath, expect_ok, with_earlier_steps

Roles = Sequence[types_pb2.BufferRole]


@dataclass(frozen=True)
class AllocatedBuffer:
    """Buffer of the device."""

    handle: bytes
    token: int


def allocate(
    target: Target,
    models: Sequence[bytes],
    inputs: Roles = (),
    outputs: Roles = (),
    dimensions: Sequence[int] = (),
) -> tuple[CallOutcome, AllocatedBuffer | None]:
    """Call IDevice.allocate."""
    desc = types_pb2.BufferDesc(dimensions=dimensions)
    roles = {"prepared_models": models, "input_roles": inputs, "output_roles": outputs}
    outcome, response = target.call("Device.Allocate", desc=desc, **roles)
    return outcome, AllocatedBuffer(response.buffer, response.token) if response else None


def buffer_role(model: int, number: int, probability: float = 1.0) -> types_pb2.BufferRole:
    """Return the role for input or output `number` of a model."""
    return types_pb2.BufferRole(model_index=model, io_index=number, probability=probability)


def copy_from(
    target: Target, buffer: AllocatedBuffer, memory: types_pb2.Memory, dimensions: Sequence[int] = ()
) -> CallOutcome:
    """Call IBuffer.copyFrom."""
    return target.call("Buffer.CopyFrom", buffer=buffer.handle, src=memory, dimensions=dimensions)[0]


def copy_to(target: Target, buffer: AllocatedBuffer, size: int) -> tuple[CallOutcome, Bytes]:
    """Call IBuffer.copyTo into a new memory of `size` bytes, and return the outcome and the bytes."""
    handle = target.memory_with(bytes(size))
    try:
        outcome, _ = target.call("Buffer.CopyTo", buffer=buffer.handle, dst=mapped_pool(handle))
        return outcome, np.frombuffer(target.read_memory(handle), np.uint8)
    finally:
        target.release(handle)


VALID_ALLOCATION = "a buffer and a token above 0, or GENERAL_FAILURE"


def is_valid_allocation(outcome: CallOutcome, buffer: AllocatedBuffer | None) -> bool:
    """Return whether an allocation gave a buffer and a token above 0, or failed with GENERAL_FAILURE (X3)."""
    if buffer is None:
        return outcome.status == ErrorStatus.GENERAL_FAILURE
    return bool(buffer.handle) and buffer.token > 0


@contextmanager
def allocated_buffer(
    target: Target,
    recorder: CheckRecorder,
    models: Sequence[bytes],
    inputs: Roles = (),
    outputs: Roles = (),
    dimensions: Sequence[int] = (),
    *,
    check: str = "",
) -> Iterator[AllocatedBuffer]:
    """Allocate a buffer, which must be valid, and release it at the end.

    Raises:
        Skipped: X3: the device allocates no buffer for these roles.
    """
    answer, buffer = allocate(target, models, inputs, outputs, dimensions)
    valid = is_valid_allocation(answer, buffer)
    recorder.expect(valid, "a valid allocation", VALID_ALLOCATION, f"{answer}, {buffer}", check=check)
    if buffer is None:
        raise Skipped("X3", str(answer))
    try:
        yield buffer
    finally:
        target.release(buffer.handle)


class _BufferArguments:
    """Copy of a request whose arguments are moved into buffers one by one."""

    def __init__(self, target: Target, model: bytes, request: types_pb2.Request) -> None:
        self.request = deepcopy(request)
        self.steps: list[PathStep] = []
        self.outputs: dict[int, tuple[AllocatedBuffer, int]] = {}
        self._target, self._model = target, model
        self._handles: list[bytes] = []

    def move_to_buffers(self) -> None:
        """Allocate a buffer for each argument with a value, and fill those of inputs.

        Raises:
            Skipped: X3, the device allocates no buffer at all.
        """
        for number, argument in enumerate(self.request.inputs):
            if argument.has_no_value:
                continue
            if buffer := self._allocate("GEN-28", number, inputs=[buffer_role(0, number)]):
                outcome = copy_from(self._target, buffer, self._input_memory(argument.location))
                self.steps.append(expect_ok("GEN-30", f"copyFrom of input {number}", outcome))
                move_to_buffer(self.request, argument, buffer.token)
        for number, argument in enumerate(self.request.outputs):
            if buffer := self._allocate("GEN-29", number, outputs=[buffer_role(0, number)]):
                self.outputs[number] = buffer, argument.location.length
                move_to_buffer(self.request, argument, buffer.token)
        if not self._handles and all(step.holds for step in self.steps):
            raise Skipped("X3", "the device allocates no buffer for any argument")

    def _allocate(self, check: str, number: int, **roles: Roles) -> AllocatedBuffer | None:
        outcome, buffer = allocate(self._target, [self._model], **roles)  # type: ignore[arg-type]
        holds = is_valid_allocation(outcome, buffer)
        stimulus = f"allocate for {'input' if 'inputs' in roles else 'output'} {number}"
        self.steps.append(PathStep(check, holds, stimulus, VALID_ALLOCATION, f"{outcome}, {buffer}"))
        if buffer is not None:
            self._handles.append(buffer.handle)
        return buffer if holds else None

    def _input_memory(self, location: types_pb2.DataLocation) -> types_pb2.Memory:
        """Return a memory with only the bytes of an input."""
        pool = self.request.pools[location.pool_index].pool
        if pool.WhichOneof("memory") == "inline":
            return types_pb2.Memory(inline=pool.inline[location.offset : location.offset + location.length])
        offset = pool.mapped.offset + location.offset
        return mapped_pool(pool.mapped.memory, offset=offset, length=location.length)

    def read_outputs(self, execution: ExecutionOutcome) -> ExecutionOutcome:
        """Return the execution with the outputs that lie in buffers. A zero-sized output is not copied."""
        outputs: list[Bytes | None] = list(execution.outputs) or [None] * len(self.request.outputs)
        steps = []
        for number, (buffer, size) in self.outputs.items():
            if execution.shapes and 0 in execution.shapes[number].dimensions:
                outputs[number] = np.empty(0, np.uint8)
                continue
            outcome, outputs[number] = copy_to(self._target, buffer, size)
            steps.append(expect_ok("GEN-32", f"copyTo of output {number}", outcome))
        return replace(execution, outputs=outputs, steps=(*execution.steps, *steps))

    def close(self) -> None:
        """Release the buffers."""
        if self._handles:
            self._target.release(*self._handles)


def place_in_pool(argument: types_pb2.RequestArgument, pool: int) -> None:
    """Move an argument to a pool that is a buffer: its location has only the pool's index."""
    argument.location.Clear()
    argument.location.pool_index = pool


def move_to_buffer(request: types_pb2.Request, argument: types_pb2.RequestArgument, token: int) -> None:
    """Move an argument of a request to a buffer, in a pool of its own."""
    place_in_pool(argument, len(request.pools))
    request.pools.add().token = token


def with_buffers(base: ExecutionPath) -> ExecutionPath:
    """Return the same path with its arguments in buffers."""

    def execute(target: Target, model: bytes, request: types_pb2.Request, options: RunOptions) -> ExecutionOutcome:
        arguments = _BufferArguments(target, model, request)
        try:
            arguments.move_to_buffers()
            execution = replace(base(target, model, arguments.request, options), first_run=None)
            if execution.outcome.status == ErrorStatus.NONE:
                execution = arguments.read_outputs(execution)
            return with_earlier_steps(arguments.steps, execution)
        finally:
            arguments.close()

    return ExecutionPath(execute, base.check, base.fenced, buffers=True, over_data_socket=base.over_data_socket)
