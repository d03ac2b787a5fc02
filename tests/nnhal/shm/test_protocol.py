"""Packets of the data socket: packing, unpacking, and errors for truncated bodies."""

import numpy as np
import pytest

from nnhal import wire
from nnhal.client.shm.slot_layout import encode_shared
from nnhal.shm import protocol
from nnhal.shm.protocol import Definition, OutputLocation, OutputRecord, Packet, PacketKind, ProtocolError
from nnhal.types import DataLocation, Memory, OutputShape, Request, RequestArgument, RequestMemoryPool

OUTPUTS = (
    OutputRecord(OutputShape((2, 3))),
    OutputRecord(OutputShape((), is_sufficient=False)),
    OutputRecord(OutputShape((7,)), OutputLocation.AREA, 64),
    OutputRecord(OutputShape((1, 2, 3, 4)), OutputLocation.MEMORY, memory=bytes(range(16))),
)


def test_packed_outputs_are_unpacked_unchanged() -> None:
    assert protocol.unpack_outputs(protocol.pack_outputs(OUTPUTS), len(OUTPUTS)) == OUTPUTS


def test_truncated_outputs_are_rejected() -> None:
    body = protocol.pack_outputs(OUTPUTS)
    for length in range(len(body)):
        with pytest.raises(ProtocolError, match=f"a RESULT of {length} bytes"):
            protocol.unpack_outputs(body[:length], len(OUTPUTS))


@pytest.mark.parametrize("spans", [b"", b"spans"])
def test_spans_precede_the_outputs(spans: bytes) -> None:
    outputs = protocol.pack_outputs(OUTPUTS)
    body = protocol.prepend_spans(spans, outputs)
    assert protocol.split_spans(body) == (spans, outputs)
    packet = Packet(PacketKind.RESULT, body=body).pack()
    assert protocol.packet_size(len(outputs), len(spans)) == len(packet)


@pytest.mark.parametrize("length", [0, 3, 4, 8])
def test_truncated_spans_are_rejected(length: int) -> None:
    with pytest.raises(ProtocolError, match=f"a RESULT of {length} bytes"):
        protocol.split_spans(protocol.prepend_spans(b"spans", b"")[:length])


@pytest.mark.parametrize("rank", [0, 1, 4, 32])
def test_packets_of_models_that_fit_are_small_enough(rank: int) -> None:
    """The largest numbers are in the request: offsets, lengths and dimensions, and a memory for each argument."""
    count = max(number for number in range(1500) if protocol.fits_packets(number, number * rank))
    large = 2**31 - 1
    argument = RequestArgument(False, DataLocation(count, large, large), (large,) * rank)
    memories: list[RequestMemoryPool] = [Memory(np.empty(0, np.uint8)) for _ in range(count)]
    request = Request((argument,) * count, (), tuple(memories))
    message = wire.request_message(request, encode_shared([large] * count))
    body = Definition(bytes(16), large, large, large, message.SerializeToString()).pack()
    assert len(Packet(PacketKind.DEFINE, large, body=body).pack()) <= protocol.MAX_BYTES
    shapes = [OutputShape((large,) * rank)] * count
    assert protocol.result_size(shapes) <= protocol.MAX_BYTES
    outputs = protocol.pack_outputs([OutputRecord(shape, OutputLocation.MEMORY, 0, bytes(16)) for shape in shapes])
    packet = Packet(PacketKind.RESULT, body=protocol.prepend_spans(bytes(16), outputs)).pack()
    assert len(packet) == protocol.result_size(shapes)
