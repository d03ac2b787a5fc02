"""Invalid use of the data socket, packet by packet (NNHAL-34 to -40). Skipped if the service is on another machine.

The paths SYNC-LOCAL and BURST-LOCAL cover valid use of the data socket.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass

from nnhal.shm import protocol
from nnhal.shm.protocol import OutputLocation, OutputRecord, Packet, PacketKind
from nnhal.types import ErrorKind, ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.check import CheckRecorder
from nnhal_tools.conformance.device.data_connection import (
    READ_ONLY_SEALS,
    REQUIRED_SEALS,
    SEAL_GROW,
    SEAL_SHRINK,
    DataConnection,
    SealedMemory,
    open_connection,
)
from nnhal_tools.conformance.device.results import CallOutcome
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.paths.burst import open_burst
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.suites.nnhal.pools import request_without_size
from nnhal_tools.conformance.suites.nnhal.refusals import INVALID_REQUEST_EDITS
from nnhal_tools.conformance.vectors.requests import build_request
from nnhal_tools.conformance.vectors.samples import builtin_case, builtin_request, prepared_model

ADD, SPLIT, ENDLESS = "add_float", "split_int32", "while_without_end"
INVALID = ErrorStatus.INVALID_ARGUMENT
UNKNOWN_SESSION = bytes(16)

SHORT_NS, LONG_NS = 1_000_000, 15_000_000_000
"""Loop timeouts."""
RETRY_S = 5.0
"""Time limit of retries, much less than LONG_NS."""
RETRY_INTERVAL_S = 0.02

FIRST, SECOND = 1, 2
"""Request numbers."""


@dataclass(frozen=True)
class _SharedVector:
    """Built-in vector on a connection: its model, and shared memory for inputs and outputs."""

    data: DataConnection
    name: str
    model: bytes
    memory: SealedMemory
    number: int
    request: types_pb2.Request

    def define(self, number: int, request: types_pb2.Request, area: tuple[int, int, int] = (0, 0, 0)) -> CallOutcome:
        """Define a request on the model; see DataConnection."""
        return self.data.define(number, self.model, request, area)

    def expect_run(self, recorder: CheckRecorder, number: int, stimulus: str) -> None:
        """Expect that a defined request runs, and that its outputs equal the vector's."""
        for output in self.request.outputs:
            self.memory.write(bytes(output.location.length), output.location.offset)
        recorder.expect_status(self.data.run(number)[0], stimulus)
        regions = [self.memory.read(o.location.offset, o.location.length) for o in self.request.outputs]
        correct = regions == [output.array.tobytes() for output in builtin_case(self.name).outputs]
        recorder.expect(correct, stimulus, "the vector's outputs", "other outputs")


@contextmanager
def _share_vector(target: Target, recorder: CheckRecorder, name: str = ADD) -> Iterator[_SharedVector]:
    """Yield a connection that shares a vector."""
    case = builtin_case(name)
    request, data = build_request(case.inputs, [output.array.nbytes for output in case.outputs])
    inputs = len(data)
    for output in request.outputs:
        output.location.pool_index = 0
        output.location.offset += inputs
    memory = SealedMemory(data + bytes(request.pools[1].returned.size))
    del request.pools[1]
    with prepared_model(target, name) as model, open_connection(target) as connection:
        answer, number = connection.share(memory)
        recorder.expect_status(answer, "SHARE of a sealed memfd")
        request.pools[0].pool.shared = number
        yield _SharedVector(connection, name, model, memory, number, request)
    memory.close()


def _expect_ended(recorder: CheckRecorder, connection: DataConnection, stimulus: str) -> None:
    answer = connection.receive()
    recorder.expect(answer is None, stimulus, "the end of the connection", answer)


# ---- Authentication -------------------------------------------------------------------------------------


