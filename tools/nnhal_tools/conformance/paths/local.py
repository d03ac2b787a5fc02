"""Paths SYNC-LOCAL and BURST-LOCAL: over the data socket, with arguments in sealed memory (docs/same-machine.md).

A request is defined once and runs twice. On SYNC-LOCAL outputs lie in their regions. On BURST-LOCAL outputs are
returned: the last one as a new Memory object, the others in the area. The memory of the inputs is read-only.
"""

from copy import deepcopy

import numpy as np

from nnhal.shm import protocol
from nnhal.shm.protocol import NONE, OutputLocation, OutputRecord, Packet, PacketKind, ProtocolError
from nnhal.types import Bytes, ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import NotServiceSpecific
from nnhal_tools.conformance.device.data_connection import (
    READ_ONLY_SEALS,
    REQUIRED_SEALS,
    DataConnection,
    SealedMemory,
    open_connection,
)
from nnhal_tools.conformance.device.options import RunOptions
from nnhal_tools.conformance.device.results import CallOutcome, ExecutionOutcome, PathStep
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths.burst import run_on_burst
from nnhal_tools.conformance.paths.path import expect_ok, register_path, run_twice, with_earlier_steps
from nnhal_tools.conformance.paths.staged import STALE_BYTE

MAX_BYTES = 2**30
"""A larger ReturnedPool is not replaced by shared memory."""

REQUEST = 1
"""Number of the request. Each connection defines one."""


class SharedRequest:
    """Copy of a request whose pools are sealed memory that a connection shares.

    Args:
        data: the connection.
        check: the id of the SHARE steps.
        request: the request to copy.
        returned: outputs stay in their ReturnedPool. The area has room for all of them except the last.

    Attributes:
        request: the copy.
        area: the number of the memory for returned outputs, and the offset and length in it; length 0 for no area.
        steps: the results of SHARE.
    """

    def __init__(self, data: DataConnection, check: str, request: types_pb2.Request, *, returned: bool) -> None:
        self.request = deepcopy(request)
        self.area = (0, 0, 0)
        self.steps: list[PathStep] = []
        self._data, self._check = data, check
        self._numbers: list[int] = []
        self._writable: dict[int, tuple[SealedMemory, int]] = {}
        self._memories: list[SealedMemory] = []
        output_pools = {output.location.pool_index for output in self.request.outputs}
        for number, pool in enumerate(self.request.pools):
            size = pool.returned.size
            if pool.pool.inline and number not in output_pools:
                seals = READ_ONLY_SEALS if returned else REQUIRED_SEALS
                pool.pool.shared = self._share(SealedMemory(pool.pool.inline, seals), f"pool {number}")
            elif 0 < size <= MAX_BYTES and returned:
                # The area ends where the last region begins: regions are aligned as the area is.
                last = max((output.location.offset for output in self.request.outputs), default=0)
                length = min(max(last, 0), size)
                self.area = self._share_writable(NONE, size, "the area"), 0, length
            elif 0 < size <= MAX_BYTES:
                pool.pool.shared = self._share_writable(number, size, f"pool {number}")

    def _share_writable(self, pool: int, size: int, name: str) -> int:
        memory = SealedMemory(bytes(size))
        self._writable[pool] = memory, size
        return self._share(memory, name)

    def _share(self, memory: SealedMemory, name: str) -> int:
        self._memories.append(memory)
        outcome, number = self._data.share(memory)
        self._numbers.append(number)
        self.steps.append(expect_ok(self._check, f"SHARE of {name}", outcome))
        return number

    def read(self, pool: int, offset: int, length: int) -> Bytes | None:
        """Return the bytes of a region, or None if its pool is not a writable memory. `pool`: NONE for the area."""
        if pool not in self._writable:
            return None
        return np.frombuffer(self._writable[pool][0].read(offset, length), np.uint8)

    def overwrite_outputs(self) -> None:
        """Overwrite the outputs, so that a later run must write them again."""
        for memory, size in self._writable.values():
            memory.write(bytes([STALE_BYTE]) * size)

    def drop_memories(self, check: str) -> list[PathStep]:
        """Drop the memories and return the results."""
        return [
            expect_ok(check, f"DROP of {number}", self._data.call(Packet(PacketKind.DROP, number)))
            for number in self._numbers
        ]

    def __enter__(self) -> "SharedRequest":
        return self

    def __exit__(self, *_: object) -> None:
        for memory in self._memories:
            memory.close()


