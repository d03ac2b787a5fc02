"""Copies into and out of buffers (MEMDOM-26 to -48)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from tools.conformance.paths.buffers import DeviceBuffer, copy_from, copy_to, role
from tools.conformance.suites.memdom.bench import SHAPE, Bench, conv, expect, memdom

NONE, INVALID = ErrorStatus.NONE, ErrorStatus.INVALID_ARGUMENT

HALF, WHOLE, TWICE = 0.5, 1, 2
"""Sizes, in buffers."""


@dataclass(frozen=True)
class Copy:
    """A copy. `is_open`: the buffer is for CONV of an open shape; `size`: of the memory, in buffers."""

    id: str
    is_open: bool
    size: float
    dimensions: Sequence[int]
    status: ErrorStatus


COPIES_FROM = (
    Copy("MEMDOM-26", False, HALF, (), INVALID),
    Copy("MEMDOM-27", False, TWICE, (), INVALID),
    Copy("MEMDOM-28", True, HALF, SHAPE, INVALID),
    Copy("MEMDOM-29", True, TWICE, SHAPE, INVALID),
    Copy("MEMDOM-30", True, WHOLE, SHAPE, NONE),
    Copy("MEMDOM-31", True, WHOLE, (2, 32, 32, 8), INVALID),
    Copy("MEMDOM-32", False, WHOLE, (1, 32, 32), INVALID),
    Copy("MEMDOM-33", False, WHOLE, (2, 32, 32, 8), INVALID),
    Copy("MEMDOM-34", False, WHOLE, (0, 32, 32, 8), INVALID),
    Copy("MEMDOM-35", False, WHOLE, (), NONE),
    Copy("MEMDOM-36", False, WHOLE, SHAPE, NONE),
    Copy("MEMDOM-37", True, WHOLE, (1, 32, 32), INVALID),
    Copy("MEMDOM-38", True, WHOLE, (2, 32, 32, 4), INVALID),
    Copy("MEMDOM-39", True, WHOLE, (1, 32, 32, 0), INVALID),
    Copy("MEMDOM-40", True, WHOLE, (), INVALID),
    Copy("MEMDOM-41", True, WHOLE, SHAPE, NONE),
)

COPIES_TO = (
    Copy("MEMDOM-43", False, HALF, SHAPE, INVALID),
    Copy("MEMDOM-44", False, TWICE, SHAPE, INVALID),
    Copy("MEMDOM-45", False, WHOLE, SHAPE, NONE),
    Copy("MEMDOM-46", True, HALF, SHAPE, INVALID),
    Copy("MEMDOM-47", True, TWICE, SHAPE, INVALID),
    Copy("MEMDOM-48", True, WHOLE, SHAPE, NONE),
)


def _register_from(copy: Copy) -> None:
    @memdom(copy.id)
    def body(bench: Bench) -> None:
        buffer = _buffer(bench, copy.is_open)
        memory = types_pb2.Memory(inline=bytes(int(bench.z.size * copy.size)))
        what = f"copyFrom of {len(memory.inline)} bytes, dimensions {list(copy.dimensions)}"
        expect(bench, copy.id, what, copy.status, copy_from(bench.target, buffer, memory, copy.dimensions))


def _register_to(copy: Copy) -> None:
    @memdom(copy.id)
    def body(bench: Bench) -> None:
        buffer = _buffer(bench, copy.is_open)
        data = np.random.default_rng(0).bytes(bench.z.size)
        expect(bench, copy.id, "copyFrom", NONE, copy_from(bench.target, buffer, _memory(data), copy.dimensions))
        size = int(bench.z.size * copy.size)
        answer, got = copy_to(bench.target, buffer, size)
        expect(bench, copy.id, f"copyTo of {size} bytes", copy.status, answer)
        right = got.tobytes() == (data if copy.status == NONE else bytes(size))
        what = "the memory after copyTo"
        bench.judge.expect(copy.id, right, what, "the buffer's content, or untouched if refused", "other bytes")


for _copy in COPIES_FROM:
    _register_from(_copy)
for _copy in COPIES_TO:
    _register_to(_copy)


@memdom("MEMDOM-42")
def fresh(bench: Bench) -> None:
    """Nothing can be read before something was written."""
    answer, _ = copy_to(bench.target, _buffer(bench, is_open=False), bench.z.size)
    expect(bench, "MEMDOM-42", "copyTo of a fresh buffer", ErrorStatus.GENERAL_FAILURE, answer)


def _buffer(bench: Bench, is_open: bool) -> DeviceBuffer:
    model = bench.prepared(conv(bench.z.open if is_open else bench.z))
    return bench.buffer([model], [role(0, 0)], [role(0, 0)])


def _memory(data: bytes) -> types_pb2.Memory:
    return types_pb2.Memory(inline=data)
