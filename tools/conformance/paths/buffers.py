"""The paths of MEMORY_DOMAIN: every argument that can lies in a buffer of the device with a single role."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from nnhal.types import Bytes, ErrorStatus
from nnhal.v1 import buffer_pb2, device_pb2, types_pb2
from tools.conformance.check import Skipped
from tools.conformance.paths.path import Execute, Path, after, step
from tools.conformance.target import Answer, Executed, Run, Step, Target, called


@dataclass(frozen=True)
class DeviceBuffer:
    """A buffer of the device."""

    handle: bytes
    token: int


def allocate(
    target: Target,
    models: Sequence[bytes],
    inputs: Sequence[types_pb2.BufferRole] = (),
    outputs: Sequence[types_pb2.BufferRole] = (),
    dimensions: Sequence[int] = (),
) -> tuple[Answer, DeviceBuffer | None]:
    """IDevice.allocate."""
    request = device_pb2.AllocateRequest(
        session=target.session,
        device=target.name,
        desc=types_pb2.BufferDesc(dimensions=dimensions),
        prepared_models=models,
        input_roles=inputs,
        output_roles=outputs,
    )
    answer, made = called(target.device.Allocate, request)
    return answer, DeviceBuffer(made.buffer, made.token) if made else None


def role(model: int, number: int, probability: float = 1.0) -> types_pb2.BufferRole:
    """A role: a model's input or output."""
    return types_pb2.BufferRole(model_index=model, io_index=number, probability=probability)


def copy_from(target: Target, buffer: DeviceBuffer, memory: types_pb2.Memory, dimensions: Sequence[int] = ()) -> Answer:
    """IBuffer.copyFrom."""
    request = buffer_pb2.CopyFromRequest(
        session=target.session, buffer=buffer.handle, src=memory, dimensions=dimensions
    )
    return called(target.buffers.CopyFrom, request)[0]


def copy_to(target: Target, buffer: DeviceBuffer, size: int) -> tuple[Answer, Bytes]:
    """IBuffer.copyTo into a new memory of `size` bytes: how it ended, and the bytes there."""
    handle = target.filled(bytes(size))
    window = types_pb2.Memory(mapped=types_pb2.MappedMemory(memory=handle))
    request = buffer_pb2.CopyToRequest(session=target.session, buffer=buffer.handle, dst=window)
    try:
        answer, _ = called(target.buffers.CopyTo, request)
        return answer, np.frombuffer(target.read(handle), np.uint8)
    finally:
        target.release(handle)


def is_allocated(answer: Answer, buffer: DeviceBuffer | None) -> bool:
    """OK with a buffer and a token above 0, or GENERAL_FAILURE (X3)."""
    if buffer is None:
        return answer.status == ErrorStatus.GENERAL_FAILURE
    return bool(buffer.handle) and buffer.token > 0


class _Arguments:
    """The arguments of a request, moved into buffers one by one."""

    def __init__(self, target: Target, model: bytes, request: types_pb2.Request) -> None:
        self.request = types_pb2.Request()
        self.request.CopyFrom(request)
        self.steps: list[Step] = []
        self.outputs: dict[int, tuple[DeviceBuffer, int]] = {}
        self._target, self._model = target, model
        self._handles: list[bytes] = []

    def move(self) -> None:
        """Allocates a buffer for each argument with a value; those of inputs are filled.

        Raises:
            Skipped: X3, there is none at all.
        """
        for number, argument in enumerate(self.request.inputs):
            if not argument.has_no_value and (buffer := self._allocate("GEN-28", number, inputs=[role(0, number)])):
                answer = copy_from(self._target, buffer, self._window(argument.location))
                self.steps.append(step("GEN-30", f"copyFrom of input {number}", answer))
                self._place(argument, buffer)
        for number, argument in enumerate(self.request.outputs):
            if buffer := self._allocate("GEN-29", number, outputs=[role(0, number)]):
                self.outputs[number] = buffer, argument.location.length
                self._place(argument, buffer)
        if not self._handles and all(one.holds for one in self.steps):
            raise Skipped("X3", "the device has no buffer for any argument")

    def _allocate(self, check: str, number: int, **roles: Sequence[types_pb2.BufferRole]) -> DeviceBuffer | None:
        answer, buffer = allocate(self._target, [self._model], **roles)  # type: ignore[arg-type]
        holds = is_allocated(answer, buffer)
        what = f"allocate for {'input' if 'inputs' in roles else 'output'} {number}"
        self.steps.append(Step(check, holds, what, "a buffer and a token, or GENERAL_FAILURE", f"{answer}, {buffer}"))
        if buffer is not None:
            self._handles.append(buffer.handle)
        return buffer if holds else None

    def _window(self, location: types_pb2.DataLocation) -> types_pb2.Memory:
        """The bytes of an input alone."""
        pool = self.request.pools[location.pool_index].pool
        if pool.WhichOneof("memory") == "inline":
            return types_pb2.Memory(inline=pool.inline[location.offset : location.offset + location.length])
        window = types_pb2.MappedMemory(
            memory=pool.mapped.memory, offset=pool.mapped.offset + location.offset, length=location.length
        )
        return types_pb2.Memory(mapped=window)

    def _place(self, argument: types_pb2.RequestArgument, buffer: DeviceBuffer) -> None:
        place(argument, len(self.request.pools))
        self.request.pools.add().token = buffer.token

    def read(self, executed: Executed) -> Executed:
        """The execution with the outputs that lie in buffers; a zero-sized one is not copied."""
        outputs: list[Bytes | None] = list(executed.outputs) or [None] * len(self.request.outputs)
        steps = []
        for number, (buffer, size) in self.outputs.items():
            if executed.shapes and 0 in executed.shapes[number].dimensions:
                outputs[number] = np.empty(0, np.uint8)
                continue
            answer, outputs[number] = copy_to(self._target, buffer, size)
            steps.append(step("GEN-32", f"copyTo of output {number}", answer))
        return replace(executed, outputs=outputs, steps=(*executed.steps, *steps))

    def close(self) -> None:
        """Drops the buffers."""
        if self._handles:
            self._target.release(*self._handles)


def place(argument: types_pb2.RequestArgument, pool: int) -> None:
    """Lets an argument lie in a buffer: it has a pool's number and nothing else."""
    argument.location.Clear()
    argument.location.pool_index = pool


def on_buffers(base: Path) -> Path:
    """The same path with its arguments in buffers."""

    def execute(target: Target, model: bytes, request: types_pb2.Request, run: Run) -> Executed:
        arguments = _Arguments(target, model, request)
        try:
            arguments.move()
            executed = replace(base(target, model, arguments.request, run), before=None)
            if executed.answer.status == ErrorStatus.NONE:
                executed = arguments.read(executed)
            return after(arguments.steps, executed)
        finally:
            arguments.close()

    moved: Execute = execute
    return Path(moved, base.check, base.fenced, buffers=True, local=base.local)
