"""Memory in use when a process ends: shared memory, uploads, reads and device buffers (RESIL-10 to -13)."""

import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np

from nnhal.types import AnyArray, ErrorKind, ErrorStatus
from nnhal.v1 import memory_pb2, types_pb2
from nnhal_tools.conformance.check import CheckFailed, CheckRecorder, ConnectionLost, Skipped
from nnhal_tools.conformance.device.calls import invoke, required_call_error
from nnhal_tools.conformance.device.data_connection import DataConnection, SealedMemory, open_connection
from nnhal_tools.conformance.device.target import INLINE_BYTES, Target
from nnhal_tools.conformance.paths.buffers import AllocatedBuffer, allocate, buffer_role, copy_from, copy_to
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.resilience.models import SIZE, AddChain, random_values, require_alive
from nnhal_tools.conformance.resilience.outage import outage, require_data_socket
from nnhal_tools.conformance.resilience.session import SessionAtWork, Step

SHARED, UPLOAD, READ, BUFFER = "RESIL-10", "RESIL-11", "RESIL-12", "RESIL-13"

FIRST = 1
"""Number of the request on a data connection."""

VALUE_BYTES = 4 * SIZE
GUARD_BYTES = 64
"""Bytes before, between and after the values in shared memory, which neither side writes."""
INPUT, OUTPUT = GUARD_BYTES, 2 * GUARD_BYTES + VALUE_BYTES
SHARED_BYTES = 3 * GUARD_BYTES + 2 * VALUE_BYTES

LARGE_BYTES = 24 * 2**20
"""More bytes than a connection holds on their way."""

UPLOADED_CHUNKS = 4
"""Number of chunks after which an upload is certainly in progress."""


# ---- Shared memory ----------------------------------------------------------------------------------------


class GuardedMemory:
    """Shared memory of the client, with the present input, an output and guards around them."""

    def __init__(self) -> None:
        self.memory = SealedMemory(secrets.token_bytes(SHARED_BYTES))
        self._guards = self._read_guards()
        self.values = random_values()

    def _read_guards(self) -> list[bytes]:
        return [self.memory.read(start, GUARD_BYTES) for start in (0, INPUT + VALUE_BYTES, OUTPUT + VALUE_BYTES)]

    def write(self, values: AnyArray) -> None:
        """Write the input, and overwrite the output."""
        self.values = values
        self.memory.write(values.tobytes(), INPUT)
        self.memory.write(secrets.token_bytes(VALUE_BYTES), OUTPUT)

    def define(self, connection: DataConnection, model: bytes) -> None:
        """Share the memory on a connection, and define the request.

        Raises:
            NotServiceSpecific: an answer is an error.
        """
        outcome, number = connection.share(self.memory)
        if outcome.status:
            raise required_call_error("SHARE", outcome)
        request = types_pb2.Request()
        for arguments, offset in ((request.inputs, INPUT), (request.outputs, OUTPUT)):
            location = arguments.add().location
            location.offset, location.length = offset, VALUE_BYTES
        request.pools.add().pool.shared = number
        outcome = connection.define(FIRST, model, request)
        if outcome.status:
            raise required_call_error("DEFINE", outcome)

    def expect_run(self, connection: DataConnection, chain: AddChain, stimulus: str) -> None:
        """Run the request on a new input.

        Raises:
            ConnectionLost: the connection ended.
            CheckFailed: the output is wrong.
        """
        self.write(random_values())
        outcome = require_alive(connection.run(FIRST)[0])
        if outcome.status:
            raise CheckFailed(SHARED, stimulus, "RESULT, or the end of the connection", outcome)
        chain.expect_values(SHARED, stimulus, self.values, self.memory.read(OUTPUT, VALUE_BYTES))

    def expect_intact(self, recorder: CheckRecorder) -> None:
        """Check that size, input and guards are unchanged."""
        size = os.fstat(self.memory.descriptor).st_size
        recorder.expect(size == SHARED_BYTES, "shared memory after the end", f"{SHARED_BYTES} bytes", size)
        same = self.memory.read(INPUT, VALUE_BYTES) == self.values.tobytes() and self._read_guards() == self._guards
        stimulus = "shared memory outside the output after the end of a process"
        recorder.expect(same, stimulus, "unchanged", "changed")


@check(SHARED, exclusive=True)
def shared_memory(target: Target, recorder: CheckRecorder) -> None:
    """Kill while a request runs in shared memory: all bytes outside the output are unchanged.

    The memory can be shared with the service that is back.
    """
    require_data_socket(target)
    memories: dict[SessionAtWork, GuardedMemory] = {}

    @contextmanager
    def work(session: SessionAtWork) -> Iterator[Step]:
        chain, memory = AddChain.random(), GuardedMemory()
        memories[session] = memory
        model = chain.prepared(session.target)
        with open_connection(session.target) as connection:
            memory.define(connection, model)
            yield lambda: memory.expect_run(connection, chain, "RUN in shared memory")

    try:
        with outage(target, recorder, SHARED, {f"RUN {n}": work for n in (1, 2)}) as service:
            chain = AddChain.random()
            model = chain.prepared(service.fresh)
            for session in service.ended:
                memories[session].expect_intact(recorder)
                with open_connection(service.fresh) as connection:
                    memories[session].define(connection, model)
                    memories[session].expect_run(connection, chain, "RUN in memory that a lost process had shared")
    finally:
        for memory in memories.values():
            memory.memory.close()


# ---- Uploads and reads ------------------------------------------------------------------------------------


