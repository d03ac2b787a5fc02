"""Requests with outputs in Memory objects of the session, which are read afterwards, instead of in a ReturnedPool."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy

import numpy as np

from nnhal.types import Bytes
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.device.results import ExecutionOutcome
from nnhal_tools.conformance.device.target import Target, mapped_pool

STALE_BYTE = 0x5A
"""Byte that the outputs of a run are overwritten with before the next one."""


class StagedRequest:
    """Copy of a request with a Memory object in place of each ReturnedPool of a fixed size."""

    def __init__(self, target: Target, request: types_pb2.Request) -> None:
        self.request = deepcopy(request)
        self._target = target
        self._memories: dict[int, tuple[bytes, int]] = {}
        for number, pool in enumerate(self.request.pools):
            if pool.WhichOneof("kind") == "returned" and pool.returned.HasField("size"):
                size = pool.returned.size
                _, created = target.create_memory(size)
                if created is not None:
                    self._memories[number] = created.memory, size
                    pool.pool.CopyFrom(mapped_pool(created.memory))

    def outputs(self) -> Sequence[Bytes | None]:
        """Read the bytes of each output's region; None for one that lies elsewhere."""
        contents = {
            number: np.frombuffer(self._target.read_memory(handle), np.uint8)
            for number, (handle, _) in self._memories.items()
        }
        return [_region(contents.get(o.location.pool_index), o.location) for o in self.request.outputs]

    def overwrite_outputs(self) -> None:
        """Overwrite the outputs, so that a later run must write them again."""
        for handle, size in self._memories.values():
            self._target.upload(handle, bytes([STALE_BYTE]) * size)

    def close(self) -> None:
        """Release the memories."""
        if handles := [handle for handle, _ in self._memories.values()]:
            self._target.release(*handles)


def _region(memory: Bytes | None, location: types_pb2.DataLocation) -> Bytes | None:
    return None if memory is None else memory[location.offset : location.offset + location.length]


@contextmanager
def staged_request(target: Target, request: types_pb2.Request) -> Iterator[StagedRequest]:
    """Yield a staged request, whose memories are released at the end."""
    staged = StagedRequest(target, request)
    try:
        yield staged
    finally:
        staged.close()


def read_outputs(execution: ExecutionOutcome, staged: StagedRequest) -> Sequence[Bytes | None]:
    """Return the outputs of a successful execution: the returned bytes, or else those in memory."""
    if execution.outcome.status:
        return ()
    in_memory = staged.outputs()
    returned = execution.outputs or [None] * len(in_memory)
    return [output if output is not None else memory for output, memory in zip(returned, in_memory, strict=True)]
