"""Templates of request messages: the constant parts are built once for each set of input shapes."""

from collections.abc import Mapping, Sequence

from nnhal import wire
from nnhal.client.core.arrays import ModelIO
from nnhal.types import AnyArray, Memory
from nnhal.v1 import types_pb2

MAX_TEMPLATES = 8
"""Number of sets of input shapes with a template, for each prepared model or burst."""

Arrays = Sequence[AnyArray | None]


class RequestTemplates:
    """Fills messages with requests that have one pool for each input. Thread safe."""

    def __init__(self, io: ModelIO) -> None:
        self._io = io
        self._templates: dict[tuple[object, ...], types_pb2.Request] = {}

    def fill(
        self,
        message: types_pb2.Request,
        arrays: Arrays,
        pools: Sequence[Memory | None],
        uploaded: Mapping[Memory, types_pb2.Memory],
    ) -> None:
        """Fill an empty message with the request of an execution.

        Args:
            message: a new message. A used one would keep the memory of its old values.
            arrays: the checked inputs.
            pools: pools of the inputs that are present, see `input_pools`; None if the service has the bytes already.
            uploaded: messages of the pools that are too large for this message.
        """
        message.CopyFrom(self._template(arrays))
        for pool, memory in zip(message.pools, pools, strict=False):  # the last pool is for outputs
            if memory is None:
                continue
            if memory in uploaded:
                pool.pool.CopyFrom(uploaded[memory])
            else:
                pool.pool.inline = memory.buffer.tobytes()

    def _template(self, arrays: Arrays) -> types_pb2.Request:
        key = tuple([None if array is None else array.shape for array in arrays])
        template = self._templates.get(key)
        if template is None:
            template = wire.request_message(self._io.build_request(arrays), _empty_memory)
            if len(self._templates) >= MAX_TEMPLATES:
                self._templates.clear()
            self._templates[key] = template
        return template


def input_pools(arrays: Arrays) -> list[Memory]:
    """Return one pool for each input that is present."""
    return [Memory.of(array) for array in arrays if array is not None]


def _empty_memory(pool: Memory) -> types_pb2.Memory:
    return types_pb2.Memory()