@check("NNHAL-34")
def authentication(target: Target, recorder: CheckRecorder) -> None:
    """Check that HELLO requires a live session and its secret, and that other connections are unaffected."""
    secret = target.opened.data_secret
    with _share_vector(target, recorder) as vector, target.new_session() as other:
        for flaw, session, key in (
            ("a secret of zeros", target.session, bytes(16)),
            ("a secret with another last byte", target.session, secret[:-1] + bytes([secret[-1] ^ 1])),
            ("the secret of another session", target.session, other.opened.data_secret),
        ):
            with DataConnection(target) as connection:
                answer = connection.say_hello(session, key)
                recorder.expect(answer is None, f"HELLO with {flaw}", "the end of the connection", answer)
        with DataConnection(target) as connection:
            answer = connection.say_hello(UNKNOWN_SESSION, secret)
            lost = answer is None or answer.kind == ErrorKind.SESSION_LOST
            recorder.expect(lost, "HELLO of an unknown session", "SESSION_LOST", answer)
        with DataConnection(target) as connection:
            connection.send(Packet(PacketKind.SHARE, vector.number + 1).pack(), vector.memory.descriptor)
            _expect_ended(recorder, connection, "SHARE before HELLO")
        with open_connection(other) as connection:
            answer = connection.define(FIRST, vector.model, vector.request)
            recorder.expect_status(answer, "DEFINE with memory and model of another session", INVALID)
        vector.define(FIRST, vector.request)
        vector.expect_run(recorder, FIRST, "RUN while other connections are rejected")


# ---- Memory ---------------------------------------------------------------------------------------------


@check("NNHAL-35")
def shareable_memory(target: Target, recorder: CheckRecorder) -> None:
    """Check that SHARE rejects memory that is not a sealed, non-empty memfd, and repeated numbers."""
    with _share_vector(target, recorder) as vector:
        spare = vector.number + 2**20  # The client chooses the numbers.
        for flaw, data, seals in (
            ("without seals", b"1234", 0),
            ("that can shrink", b"1234", SEAL_GROW),
            ("that can grow", b"1234", SEAL_SHRINK),
            ("of no bytes", b"", REQUIRED_SEALS),
        ):
            memory = SealedMemory(data, seals)
            answer = vector.data.call(Packet(PacketKind.SHARE, spare), memory.descriptor)
            memory.close()
            recorder.expect_status(answer, f"SHARE of a memfd {flaw}", INVALID)
        with tempfile.TemporaryFile() as file:
            answer = vector.data.call(Packet(PacketKind.SHARE, spare), file.fileno())
            recorder.expect_status(answer, "SHARE of a file as memory", INVALID)
        descriptor = vector.memory.descriptor
        for count in (0, 2):
            answer = vector.data.call(Packet(PacketKind.SHARE, spare), *[descriptor] * count)
            recorder.expect_status(answer, f"SHARE with {count} descriptors", INVALID)
        answer = vector.data.call(Packet(PacketKind.SHARE, vector.number), descriptor)
        recorder.expect_status(answer, "SHARE with a number in use", INVALID)
        vector.define(FIRST, vector.request)
        vector.expect_run(recorder, FIRST, "RUN after rejected memories")


@check("NNHAL-35", "read-only memory")
def read_only_memory(target: Target, recorder: CheckRecorder) -> None:
    """Check that inputs may lie in memory that is sealed against writes, and outputs may not."""
    with _share_vector(target, recorder) as vector:
        memory = SealedMemory(vector.memory.read(0, os.fstat(vector.memory.descriptor).st_size), READ_ONLY_SEALS)
        answer, number = vector.data.share(memory)
        memory.close()
        recorder.expect_status(answer, "SHARE of read-only memory")
        request = deepcopy(vector.request)
        request.pools.add().pool.shared = number
        for argument in request.inputs:
            argument.location.pool_index = 1
        answer = vector.define(FIRST, request)
        recorder.expect_status(answer, "inputs in read-only memory")
        vector.expect_run(recorder, FIRST, "RUN with inputs in read-only memory")
        request.outputs[0].location.pool_index = 1
        recorder.expect_status(vector.define(SECOND, request), "an output in read-only memory", INVALID)
        area = number, 0, 1
        recorder.expect_status(vector.define(SECOND, vector.request, area), "an area in read-only memory", INVALID)


