"""Requests whose outputs lie in memory of the session, which is read afterwards: what a ReturnedPool cannot do."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from nnhal.types import Bytes
from nnhal.v1 import types_pb2
from tools.conformance.target import Executed, Target, mapped

STALE = 0x5A
"""What the outputs of a run are overwritten with before the next one."""


class Staged:
    """A copy of a request with a Memory object in place of each ReturnedPool of a fixed size."""

    def __init__(self, target: Target, request: types_pb2.Request) -> None:
        self.request = types_pb2.Request()
        self.request.CopyFrom(request)
        self._target = target
        self._memories: dict[int, tuple[bytes, int]] = {}
        for number, pool in enumerate(self.request.pools):
            if pool.WhichOneof("kind") == "returned" and pool.returned.HasField("size"):
                size = pool.returned.size
                _, created = target.create(size)
                if created is not None:
                    self._memories[number] = created.memory, size
                    pool.pool.CopyFrom(mapped(created.memory))

    def outputs(self) -> Sequence[Bytes | None]:
        """The bytes of each output's region; None for one that lies elsewhere."""
        contents = {
            number: np.frombuffer(self._target.read(handle), np.uint8) for number, (handle, _) in self._memories.items()
        }
        return [_region(contents.get(o.location.pool_index), o.location) for o in self.request.outputs]

    def spoil(self) -> None:
        """Overwrites the outputs, so that what is there afterwards is new."""
        for handle, size in self._memories.values():
            self._target.upload(handle, bytes([STALE]) * size)

    def close(self) -> None:
        """Drops the memories."""
        if handles := [handle for handle, _ in self._memories.values()]:
            self._target.release(*handles)


def _region(memory: Bytes | None, location: types_pb2.DataLocation) -> Bytes | None:
    return None if memory is None else memory[location.offset : location.offset + location.length]


@contextmanager
def staged(target: Target, request: types_pb2.Request) -> Iterator[Staged]:
    """A staged request; its memories are dropped at the end."""
    made = Staged(target, request)
    try:
        yield made
    finally:
        made.close()


def read(executed: Executed, made: Staged) -> Sequence[Bytes | None]:
    """The outputs of an execution that has succeeded: what came back in its result, else what lies in memory."""
    if executed.answer.status:
        return ()
    lying = made.outputs()
    returned = executed.outputs or [None] * len(lying)
    return [back if back is not None else there for back, there in zip(returned, lying, strict=True)]
