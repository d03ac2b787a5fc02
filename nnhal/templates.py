"""Requests of one prepared model as messages: what is the same in all of them is made once for each set of shapes."""

from collections.abc import Mapping, Sequence

from nnhal import wire
from nnhal.tensors import Ends
from nnhal.types import AnyArray, Memory
from nnhal.v1 import types_pb2

KEPT_TEMPLATES = 8
"""Sets of input shapes for which a message is kept that has all but the values."""

Arrays = Sequence[AnyArray | None]


class Templates:
    """Fills messages with requests that have one pool for each input. Thread safe."""

    def __init__(self, ends: Ends) -> None:
        self._ends = ends
        self._kept: dict[tuple[object, ...], types_pb2.Request] = {}

    def fill(
        self,
        message: types_pb2.Request,
        arrays: Arrays,
        pools: Sequence[Memory | None],
        elsewhere: Mapping[Memory, types_pb2.Memory],
    ) -> None:
        """Fills a new message: one that had values before keeps their memory.

        Args:
            arrays: the inputs, checked.
            pools: of the inputs that are given, as `pools_of` makes them; None: the service has the bytes already.
            elsewhere: messages of the pools that are too large for this one.
        """
        message.CopyFrom(self._template(arrays))
        for pool, memory in zip(message.pools, pools, strict=False):  # the last is the outputs'
            if memory is None:
                continue
            if memory in elsewhere:
                pool.pool.CopyFrom(elsewhere[memory])
            else:
                pool.pool.inline = memory.buffer.tobytes()

    def _template(self, arrays: Arrays) -> types_pb2.Request:
        key = tuple([None if array is None else array.shape for array in arrays])
        template = self._kept.get(key)
        if template is None:
            template = wire.request_message(self._ends.request_of(arrays), _empty)
            if len(self._kept) >= KEPT_TEMPLATES:
                self._kept.clear()
            self._kept[key] = template
        return template


def pools_of(arrays: Arrays) -> list[Memory]:
    """The pools of the inputs that are given."""
    return [Memory.of(array) for array in arrays if array is not None]


def _empty(pool: Memory) -> types_pb2.Memory:
    return types_pb2.Memory()