def run_defined(target: Target, data: DataConnection, shared: SharedRequest, options: RunOptions) -> ExecutionOutcome:
    """Send RUN and return the outcome of the execution."""
    outcome, answer = data.run(REQUEST, measure=options.measure, deadline_ns=options.deadline_ns)
    if outcome.status:
        return ExecutionOutcome(outcome)
    arguments = shared.request.outputs
    try:
        records = protocol.unpack_outputs(answer.body, len(arguments))
    except ProtocolError as error:
        raise NotServiceSpecific(f"on the data socket: {error}") from None
    if not answer.flags & protocol.SUFFICIENT:
        outcome = CallOutcome(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE)
    shapes = [
        types_pb2.OutputShape(dimensions=shape.dimensions, is_sufficient=shape.is_sufficient) for shape, *_ in records
    ]
    outputs = [
        _read_output(target, shared, record, argument.location)
        for record, argument in zip(records, arguments, strict=True)
    ]
    return ExecutionOutcome(outcome, shapes, (answer.first, answer.second), outputs)


def _read_output(
    target: Target, shared: SharedRequest, record: OutputRecord, region: types_pb2.DataLocation
) -> Bytes | None:
    """Return the bytes of an output: from its region, from the area, or from a Memory object."""
    match record.location:
        case OutputLocation.REGION:
            return shared.read(region.pool_index, region.offset, region.length)
        case OutputLocation.AREA:
            return shared.read(NONE, record.offset, region.length)
        case OutputLocation.MEMORY:
            return target.returned_bytes(types_pb2.ReturnedOutput(memory=record.memory))
    raise NotServiceSpecific(f"on the data socket: unknown output location {record.location}")


def _execute(
    target: Target,
    handle: bytes,
    request: types_pb2.Request,
    options: RunOptions,
    check: str,
    drop_check: str,
    *,
    returned: bool,
) -> ExecutionOutcome:
    """Share the memory, define the request, run it twice, and drop the memory."""
    with open_connection(target) as data, SharedRequest(data, check, request, returned=returned) as shared:
        if not all(step.holds for step in shared.steps):
            outcome = CallOutcome(ErrorStatus.GENERAL_FAILURE, "memory was not shared")
            return ExecutionOutcome(outcome, steps=shared.steps)
        defined = data.define(REQUEST, handle, shared.request, shared.area, options.loop_timeout_ns)
        if defined.status:
            return ExecutionOutcome(defined, steps=shared.steps)
        execution = run_twice(lambda: run_defined(target, data, shared, options), shared.overwrite_outputs)
        return with_earlier_steps([*shared.steps, *shared.drop_memories(drop_check)], execution)


@register_path("SYNC-LOCAL", "GEN-04", over_data_socket=True)
def _synchronous(target: Target, model: bytes, request: types_pb2.Request, options: RunOptions) -> ExecutionOutcome:
    return _execute(target, model, request, options, "GEN-04", "GEN-04", returned=False)


@register_path("BURST-LOCAL", "GEN-06", over_data_socket=True)
def _burst(target: Target, model: bytes, request: types_pb2.Request, options: RunOptions) -> ExecutionOutcome:
    def run(burst: bytes) -> ExecutionOutcome:
        return _execute(target, burst, request, options, "GEN-06", "GEN-07", returned=True)

    return run_on_burst(target, model, run)
