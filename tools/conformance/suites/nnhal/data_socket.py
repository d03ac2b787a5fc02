"""The data socket, frame by frame (NNHAL-34 to -40). Skipped where the service is on another machine.

What any client of it relies on is in the paths SYNC-LOCAL and BURST-LOCAL; here is what it is refused.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nnhal import frames
from nnhal.frames import Definition, Frame, Kind, Output, Place
from nnhal.types import ErrorKind, ErrorStatus
from nnhal.v1 import types_pb2
from tools.conformance.check import Judge
from tools.conformance.data_connection import CONSTANT, SEALS, DataConnection, SealedMemory, connected, said
from tools.conformance.paths.burst import bursting
from tools.conformance.registry import check
from tools.conformance.request import build
from tools.conformance.samples import named, prepared, request_of
from tools.conformance.suites.nnhal.refusals import BAD_REQUESTS
from tools.conformance.target import Answer, Target

ADD, SPLIT, ENDLESS = "add_float", "split_int32", "while_without_end"
INVALID = ErrorStatus.INVALID_ARGUMENT
NOBODYS = bytes(16)

SHORT_NS, LONG_NS = 1_000_000, 15_000_000_000
"""Of loops."""
SOON_S = 5.0
"""Much less than LONG_NS."""
BETWEEN_S = 0.02

FIRST, SECOND = 1, 2
"""Numbers of requests."""


@dataclass(frozen=True)
class _Vector:
    """A built-in vector on a connection: inputs and outputs in one shared memory, and its model."""

    data: DataConnection
    name: str
    model: bytes
    memory: SealedMemory
    number: int
    request: types_pb2.Request

    def define(self, number: int, request: types_pb2.Request, area: tuple[int, int, int] = (0, 0, 0)) -> Answer:
        """DEFINE; `area`: number of a memory, offset and length."""
        body = Definition(self.model, *area, request.SerializeToString()).pack()
        return self.data.do(Frame(Kind.DEFINE, number, body=body))

    def expect_right(self, judge: Judge, id_: str, number: int, what: str) -> None:
        """A defined request runs, and its outputs are the vector's."""
        for output in self.request.outputs:
            self.memory.write(bytes(output.location.length), output.location.offset)
        answer = said(self.data.ask(Frame(Kind.RUN, number)), Kind.RESULT)
        judge.expect(id_, answer.status == ErrorStatus.NONE, what, "NONE", answer)
        regions = [self.memory.read(o.location.offset, o.location.length) for o in self.request.outputs]
        right = regions == [output.array.tobytes() for output in named(self.name).outputs]
        judge.expect(id_, right, what, "the vector's outputs", "others")


@contextmanager
def _sharing(target: Target, judge: Judge, id_: str, name: str = ADD) -> Iterator[_Vector]:
    """A connection that shares a vector."""
    case = named(name)
    request, data = build(case.inputs, [output.array.nbytes for output in case.outputs])
    inputs = len(data)
    for output in request.outputs:
        output.location.pool_index = 0
        output.location.offset += inputs
    memory = SealedMemory(data + bytes(request.pools[1].returned.size))
    del request.pools[1]
    with prepared(target, name) as model, connected(target) as connection:
        answer, number = connection.share(memory)
        judge.expect(id_, answer.status == ErrorStatus.NONE, "SHARE of a sealed memfd", "NONE", answer)
        request.pools[0].pool.shared = number
        yield _Vector(connection, name, model, memory, number, request)
    memory.close()


def _expect_ended(judge: Judge, id_: str, connection: DataConnection, what: str) -> None:
    answer = connection.receive()
    judge.expect(id_, answer is None, what, "the end of the connection", answer)


def _expect_refused(judge: Judge, id_: str, answer: Answer, what: str) -> None:
    judge.expect(id_, answer.status == INVALID, what, "INVALID_ARGUMENT", answer)


# ---- Who is let in --------------------------------------------------------------------------------------


