"""The frames of the data socket: what is packed is unpacked, and what is cut short is malformed."""

import pytest

from nnhal import frames
from nnhal.frames import Malformed, Output, Place
from nnhal.types import OutputShape

OUTPUTS = (
    Output(OutputShape((2, 3))),
    Output(OutputShape((), is_sufficient=False)),
    Output(OutputShape((7,)), Place.AREA, 64),
    Output(OutputShape((1, 2, 3, 4)), Place.MEMORY, memory=bytes(range(16))),
)


def test_outputs_come_back_as_they_were() -> None:
    assert frames.unpack_outputs(frames.pack_outputs(OUTPUTS), len(OUTPUTS)) == OUTPUTS


def test_outputs_cut_short_anywhere_are_malformed() -> None:
    body = frames.pack_outputs(OUTPUTS)
    for length in range(len(body)):
        with pytest.raises(Malformed, match=f"a RESULT of {length} bytes"):
            frames.unpack_outputs(body[:length], len(OUTPUTS))
