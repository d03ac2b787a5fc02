"""Packets of the data socket: packing, unpacking, and errors for truncated bodies."""

import pytest

from nnhal.shm import protocol
from nnhal.shm.protocol import OutputLocation, OutputRecord, Packet, PacketKind, ProtocolError
from nnhal.types import OutputShape

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