@check(UPLOAD, exclusive=True)
def uploading(target: Target, recorder: CheckRecorder) -> None:
    """Kill during uploads: the calls end, and incomplete bytes are not taken for those of their digest."""
    data = secrets.token_bytes(2 * INLINE_BYTES)
    digest = hashlib.sha256(data).digest()

    @contextmanager
    def unfinished(session: SessionAtWork) -> Iterator[Step]:
        target = session.target
        memory = target.require("MemoryService.Create", size=len(data), sha256=digest).memory
        session.is_endless = True

        def chunks() -> Iterator[memory_pb2.UploadRequest]:
            """Yield the first half again and again."""
            sent = 0
            while not session.closed.is_set():
                yield memory_pb2.UploadRequest(session=target.session, memory=memory, data=data[:INLINE_BYTES])
                sent += 1
                if sent >= UPLOADED_CHUNKS:
                    session.at_work.set()

        def step() -> None:
            outcome = require_alive(invoke(target.rpc("MemoryService.Upload"), chunks())[0])
            if not session.closed.is_set():
                raise CheckFailed(UPLOAD, "an upload without an end", "UNAVAILABLE", outcome)

        yield step

    works = {"an upload": unfinished, "uploads": _uploading}
    with outage(target, recorder, UPLOAD, works) as service:
        _, created = service.fresh.create_memory(len(data), digest)
        complete = created is not None and created.complete
        recorder.expect(not complete, "MemoryService.Create for interrupted bytes", "incomplete", "complete")


@contextmanager
def _uploading(session: SessionAtWork) -> Iterator[Step]:
    def step() -> None:
        data = secrets.token_bytes(INLINE_BYTES + 1)
        memory = session.target.memory_with(data)
        _expect_bytes(UPLOAD, "bytes read after an upload", session.target.read_memory(memory), data)
        session.target.release(memory)

    yield step


def _expect_bytes(id_: str, stimulus: str, got: bytes, expected: bytes) -> None:
    if got != expected:
        raise CheckFailed(id_, stimulus, f"the {len(expected)} bytes that were written", f"{len(got)}, or others")


@check(READ, exclusive=True)
def reading(target: Target, recorder: CheckRecorder) -> None:
    """Kill in the middle of a stream of answers: the stream ends with an error, and not as if it were complete."""
    works = {"a read": _reading_slowly, "reads": _uploading}
    with outage(target, recorder, READ, works):
        pass


@contextmanager
def _reading_slowly(session: SessionAtWork) -> Iterator[Step]:
    data = secrets.token_bytes(LARGE_BYTES)
    target, memory = session.target, session.target.memory_with(data)
    session.is_endless = True

    def step() -> None:
        stream = target.start("MemoryService.Read", memory=memory)
        received = next(stream).data
        session.at_work.set()
        with suppress(ConnectionLost):  # the rest is read when the process has ended
            session.await_end()
        try:
            for response in stream:
                received += response.data
        finally:
            _expect_bytes(READ, "the first part of a stream", received, data[: len(received)])
        _expect_bytes(READ, "a stream without an error", received, data)
        session.await_end()

    yield step


# ---- Device buffers ---------------------------------------------------------------------------------------


@check(BUFFER, exclusive=True)
def _buffers(target: Target, recorder: CheckRecorder) -> None:
    allocated: dict[SessionAtWork, AllocatedBuffer] = {}

    @contextmanager
    def work(session: SessionAtWork) -> Iterator[Step]:
        chain, values = AddChain.random(), random_values()
        model = chain.prepared(session.target)
        outcome, buffer = allocate(session.target, [model], inputs=[buffer_role(0, 0)])
        if buffer is None:
            raise Skipped("X3", f"the device allocates no buffer: {require_alive(outcome)}")
        allocated[session] = buffer
        outcome = copy_from(session.target, buffer, types_pb2.Memory(inline=values.tobytes()))
        if outcome.status:
            raise required_call_error("copyFrom", outcome)

        def step() -> None:
            execution = session.target.execute(model, _request_with(chain, buffer))
            chain.expect_correct(BUFFER, "an execution on a buffer", values, execution)
            outcome, data = copy_to(session.target, buffer, VALUE_BYTES)
            if require_alive(outcome).status or data.tobytes() != values.tobytes():
                raise CheckFailed(BUFFER, "copyTo", f"{values[:4]}...", f"{outcome} {data.view(np.float32)[:4]}...")

        yield step

    with outage(target, recorder, BUFFER, {f"a buffer {n}": work for n in (1, 2)}) as service:
        chain = AddChain.random()
        model = chain.prepared(service.fresh)
        for session in service.ended:
            buffer = allocated[session]
            lost_buffer = {"session": session.target.session, "buffer": buffer.handle}
            destination = types_pb2.Memory(inline=bytes(VALUE_BYTES))
            outcome, _ = service.fresh.call("Buffer.CopyTo", **lost_buffer, dst=destination)
            lost = outcome.kind == ErrorKind.SESSION_LOST
            recorder.expect(lost, "copyTo of a buffer whose process has ended", "SESSION_LOST", outcome)
            outcome = service.fresh.execute(model, _request_with(chain, buffer)).outcome
            stimulus = "an execution on the token of a buffer whose process has ended"
            recorder.expect_status(outcome, stimulus, ErrorStatus.INVALID_ARGUMENT)


def _request_with(chain: AddChain, buffer: AllocatedBuffer) -> types_pb2.Request:
    """Return a request whose input is a buffer."""
    request = chain.request(random_values())
    request.inputs[0].location.Clear()
    request.pools[0].Clear()
    request.pools[0].token = buffer.token
    return request
