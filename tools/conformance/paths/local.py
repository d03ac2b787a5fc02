"""The paths SYNC-LOCAL and BURST-LOCAL: over the data socket, with arguments in sealed memory (docs/same-machine.md).

A request is defined once and runs twice. On SYNC-LOCAL outputs lie in their regions. On BURST-LOCAL they are returned:
all but the last in the area for them, the last as a new Memory object; and the memory of the inputs never changes.
"""

from collections.abc import Sequence

import numpy as np

from nnhal import frames
from nnhal.frames import ABSENT, Definition, Frame, Kind, Malformed, Output, Place
from nnhal.types import Bytes, ErrorStatus
from nnhal.v1 import types_pb2
from tools.conformance.check import NotServiceSpecific
from tools.conformance.data_connection import CONSTANT, SEALS, DataConnection, SealedMemory, connected, said
from tools.conformance.paths.burst import bursting
from tools.conformance.paths.path import after, path, run_twice, step
from tools.conformance.paths.staged import STALE
from tools.conformance.target import Answer, Executed, Run, Step, Target

MAX_BYTES = 2**30
"""A ReturnedPool of more bytes stays what it is."""

REQUEST = 1
"""Number of the request; each connection has one."""


class Shared:
    """A copy of a request whose pools are sealed memory that a connection shares.

    Args:
        returned: outputs stay in their ReturnedPool; `area` takes all of them but the last.

    Attributes:
        request: the copy.
        area: number of the memory for returned outputs, offset and length in it; length 0: none.
        steps: how sharing ended.
    """

    def __init__(self, data: DataConnection, check: str, request: types_pb2.Request, *, returned: bool) -> None:
        self.request = types_pb2.Request()
        self.request.CopyFrom(request)
        self.area = (0, 0, 0)
        self.steps: list[Step] = []
        self._data, self._check = data, check
        self._numbers: list[int] = []
        self._written: dict[int, tuple[SealedMemory, int]] = {}
        self._memories: list[SealedMemory] = []
        for number, pool in enumerate(self.request.pools):
            size = pool.returned.size
            if pool.pool.inline and number not in self._pools_of_outputs():
                constant = CONSTANT if returned else SEALS
                pool.pool.shared = self._share(SealedMemory(pool.pool.inline, constant), f"pool {number}")
            elif 0 < size <= MAX_BYTES and returned:
                # what is before the last region: regions are aligned as the area is
                last = max((output.location.offset for output in self.request.outputs), default=0)
                length = min(max(last, 0), size)
                self.area = self._writable(ABSENT, size, "the area"), 0, length
            elif 0 < size <= MAX_BYTES:
                pool.pool.shared = self._writable(number, size, f"pool {number}")

    def _pools_of_outputs(self) -> set[int]:
        return {output.location.pool_index for output in self.request.outputs}

    def _writable(self, pool: int, size: int, what: str) -> int:
        memory = SealedMemory(bytes(size))
        self._written[pool] = memory, size
        return self._share(memory, what)

    def _share(self, memory: SealedMemory, what: str) -> int:
        self._memories.append(memory)
        answer, number = self._data.share(memory)
        self._numbers.append(number)
        self.steps.append(step(self._check, f"SHARE of {what}", answer))
        return number

    def read(self, pool: int, offset: int, length: int) -> Bytes | None:
        """The bytes of a region; None where outputs do not lie in a memory of ours. `pool`: ABSENT for the area."""
        if pool not in self._written:
            return None
        return np.frombuffer(self._written[pool][0].read(offset, length), np.uint8)

    def spoil(self) -> None:
        """Overwrites the outputs, so that what is there afterwards is new."""
        for memory, size in self._written.values():
            memory.write(bytes([STALE]) * size)

    def drop(self, check: str) -> list[Step]:
        """Drops the memories: how that ended."""
        return [step(check, f"DROP of {number}", self._data.do(Frame(Kind.DROP, number))) for number in self._numbers]

    def close(self) -> None:
        """Lets the memories go here."""
        for memory in self._memories:
            memory.close()

    def __enter__(self) -> "Shared":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def definition(handle: bytes, shared: Shared, run: Run) -> Frame:
    """DEFINE."""
    body = Definition(handle, *shared.area, shared.request.SerializeToString()).pack()
    return Frame(Kind.DEFINE, REQUEST, first=_or_absent(run.loop_timeout_ns), body=body)


def run_defined(target: Target, data: DataConnection, shared: Shared, run: Run) -> Executed:
    """RUN."""
    flags = frames.MEASURE if run.measure else 0
    frame = data.ask(Frame(Kind.RUN, REQUEST, flags, _or_absent(run.deadline_ns)))
    answer = said(frame, Kind.RESULT)
    if answer.status:
        return Executed(answer)
    arguments = shared.request.outputs
    outputs = _outputs(frame.body, len(arguments))
    if not frame.flags & frames.SUFFICIENT:
        answer = Answer(ErrorStatus.OUTPUT_INSUFFICIENT_SIZE)
    shapes = [
        types_pb2.OutputShape(dimensions=shape.dimensions, is_sufficient=shape.is_sufficient) for shape, *_ in outputs
    ]
    found = [_found(target, shared, o, argument.location) for o, argument in zip(outputs, arguments, strict=True)]
    return Executed(answer, shapes, (frame.first, frame.second), found)


def _or_absent(time_ns: int | None) -> int:
    return ABSENT if time_ns is None else time_ns


def _outputs(body: bytes, count: int) -> Sequence[Output]:
    try:
        return frames.unpack_outputs(body, count)
    except Malformed as error:
        raise NotServiceSpecific(f"on the data socket: {error}") from None


def _found(target: Target, shared: Shared, output: Output, region: types_pb2.DataLocation) -> Bytes | None:
    """The bytes of an output; those of a region where there is one."""
    match output.place:
        case Place.REGION:
            return shared.read(region.pool_index, region.offset, region.length)
        case Place.AREA:
            return shared.read(ABSENT, output.offset, region.length)
        case Place.MEMORY:
            return target.returned(types_pb2.ReturnedOutput(memory=output.memory))
    raise NotServiceSpecific(f"on the data socket: an output at place {output.place}")


def _execute(
    target: Target, handle: bytes, request: types_pb2.Request, run: Run, check: str, dropped: str, *, returned: bool
) -> Executed:
    """Shares, defines, runs twice, and drops."""
    with connected(target) as data, Shared(data, check, request, returned=returned) as shared:
        if not all(done.holds for done in shared.steps):
            return Executed(Answer(ErrorStatus.GENERAL_FAILURE, "memory was not shared"), steps=shared.steps)
        defined = data.do(definition(handle, shared, run))
        if defined.status:
            return Executed(defined, steps=shared.steps)
        executed = run_twice(lambda: run_defined(target, data, shared, run), shared.spoil)
        return after([*shared.steps, *shared.drop(dropped)], executed)


@path("SYNC-LOCAL", "GEN-04", local=True)
def _synchronous(target: Target, model: bytes, request: types_pb2.Request, run: Run) -> Executed:
    return _execute(target, model, request, run, "GEN-04", "GEN-04", returned=False)


@path("BURST-LOCAL", "GEN-06", local=True)
def _burst(target: Target, model: bytes, request: types_pb2.Request, run: Run) -> Executed:
    with bursting(target, model) as (answer, burst):
        steps = [step("GEN-05", "configureExecutionBurst", answer)]
        if answer.status:
            return Executed(answer, steps=steps)
        return after(steps, _execute(target, burst, request, run, "GEN-06", "GEN-07", returned=True))
