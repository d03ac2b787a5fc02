"""Copies to and from buffers (MEMDOM-26 to -48)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnhal.types import ErrorStatus
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.paths.buffers import AllocatedBuffer, buffer_role, copy_from, copy_to
from nnhal_tools.conformance.suites.memdom.bench import SHAPE, BufferBench, buffer_check, conv_case, expect_status

NONE, INVALID = ErrorStatus.NONE, ErrorStatus.INVALID_ARGUMENT

HALF, WHOLE, TWICE = 0.5, 1, 2
"""Sizes relative to the buffer."""


@dataclass(frozen=True)
class Copy:
    """Copy to or from a buffer, with the required status. `is_open`: the buffer is for CONV with an unknown dimension.

    `size` is that of the memory, relative to the buffer, and `dimensions` is the argument of copyFrom.
    """

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
    @buffer_check(copy.id)
    def body(bench: BufferBench) -> None:
        buffer = _allocate(bench, copy.is_open)
        memory = types_pb2.Memory(inline=bytes(int(bench.operand.size * copy.size)))
        stimulus = f"copyFrom of {len(memory.inline)} bytes, dimensions {list(copy.dimensions)}"
        expect_status(bench, copy.id, stimulus, copy.status, copy_from(bench.target, buffer, memory, copy.dimensions))


def _register_to(copy: Copy) -> None:
    @buffer_check(copy.id)
    def body(bench: BufferBench) -> None:
        buffer = _allocate(bench, copy.is_open)
        data = np.random.default_rng(0).bytes(bench.operand.size)
        expect_status(bench, copy.id, "copyFrom", NONE, copy_from(bench.target, buffer, _memory(data), copy.dimensions))
        size = int(bench.operand.size * copy.size)
        answer, content = copy_to(bench.target, buffer, size)
        expect_status(bench, copy.id, f"copyTo of {size} bytes", copy.status, answer)
        right = content.tobytes() == (data if copy.status == NONE else bytes(size))
        stimulus = "the memory after copyTo"
        bench.recorder.expect(
            right, stimulus, "the buffer's content, or unchanged if refused", "other bytes", check=copy.id
        )


for _copy in COPIES_FROM:
    _register_from(_copy)
for _copy in COPIES_TO:
    _register_to(_copy)


@buffer_check("MEMDOM-42")
def uninitialized(bench: BufferBench) -> None:
    """Check that copyTo fails before anything was written."""
    answer, _ = copy_to(bench.target, _allocate(bench, is_open=False), bench.operand.size)
    expect_status(bench, "MEMDOM-42", "copyTo of an uninitialized buffer", ErrorStatus.GENERAL_FAILURE, answer)


def _allocate(bench: BufferBench, is_open: bool) -> AllocatedBuffer:
    model = bench.prepare(conv_case(bench.operand.with_unknown_batch if is_open else bench.operand))
    return bench.allocate([model], [buffer_role(0, 0)], [buffer_role(0, 0)])


def _memory(data: bytes) -> types_pb2.Memory:
    return types_pb2.Memory(inline=data)