@check("NNHAL-34")
def who_is_let_in(target: Target, judge: Judge) -> None:
    """Nobody else; and who is in does not notice those who are not."""
    secret = target.opened.data_secret
    with _sharing(target, judge, "NNHAL-34") as vector, target.another() as other:
        for what, session, key in (
            ("an empty secret", target.session, NOBODYS),
            ("a secret with another last byte", target.session, secret[:-1] + bytes([secret[-1] ^ 1])),
            ("the secret of another session", target.session, other.opened.data_secret),
        ):
            with DataConnection(target) as connection:
                answer = connection.greet(session, key)
                judge.expect("NNHAL-34", answer is None, f"HELLO with {what}", "the end of the connection", answer)
        with DataConnection(target) as connection:
            answer = connection.greet(NOBODYS, secret)
            lost = answer is None or answer.kind == ErrorKind.SESSION_LOST
            judge.expect("NNHAL-34", lost, "HELLO of a session that never was", "SESSION_LOST", answer)
        with DataConnection(target) as connection:
            connection.send(Frame(Kind.SHARE, vector.number + 1).pack(), vector.memory.descriptor)
            _expect_ended(judge, "NNHAL-34", connection, "SHARE before HELLO")
        with connected(other) as connection:
            body = Definition(vector.model, 0, 0, 0, vector.request.SerializeToString()).pack()
            answer = connection.do(Frame(Kind.DEFINE, FIRST, body=body))
            _expect_refused(judge, "NNHAL-34", answer, "DEFINE with memory and model of another session")
        vector.define(FIRST, vector.request)
        vector.expect_right(judge, "NNHAL-34", FIRST, "RUN beside those who were not let in")


# ---- Memory ---------------------------------------------------------------------------------------------


@check("NNHAL-35")
def what_can_be_shared(target: Target, judge: Judge) -> None:
    """Memory that can be cut off would end the service when it is read."""
    with _sharing(target, judge, "NNHAL-35") as vector:
        spare = vector.number + 2**20  # numbers are the client's to choose
        for what, data, seals in (
            ("without seals", b"1234", 0),
            ("that can shrink", b"1234", fcntl.F_SEAL_GROW),
            ("that can grow", b"1234", fcntl.F_SEAL_SHRINK),
            ("of no bytes", b"", SEALS),
        ):
            memory = SealedMemory(data, seals)
            answer = vector.data.do(Frame(Kind.SHARE, spare), memory.descriptor)
            memory.close()
            _expect_refused(judge, "NNHAL-35", answer, f"SHARE of a memfd {what}")
        with tempfile.TemporaryFile() as file:
            answer = vector.data.do(Frame(Kind.SHARE, spare), file.fileno())
            _expect_refused(judge, "NNHAL-35", answer, "SHARE of a file as memory")
        descriptor = vector.memory.descriptor
        for count in (0, 2):
            answer = vector.data.do(Frame(Kind.SHARE, spare), *[descriptor] * count)
            _expect_refused(judge, "NNHAL-35", answer, f"SHARE with {count} descriptors")
        answer = vector.data.do(Frame(Kind.SHARE, vector.number), descriptor)
        _expect_refused(judge, "NNHAL-35", answer, "SHARE under a number that is taken")
        vector.define(FIRST, vector.request)
        vector.expect_right(judge, "NNHAL-35", FIRST, "RUN after memories that were refused")


@check("NNHAL-35", "memory that cannot change")
def constant_memory(target: Target, judge: Judge) -> None:
    """Inputs may lie in memory that is sealed against writing, outputs may not."""
    with _sharing(target, judge, "NNHAL-35") as vector:
        memory = SealedMemory(vector.memory.read(0, os.fstat(vector.memory.descriptor).st_size), CONSTANT)
        answer, number = vector.data.share(memory)
        memory.close()
        judge.expect("NNHAL-35", answer.status == ErrorStatus.NONE, "SHARE of constant memory", "NONE", answer)
        request = types_pb2.Request()
        request.CopyFrom(vector.request)
        request.pools.add().pool.shared = number
        for argument in request.inputs:
            argument.location.pool_index = 1
        answer = vector.define(FIRST, request)
        judge.expect("NNHAL-35", answer.status == ErrorStatus.NONE, "inputs in constant memory", "NONE", answer)
        vector.expect_right(judge, "NNHAL-35", FIRST, "RUN with inputs in constant memory")
        request.outputs[0].location.pool_index = 1
        _expect_refused(judge, "NNHAL-35", vector.define(SECOND, request), "an output in constant memory")
        area = number, 0, 1
        _expect_refused(judge, "NNHAL-35", vector.define(SECOND, vector.request, area), "an area in constant memory")


