"""Requests of the generated tests (checklist 3.2): inputs in pool 0, outputs in pool 1, in steps of 64 bytes."""

from collections.abc import Sequence

from nnhal.types import AnyArray
from nnhal.v1 import types_pb2

ALIGNMENT = 64


def build(
    inputs: Sequence[AnyArray | None], output_sizes: Sequence[int], *, short: bool = False
) -> tuple[types_pb2.Request, bytes]:
    """A request, and the bytes of its pool 0, for the caller to put there.

    Args:
        inputs: one array for each input; None for an omitted one.
        output_sizes: bytes of each output; 0 for a zero-sized one, which gets a region of one byte.
        short: output 0 is one byte too small, and its padding one byte longer.
    """
    request = types_pb2.Request()
    data = bytearray()
    for array in inputs:
        argument = request.inputs.add()
        if array is None:
            argument.has_no_value = True
            continue
        raw = array.tobytes()
        _place(argument.location, 0, len(data), max(len(raw), 1))
        data += raw + bytes(-len(raw) % ALIGNMENT or (ALIGNMENT if not raw else 0))
    end = 0
    for size in output_sizes:
        location = request.outputs.add().location
        _place(location, 1, end, max(size, 1))
        end = location.offset + location.length + location.padding
    if short:
        request.outputs[0].location.length -= 1
        request.outputs[0].location.padding += 1
    request.pools.add()
    request.pools.add().returned.size = max(end, 1)
    return request, bytes(data) or bytes(1)


def _place(location: types_pb2.DataLocation, pool: int, offset: int, length: int) -> None:
    location.pool_index, location.offset, location.length = pool, offset, length
    location.padding = -length % ALIGNMENT