@check("NNHAL-38")
def _memory_lifetime(target: Target, recorder: CheckRecorder) -> None:
    with _share_vector(target, recorder) as vector:
        vector.define(FIRST, vector.request)
        answer = vector.data.call(Packet(PacketKind.DROP, vector.number))
        recorder.expect_status(answer, "DROP of memory in use")
        vector.expect_run(recorder, FIRST, "RUN of a request whose memory was dropped")
        recorder.expect_status(vector.define(SECOND, vector.request), "DEFINE with memory that was dropped", INVALID)
        answer = vector.data.call(Packet(PacketKind.DROP, vector.number))
        recorder.expect_status(answer, "DROP of unknown memory")
    with prepared_model(target, ADD) as model:
        with _share_vector(target, recorder) as vector:
            answer = target.execute(model, vector.request).outcome
            recorder.expect_status(answer, "executeSynchronously with shared memory")
        answer = _retry_until(lambda: target.execute(model, vector.request).outcome, INVALID)
        recorder.expect_status(answer, "executeSynchronously with memory whose connection has ended", INVALID)


# ---- Packets and requests -------------------------------------------------------------------------------


@check("NNHAL-36")
def _malformed_packets(target: Target, recorder: CheckRecorder) -> None:
    good = Packet(PacketKind.FORGET, FIRST).pack()
    with _share_vector(target, recorder) as vector:
        vector.define(FIRST, vector.request)
        for flaw, packet in (
            ("version 2", (protocol.VERSION + 1).to_bytes(2, "little") + good[2:]),
            ("half a header", good[: len(good) // 2]),
            ("more than 64 KiB", good + bytes(protocol.MAX_BYTES)),
            ("kind 200", Packet(200).pack()),
            ("a RESULT", Packet(PacketKind.RESULT).pack()),
            ("a DEFINE without a body", Packet(PacketKind.DEFINE, FIRST).pack()),
            ("HELLO again", Packet(PacketKind.HELLO, body=protocol.pack_hello(target.session, bytes(16))).pack()),
        ):
            with open_connection(target) as connection:
                connection.send(packet)
                _expect_ended(recorder, connection, flaw)
        vector.expect_run(recorder, FIRST, "RUN while other connections are closed")


@check("NNHAL-37")
def requests_are_checked(target: Target, recorder: CheckRecorder) -> None:
    """Check that DEFINE rejects requests with the status, rule and reason of executeSynchronously."""
    with _share_vector(target, recorder) as vector:
        for location, change in INVALID_REQUEST_EDITS.items():
            invalid = deepcopy(vector.request)
            change(invalid)
            defined, called = vector.define(FIRST, invalid), target.execute(vector.model, invalid).outcome
            same = (defined.status, defined.rule, defined.reason) == (called.status, called.rule, called.reason)
            got = f"{defined}, rule {defined.rule!r}"
            recorder.expect(same, f"DEFINE, invalid {location}", f"{called}, rule {called.rule!r}", got)
        size = os.fstat(vector.memory.descriptor).st_size
        for area in ((vector.number, 0, size + 1), (vector.number, -1, 1), (vector.number, 1, -1), (2**31, 0, 1)):
            stimulus = f"DEFINE with an area of {area[2]} bytes from {area[1]} of {size}"
            recorder.expect_status(vector.define(FIRST, vector.request, area), stimulus, INVALID)
        recorder.expect_status(vector.data.run(FIRST)[0], "RUN of a rejected request", INVALID)
        vector.define(FIRST, vector.request)
        recorder.expect_status(vector.define(FIRST, invalid), "DEFINE again, invalid", INVALID)
        vector.expect_run(recorder, FIRST, "RUN of a request after an invalid replacement")
        answer = vector.data.call(Packet(PacketKind.FORGET, FIRST))
        recorder.expect_status(answer, "FORGET")
        recorder.expect_status(vector.data.run(FIRST)[0], "RUN of a forgotten request", INVALID)


# ---- Executions -----------------------------------------------------------------------------------------


@check("NNHAL-39")
def locations_of_returned_outputs(target: Target, recorder: CheckRecorder) -> None:
    """Check areas with room for all outputs, for all but one byte, and for none."""
    expected = [output.array.tobytes() for output in builtin_case(SPLIT).outputs]
    request, size = request_without_size(SPLIT), builtin_request(SPLIT).pools[1].returned.size
    with _share_vector(target, recorder, SPLIT) as vector:
        memory = SealedMemory(bytes(size))
        _, number = vector.data.share(memory)
        last = size - 64 + len(expected[-1])  # regions are padded to 64 bytes
        for length, in_area in ((last, len(expected)), (last - 1, len(expected) - 1), (1, 0), (0, 0)):
            stimulus = f"{len(expected)} returned outputs, an area of {length} bytes"
            answer = vector.define(FIRST, request, (number, 0, length))
            recorder.expect_status(answer, f"DEFINE of {stimulus}")
            outcome, packet = vector.data.run(FIRST)
            recorder.expect_status(outcome, stimulus)
            outputs = protocol.unpack_outputs(packet.body, len(expected))
            locations = [output.location for output in outputs]
            expected_locations = [OutputLocation.AREA] * in_area + [OutputLocation.MEMORY] * (len(expected) - in_area)
            recorder.expect(
                locations == expected_locations,
                f"{stimulus}: their locations",
                str(list(map(int, expected_locations))),
                locations,
            )
            contents = [_read(target, memory, o, len(e)) for o, e in zip(outputs, expected, strict=True)]
            recorder.expect(contents == expected, stimulus, "the vector's outputs", "other outputs")
        memory.close()


def _read(target: Target, area: SealedMemory, output: OutputRecord, length: int) -> bytes:
    if output.location == OutputLocation.AREA:
        return area.read(output.offset, length)
    data = target.read_memory(output.memory)
    target.release(output.memory)
    return data


@check("NNHAL-40")
def disconnected_clients(target: Target, recorder: CheckRecorder) -> None:
    """Check that the execution of a disconnected client is cancelled.

    The burst is busy until the execution ends. It must be free long before the loop timeout of 15 s.
    """
    with prepared_model(target, ENDLESS) as model, open_burst(target, model) as (answer, burst):
        recorder.expect_status(answer, "configureExecutionBurst")
        with open_connection(target) as connection:
            defined = connection.define(FIRST, burst, builtin_request(ENDLESS), loop_timeout_ns=LONG_NS)
            recorder.expect_status(defined, "DEFINE of an endless loop")
            connection.send(Packet(PacketKind.RUN, FIRST).pack())
            answer = _retry_until(lambda: _run_with_short_timeout(target, burst), ErrorStatus.GENERAL_FAILURE)
            recorder.expect_status(answer, "RUN of a burst that executes", ErrorStatus.GENERAL_FAILURE)
        answer = _retry_until(lambda: _run_with_short_timeout(target, burst), ErrorStatus.MISSED_DEADLINE_TRANSIENT)
        stimulus = "RUN of a burst whose client disconnected during an execution"
        recorder.expect(answer.is_missed_deadline, stimulus, "a loop timeout", answer)


def _run_with_short_timeout(target: Target, burst: bytes) -> CallOutcome:
    with open_connection(target) as connection:
        defined = connection.define(FIRST, burst, builtin_request(ENDLESS), loop_timeout_ns=SHORT_NS)
        return defined if defined.status else connection.run(FIRST)[0]


def _retry_until(attempt: Callable[[], CallOutcome], status: ErrorStatus) -> CallOutcome:
    """Retry until an attempt ends with a status, and return the last outcome, at the latest after RETRY_S."""
    end = time.monotonic() + RETRY_S
    while (answer := attempt()).status != status and time.monotonic() < end:
        time.sleep(RETRY_INTERVAL_S)
    return answer