@check("NNHAL-38")
def how_long_memory_lives(target: Target, judge: Judge) -> None:
    """As long as a request that uses it, and no longer than its connection."""
    with _sharing(target, judge, "NNHAL-38") as vector:
        vector.define(FIRST, vector.request)
        answer = vector.data.do(Frame(Kind.DROP, vector.number))
        judge.expect("NNHAL-38", answer.status == ErrorStatus.NONE, "DROP of memory in use", "NONE", answer)
        vector.expect_right(judge, "NNHAL-38", FIRST, "RUN of a request whose memory was dropped")
        _expect_refused(judge, "NNHAL-38", vector.define(SECOND, vector.request), "DEFINE with memory that was dropped")
        answer = vector.data.do(Frame(Kind.DROP, vector.number))
        judge.expect("NNHAL-38", answer.status == ErrorStatus.NONE, "DROP of memory that is not there", "NONE", answer)
    with prepared(target, ADD) as model:
        with _sharing(target, judge, "NNHAL-38") as vector:
            answer = target.execute(model, vector.request).answer
            used = answer.status == ErrorStatus.NONE
            judge.expect("NNHAL-38", used, "executeSynchronously with shared memory", "NONE", answer)
        answer = _until(lambda: target.execute(model, vector.request).answer, INVALID)
        _expect_refused(judge, "NNHAL-38", answer, "executeSynchronously with memory whose connection has ended")


# ---- Frames and requests --------------------------------------------------------------------------------


