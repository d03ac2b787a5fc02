"""Requests with inputs in pool 0 and outputs in pool 1, aligned to 64 bytes (checklist 3.2) or to 4 (checklist 5)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy

from nnhal.types import AnyArray
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.device.target import Target
from nnhal_tools.conformance.vectors.case import Case

ALIGNMENT = 64


def build_request(
    inputs: Sequence[AnyArray | None], output_sizes: Sequence[int], *, padded: bool = True
) -> tuple[types_pb2.Request, bytes]:
    """Return a request, and the bytes of its pool 0, which the caller fills in.

    Args:
        inputs: an array for each input; None for an omitted one.
        output_sizes: the bytes of each output; 0 for a zero-sized one, whose region has one byte.
        padded: pad each region up to the next one. Otherwise regions start at multiples of 4 and have no padding.
    """
    request = types_pb2.Request()
    data = bytearray()
    for array in inputs:
        argument = request.inputs.add()
        if array is None:
            argument.has_no_value = True
            continue
        raw = array.tobytes()
        data += bytes(_place(argument.location, 0, len(data), max(len(raw), 1), padded) - len(data))
        start = argument.location.offset
        data[start : start + len(raw)] = raw
    end = 0
    for size in output_sizes:
        end = _place(request.outputs.add().location, 1, end, max(size, 1), padded)
    request.pools.add()
    request.pools.add().returned.size = max(end, 1)
    return request, bytes(data) or bytes(1)


def inline_request(inputs: Sequence[AnyArray | None], output_sizes: Sequence[int]) -> types_pb2.Request:
    """Return a request with its inputs inline in pool 0, and its outputs in a ReturnedPool; see `build_request`."""
    request, data = build_request(inputs, output_sizes)
    request.pools[0].pool.inline = data
    return request


def _place(location: types_pb2.DataLocation, pool: int, offset: int, length: int, padded: bool) -> int:
    """Fill in a location and return the offset of the next one."""
    location.pool_index, location.offset, location.length = pool, offset, length
    gap = -length % (ALIGNMENT if padded else 4)
    location.padding = gap if padded else 0
    return offset + length + gap


@contextmanager
def case_request(target: Target, case: Case, *, padded: bool = True) -> Iterator[types_pb2.Request]:
    """Yield the request of a vector with its inputs. Uploaded memory is released at the end."""
    request, data = build_request(case.inputs, [output.array.nbytes for output in case.outputs], padded=padded)
    request.pools[0].pool.CopyFrom(target.pool_with(data))
    try:
        yield request
    finally:
        target.release_pools([request.pools[0].pool])


def with_small_output(request: types_pb2.Request) -> types_pb2.Request:
    """Return the request with output 0 one byte shorter and its padding one byte longer."""
    short = deepcopy(request)
    short.outputs[0].location.length -= 1
    short.outputs[0].location.padding += 1
    return short
