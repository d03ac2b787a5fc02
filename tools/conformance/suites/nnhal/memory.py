"""Memory objects (NNHAL-19 to -21)."""

import hashlib
import secrets

from nnhal.types import ErrorStatus
from nnhal.v1 import memory_pb2
from tools.conformance.check import CheckFailed, Judge
from tools.conformance.registry import check
from tools.conformance.samples import expect_right, prepared, request_of
from tools.conformance.suites.extra.requests import expect_refused
from tools.conformance.target import Answer, Target, mapped

INVALID = ErrorStatus.INVALID_ARGUMENT


def _created(target: Target, check_: str, data: bytes, size: int | None = None) -> memory_pb2.CreateMemoryResponse:
    """A memory that is announced by the digest of its bytes."""
    answer, response = target.create(len(data) if size is None else size, hashlib.sha256(data).digest())
    if response is None:
        raise CheckFailed(check_, "MemoryService.Create with a digest", "NONE", answer)
    return response


def _expect(judge: Judge, check_: str, answer: Answer, status: ErrorStatus, what: str) -> None:
    judge.expect(check_, answer.status == status, what, status.name, answer)


@check("NNHAL-19")
def uploads_are_checked(target: Target, judge: Judge) -> None:
    """Missing and wrong bytes are refused, and the memory stays unusable until the right ones come."""
    request = request_of("add_float")
    # bytes that nobody has sent before: behind what the request needs
    data = request.pools[0].pool.inline + secrets.token_bytes(32)
    handle = _created(target, "NNHAL-19", data).memory
    request.pools[0].pool.CopyFrom(mapped(handle))
    with prepared(target, "add_float") as model:
        for what, wrong in (("a byte missing", data[:-1]), ("a byte wrong", data[:-1] + bytes([data[-1] ^ 1]))):
            _expect(judge, "NNHAL-19", target.upload(handle, wrong), INVALID, f"an upload with {what}")
            expect_refused(target, judge, model, request, "NNHAL-19", f"a pool whose upload had {what}")
        _expect(judge, "NNHAL-19", target.upload(handle, data), ErrorStatus.NONE, "an upload of the right bytes")
        executed = target.execute(model, request)
        expect_right(judge, "NNHAL-19", "add_float", executed, "a pool with a digest")
    _expect(judge, "NNHAL-19", target.upload(handle, data), INVALID, "an upload into a complete memory")
    judge.expect("NNHAL-19", target.read(handle) == data, "a complete memory", "unchanged", "changed")
    target.release(handle)


@check("NNHAL-20")
def known_bytes_need_not_be_sent(target: Target, judge: Judge) -> None:
    """The digest brings them back, as long as somebody of this identity holds them."""
    data = secrets.token_bytes(5000)
    first = _created(target, "NNHAL-20", data)
    judge.expect("NNHAL-20", not first.complete, "bytes that are new", "complete false", first.complete)
    _expect(judge, "NNHAL-20", target.upload(first.memory, data), ErrorStatus.NONE, "an upload")
    again = _created(target, "NNHAL-20", data)
    judge.expect("NNHAL-20", again.complete, "bytes that were uploaded", "complete true", again.complete)
    judge.expect("NNHAL-20", target.read(again.memory) == data, "bytes found by their digest", "the same", "others")
    longer = _created(target, "NNHAL-20", data, size=len(data) + 1)
    judge.expect("NNHAL-20", not longer.complete, "the digest with another size", "complete false", longer.complete)
    target.release(first.memory, again.memory, longer.memory)


@check("NNHAL-21")
def memory_is_written_in_any_order(target: Target, judge: Judge) -> None:
    """In pieces, backwards; windows are read; nothing outside it is touched."""
    answer, created = target.create(12)
    judge.expect("NNHAL-21", created is not None, "MemoryService.Create", "NONE", answer)
    assert created is not None
    handle = created.memory
    for offset, piece in ((8, b"cccc"), (0, b"aaaa"), (4, b"bbbb")):
        _expect(judge, "NNHAL-21", target.upload(handle, piece, offset), ErrorStatus.NONE, f"4 bytes at {offset}")
    got = target.read(handle)
    judge.expect("NNHAL-21", got == b"aaaabbbbcccc", "memory written in pieces", "aaaabbbbcccc", got)
    window = target.read(handle, 3, 6)
    judge.expect("NNHAL-21", window == b"abbbbc", "a window of 6 bytes from 3", "abbbbc", window)
    for offset in (9, -1, 12):
        _expect(judge, "NNHAL-21", target.upload(handle, b"xxxx", offset), INVALID, f"4 bytes at {offset} of 12")
    for offset, length in ((0, 13), (-1, 1), (13, 0), (0, -1)):
        request = memory_pb2.ReadRequest(session=target.session, memory=handle, offset=offset, length=length)
        answer = target.call("MemoryService", "Read", request)
        _expect(judge, "NNHAL-21", answer, INVALID, f"reading {length} bytes from {offset} of 12")
    for size in (0, -1):
        _expect(judge, "NNHAL-21", target.create(size)[0], INVALID, f"a memory of {size} bytes")
    judge.expect("NNHAL-21", target.read(handle) == got, "memory after bad calls", "unchanged", "changed")
    target.release(handle)
