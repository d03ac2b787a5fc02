"""Memory objects (NNHAL-19 to -21)."""

import hashlib
import secrets

from nnhal.types import ErrorStatus
from nnhal.v1 import memory_pb2
from nnhal_tools.conformance.check import CheckFailed, CheckRecorder
from nnhal_tools.conformance.device.target import Target, mapped_pool
from nnhal_tools.conformance.registry import check
from nnhal_tools.conformance.suites.extra.requests import expect_refused
from nnhal_tools.conformance.vectors.samples import builtin_request, expect_correct, prepared_model

INVALID = ErrorStatus.INVALID_ARGUMENT


def _create_with_digest(
    target: Target, check_: str, data: bytes, size: int | None = None
) -> memory_pb2.CreateMemoryResponse:
    """Create a memory with the digest of its bytes."""
    answer, response = target.create_memory(len(data) if size is None else size, hashlib.sha256(data).digest())
    if response is None:
        raise CheckFailed(check_, "MemoryService.Create with a digest", "NONE", answer)
    return response


@check("NNHAL-19")
def uploads_are_checked(target: Target, recorder: CheckRecorder) -> None:
    """Check that missing and wrong bytes are rejected, and that the memory is unusable until the right ones arrive."""
    request = builtin_request("add_float")
    # Bytes that are new to the service, after those that the request needs.
    data = request.pools[0].pool.inline + secrets.token_bytes(32)
    handle = _create_with_digest(target, "NNHAL-19", data).memory
    request.pools[0].pool.CopyFrom(mapped_pool(handle))
    with prepared_model(target, "add_float") as model:
        for flaw, wrong in (("a missing byte", data[:-1]), ("a wrong byte", data[:-1] + bytes([data[-1] ^ 1]))):
            recorder.expect_status(target.upload(handle, wrong), f"an upload with {flaw}", INVALID)
            expect_refused(target, recorder, model, request, f"a pool whose upload had {flaw}")
        recorder.expect_status(target.upload(handle, data), "an upload of the right bytes")
        execution = target.execute(model, request)
        expect_correct(recorder, "add_float", execution, "a pool with a digest")
    recorder.expect_status(target.upload(handle, data), "an upload into a complete memory", INVALID)
    recorder.expect(target.read_memory(handle) == data, "a complete memory", "unchanged", "changed")
    target.release(handle)


@check("NNHAL-20")
def known_bytes_need_not_be_sent(target: Target, recorder: CheckRecorder) -> None:
    """Check that the digest provides bytes that this client identity still has on the service."""
    data = secrets.token_bytes(5000)
    uploaded = _create_with_digest(target, "NNHAL-20", data)
    recorder.expect(not uploaded.complete, "new bytes", "complete false", uploaded.complete)
    recorder.expect_status(target.upload(uploaded.memory, data), "an upload")
    known = _create_with_digest(target, "NNHAL-20", data)
    recorder.expect(known.complete, "uploaded bytes", "complete true", known.complete)
    recorder.expect(
        target.read_memory(known.memory) == data, "bytes found by their digest", "the uploaded bytes", "other bytes"
    )
    longer = _create_with_digest(target, "NNHAL-20", data, size=len(data) + 1)
    recorder.expect(not longer.complete, "the digest with another size", "complete false", longer.complete)
    target.release(uploaded.memory, known.memory, longer.memory)


@check("NNHAL-21")
def memory_is_written_in_any_order(target: Target, recorder: CheckRecorder) -> None:
    """Check writes in any order, reads of a window, and accesses out of bounds."""
    handle = recorder.require_response(target.create_memory(12), "MemoryService.Create").memory
    for offset, piece in ((8, b"cccc"), (0, b"aaaa"), (4, b"bbbb")):
        recorder.expect_status(target.upload(handle, piece, offset), f"an upload of 4 bytes at {offset}")
    got = target.read_memory(handle)
    recorder.expect(got == b"aaaabbbbcccc", "memory written in pieces", "aaaabbbbcccc", got)
    window = target.read_memory(handle, 3, 6)
    recorder.expect(window == b"abbbbc", "a window of 6 bytes from 3", "abbbbc", window)
    for offset in (9, -1, 12):
        recorder.expect_status(
            target.upload(handle, b"xxxx", offset), f"an upload of 4 bytes at {offset} of 12", INVALID
        )
    for offset, length in ((0, 13), (-1, 1), (13, 0), (0, -1)):
        answer, _ = target.call("MemoryService.Read", memory=handle, offset=offset, length=length)
        recorder.expect_status(answer, f"reading {length} bytes from {offset} of 12", INVALID)
    for size in (0, -1):
        recorder.expect_status(target.create_memory(size)[0], f"a memory of {size} bytes", INVALID)
    recorder.expect(target.read_memory(handle) == got, "memory after invalid calls", "unchanged", "changed")
    target.release(handle)