@check("NNHAL-36")
def what_is_no_frame(target: Target, judge: Judge) -> None:
    """Of another version, too short, too long, of no kind; and an answer is no request."""
    good = Frame(Kind.FORGET, FIRST).pack()
    with _sharing(target, judge, "NNHAL-36") as vector:
        vector.define(FIRST, vector.request)
        for what, packet in (
            ("version 2", (frames.VERSION + 1).to_bytes(2, "little") + good[2:]),
            ("half a header", good[: len(good) // 2]),
            ("more than 64 KiB", good + bytes(frames.MAX_BYTES)),
            ("kind 200", Frame(200).pack()),
            ("a RESULT", Frame(Kind.RESULT).pack()),
            ("a DEFINE without a body", Frame(Kind.DEFINE, FIRST).pack()),
            ("HELLO again", Frame(Kind.HELLO, body=frames.greeting(target.session, NOBODYS)).pack()),
        ):
            with connected(target) as connection:
                connection.send(packet)
                _expect_ended(judge, "NNHAL-36", connection, what)
        vector.expect_right(judge, "NNHAL-36", FIRST, "RUN beside connections that were ended")


@check("NNHAL-37")
def requests_are_checked(target: Target, judge: Judge) -> None:
    """A refusal has status, rule and reason of executeSynchronously's."""
    with _sharing(target, judge, "NNHAL-37") as vector:
        for place, change in BAD_REQUESTS.items():
            bad = types_pb2.Request()
            bad.CopyFrom(vector.request)
            change(bad)
            defined, called = vector.define(FIRST, bad), target.execute(vector.model, bad).answer
            same = (defined.status, defined.rule, defined.reason) == (called.status, called.rule, called.reason)
            got = f"{defined}, rule {defined.rule!r}"
            judge.expect("NNHAL-37", same, f"DEFINE, {place} wrong", f"{called}, rule {called.rule!r}", got)
        size = os.fstat(vector.memory.descriptor).st_size
        for area in ((vector.number, 0, size + 1), (vector.number, -1, 1), (vector.number, 1, -1), (2**31, 0, 1)):
            what = f"DEFINE with an area of {area[2]} bytes from {area[1]} of {size}"
            _expect_refused(judge, "NNHAL-37", vector.define(FIRST, vector.request, area), what)
        answer = said(vector.data.ask(Frame(Kind.RUN, FIRST)), Kind.RESULT)
        _expect_refused(judge, "NNHAL-37", answer, "RUN of a request that was refused")
        vector.define(FIRST, vector.request)
        _expect_refused(judge, "NNHAL-37", vector.define(FIRST, bad), "DEFINE again, wrongly")
        vector.expect_right(judge, "NNHAL-37", FIRST, "RUN of a request that was to be replaced by a wrong one")
        answer = vector.data.do(Frame(Kind.FORGET, FIRST))
        judge.expect("NNHAL-37", answer.status == ErrorStatus.NONE, "FORGET", "NONE", answer)
        answer = said(vector.data.ask(Frame(Kind.RUN, FIRST)), Kind.RESULT)
        _expect_refused(judge, "NNHAL-37", answer, "RUN of a request that was forgotten")


# ---- Executions -----------------------------------------------------------------------------------------


@check("NNHAL-39")
def where_returned_outputs_are(target: Target, judge: Judge) -> None:
    """In the area as long as it has room: for all, for all but a byte, for none."""
    expected = [output.array.tobytes() for output in named(SPLIT).outputs]
    request = request_of(SPLIT)
    whole = request.pools[1].returned.size
    request.pools[1].returned.ClearField("size")
    for output in request.outputs:
        output.location.Clear()
        output.location.pool_index = 1
    with _sharing(target, judge, "NNHAL-39", SPLIT) as vector:
        memory = SealedMemory(bytes(whole))
        _, number = vector.data.share(memory)
        last = whole - 64 + len(expected[-1])  # regions are padded to 64 bytes
        for length, in_area in ((last, len(expected)), (last - 1, len(expected) - 1), (1, 0), (0, 0)):
            what = f"{len(expected)} returned outputs, an area of {length} bytes"
            answer = vector.define(FIRST, request, (number, 0, length))
            judge.expect("NNHAL-39", answer.status == ErrorStatus.NONE, f"DEFINE of {what}", "NONE", answer)
            frame = vector.data.ask(Frame(Kind.RUN, FIRST))
            judge.expect("NNHAL-39", frame.kind == Kind.RESULT, what, "a RESULT", frame)
            outputs = frames.unpack_outputs(frame.body, len(expected))
            places = [output.place for output in outputs]
            due = [Place.AREA] * in_area + [Place.MEMORY] * (len(expected) - in_area)
            judge.expect("NNHAL-39", places == due, f"{what}: their places", str(list(map(int, due))), places)
            got = [_read(target, memory, o, len(e)) for o, e in zip(outputs, expected, strict=True)]
            judge.expect("NNHAL-39", got == expected, what, "the vector's outputs", "others")
        memory.close()


def _read(target: Target, area: SealedMemory, output: Output, length: int) -> bytes:
    if output.place == Place.AREA:
        return area.read(output.offset, length)
    data = target.read(output.memory)
    target.release(output.memory)
    return data


@check("NNHAL-40")
def clients_that_go(target: Target, judge: Judge) -> None:
    """A burst is busy while it executes: it is free again long before an endless loop of 15 s ends."""
    with prepared(target, ENDLESS) as model, bursting(target, model) as (answer, burst):
        judge.expect("NNHAL-40", answer.status == ErrorStatus.NONE, "configureExecutionBurst", "NONE", answer)
        body = Definition(burst, 0, 0, 0, request_of(ENDLESS).SerializeToString()).pack()
        with connected(target) as connection:
            defined = connection.do(Frame(Kind.DEFINE, FIRST, first=LONG_NS, body=body))
            judge.expect("NNHAL-40", defined.status == ErrorStatus.NONE, "DEFINE of an endless loop", "NONE", defined)
            connection.send(Frame(Kind.RUN, FIRST).pack())
            answer = _until(lambda: _run_shortly(target, body), ErrorStatus.GENERAL_FAILURE)
            busy = answer.status == ErrorStatus.GENERAL_FAILURE
            judge.expect("NNHAL-40", busy, "RUN of a burst that executes", "GENERAL_FAILURE", answer)
        answer = _until(lambda: _run_shortly(target, body), ErrorStatus.MISSED_DEADLINE_TRANSIENT)
        what = "RUN of a burst whose client went while it executed"
        judge.expect("NNHAL-40", answer.is_missed_deadline, what, "the loop's end by its own timeout", answer)


def _run_shortly(target: Target, body: bytes) -> Answer:
    with connected(target) as connection:
        defined = connection.do(Frame(Kind.DEFINE, FIRST, first=SHORT_NS, body=body))
        return defined if defined.status else said(connection.ask(Frame(Kind.RUN, FIRST)), Kind.RESULT)


def _until(attempt: Callable[[], Answer], status: ErrorStatus) -> Answer:
    """Tries until an attempt ends with a status; gives the last one's after SOON_S."""
    end = time.monotonic() + SOON_S
    while (answer := attempt()).status != status and time.monotonic() < end:
        time.sleep(BETWEEN_S)
    return answer
