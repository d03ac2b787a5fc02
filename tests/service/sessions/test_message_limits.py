"""Limits on encoded messages: they count what protobuf would make objects of, and nothing else."""

import random
from collections.abc import Iterator
from functools import reduce
from unittest.mock import MagicMock

import pytest
from google.protobuf.message import DecodeError, Message

from nnhal.errors import HalError
from nnhal.types import ErrorStatus
from nnhal.v1 import burst_pb2, cache_pb2, device_pb2, prepared_model_pb2, session_pb2, types_pb2
from nnhal_service.grpc_support.request_decoding import checked_decoder
from nnhal_service.sessions import message_limits
from nnhal_service.sessions.limits import LIMITS, Limits
from nnhal_service.sessions.message_limits import count_elements

SMALL = Limits(dict.fromkeys(("operands", "operations", "subgraphs", "pools", "arguments", "elements"), 10))
LISTS: list[tuple[type[Message], tuple[int, ...], str]] = [
    (device_pb2.PrepareModelRequest, (3, 1, 1), "operands"),
    (device_pb2.PrepareModelWithConfigRequest, (3, 2, 1), "operands"),
    (device_pb2.GetSupportedOperationsRequest, (3, 1, 2), "operations"),
    (device_pb2.PrepareModelRequest, (3, 2), "subgraphs"),
    (device_pb2.PrepareModelRequest, (3, 4), "pools"),
    (device_pb2.PrepareModelWithConfigRequest, (4, 5), "elements"),
    (prepared_model_pb2.ExecuteSynchronouslyRequest, (3, 1), "arguments"),
    (prepared_model_pb2.DefineRequest, (3, 3), "pools"),
    (prepared_model_pb2.ExecuteFencedRequest, (4,), "elements"),
    (prepared_model_pb2.RunRequest, (3,), "pools"),
    (burst_pb2.BurstStreamRequest, (burst_pb2.BurstStreamRequest.RUN_FIELD_NUMBER, 3), "pools"),
    (burst_pb2.BurstExecuteRequest, (3, 2), "arguments"),
    (session_pb2.ReleaseRequest, (2,), "elements"),
    (cache_pb2.ClearCacheRequest, (2,), "elements"),
]


def varint(number: int) -> bytes:
    encoded = b""
    while number > 127:
        encoded += bytes([number & 127 | 128])
        number >>= 7
    return encoded + bytes([number])


def field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def nested(path: tuple[int, ...], count: int) -> bytes:
    """Return a message with empty elements in the list at the end of a path of field numbers."""
    return reduce(lambda inner, number: field(number, inner), reversed(path[:-1]), field(path[-1], b"") * count)


@pytest.mark.parametrize(("message", "path", "limit"), LISTS)
def test_lists_are_counted_before_they_are_decoded(message: type[Message], path: tuple[int, ...], limit: str) -> None:
    check = count_elements(message.DESCRIPTOR, SMALL)  # type: ignore[arg-type] # a class of the C implementation
    allowed, excessive = nested(path, 10), nested(path, 1_000)
    assert message.FromString(excessive).ByteSize(), "the path exists"
    check(allowed)
    with pytest.raises(HalError, match=f"at least 11 {LIMITS[limit].unit}; at most 10") as caught:
        check(excessive)
    assert (caught.value.status, caught.value.limit) == (LIMITS[limit].status, limit)


def test_excessive_message_is_not_decoded() -> None:
    def decode(encoded: bytes) -> Message:
        raise AssertionError("decoded")

    with pytest.raises(HalError, match="operands"):
        checked_decoder(count_elements(types_pb2.Model.DESCRIPTOR, SMALL), decode)(nested((1, 1), 11))


def test_elements_of_all_subgraphs_count_together() -> None:
    check = count_elements(types_pb2.Model.DESCRIPTOR, SMALL)
    check(nested((1, 1), 4) + nested((2, 1), 3) * 2)
    with pytest.raises(HalError, match="at least 11 operands"):
        check(nested((1, 1), 4) + nested((2, 1), 4) + nested((1, 1), 3))


@pytest.mark.parametrize("filler", [b"\x18\x01", b"\x7a\x00"])
def test_messages_with_many_fields_take_turns(filler: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are read in Python, whether they count or not: several at once would keep all others waiting."""
    turn = MagicMock()
    monkeypatch.setattr(message_limits, "_turn", turn)
    check = count_elements(types_pb2.Model.DESCRIPTOR, SMALL)
    check(field(1, filler * 4_000))
    assert not turn.__enter__.called
    check(field(1, filler * 5_000))
    assert turn.__enter__.called


@pytest.mark.parametrize("encoded", [b"\xff" * 10**6, b"\x0b" * 30, b"\x0a\xff\xff\x03" + b"\x0a" * 29, b"\x80" * 30])
def test_damaged_message_is_invalid(encoded: bytes) -> None:
    with pytest.raises(HalError) as caught:
        count_elements(types_pb2.Model.DESCRIPTOR, SMALL)(encoded)
    assert caught.value.status == ErrorStatus.INVALID_ARGUMENT


def damaged(seed: int) -> Iterator[bytes]:
    """Yield random messages of the wire format for a model, most of which protobuf accepts."""
    chance = random.Random(seed)

    def message(depth: int) -> bytes:
        parts = []
        for _ in range(chance.randrange(8)):
            number, kind = chance.choice((1, 1, 1, 2, 2, 3, 4, 900)), chance.choice((2, 2, 2, 2, 0, 1, 5))
            tag = varint(number << 3 | kind)
            if chance.random() < 0.1:  # an unusual encoding of the same number
                tag = tag[:-1] + bytes([tag[-1] | 128, 0])
            values = {0: varint(chance.getrandbits(63)), 1: bytes(8), 5: bytes(4)}
            inner = message(depth - 1) if depth and chance.random() < 0.8 else bytes(chance.randrange(3))
            parts.append(tag + (values[kind] if kind in values else varint(len(inner)) + inner))
        return b"".join(parts)

    for _ in range(3000):
        encoded = bytearray(message(3))
        if encoded and chance.random() < 0.2:
            encoded[chance.randrange(len(encoded))] = chance.randrange(256)
        yield bytes(encoded)


def test_counts_are_those_of_protobuf() -> None:
    limits = Limits(dict.fromkeys(("operands", "operations", "subgraphs", "pools", "elements"), 2))
    check = count_elements(types_pb2.Model.DESCRIPTOR, limits)
    refused = 0
    for encoded in damaged(1):
        try:
            model = types_pb2.Model.FromString(encoded)
        except DecodeError:
            continue
        graphs = (model.main, *model.referenced)
        counts = {
            "operands": sum(len(graph.operands) for graph in graphs),
            "operations": sum(len(graph.operations) for graph in graphs),
            "subgraphs": len(model.referenced),
            "pools": len(model.pools),
            "elements": len(model.extension_name_to_prefix),
        }
        try:
            check(encoded)
        except HalError as error:
            if error.limit:
                assert counts[error.limit] > 2
            refused += 1
        else:
            assert max(counts.values()) <= 2
    assert refused > 50
