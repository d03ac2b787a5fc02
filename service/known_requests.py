"""Requests like one that was found valid: where only the bytes of inline pools differ, nothing is judged again.

What is refused (limits, V-REQ*, V-EXECARG*) never depends on those bytes. So a request is known by its form: the
message without them, how many there were, and how it is to be executed.
"""

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from driver.memory import ValidRequest
from driver.prepared_model import PreparedModel
from nnhal import wire
from nnhal.moulds import FORM_BYTES, keep
from nnhal.types import (
    PROT_READ,
    Bytes,
    ExecutionConfig,
    Memory,
    Request,
    RequestMemoryPool,
    ReturnedPool,
    UnsetUnion,
)
from nnhal.v1 import types_pb2
from service.limits import Limits
from service.memory import read_memory
from service.sessions import Session

_Form = tuple[bytes, tuple[int, ...], ExecutionConfig]
_EMPTY = UnsetUnion()


class Known(NamedTuple):
    """A valid request without its values. `inline`: which of its pools have them."""

    request: ValidRequest
    inline: tuple[int, ...]

    @staticmethod
    def of(request: ValidRequest) -> "Known":
        """What stays of a request; its pools are inline or returned."""
        pools: tuple[RequestMemoryPool, ...] = tuple(
            pool if isinstance(pool, ReturnedPool) else _EMPTY for pool in request.pools
        )
        inline = tuple(index for index, pool in enumerate(request.pools) if isinstance(pool, Memory))
        return Known(request.with_pools(pools), inline)

    def holding(self, values: Sequence[Bytes]) -> ValidRequest:
        """The request with other values, one for each inline pool."""
        pools = list(self.request.pools)
        for index, value in zip(self.inline, values, strict=True):
            pools[index] = Memory(value, prot=PROT_READ)
        return self.request.with_pools(tuple(pools))


class KnownRequests:
    """The forms of valid requests of each prepared model. Thread safe."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._known: WeakKeyDictionary[PreparedModel, dict[_Form, Known]] = WeakKeyDictionary()

    def read(
        self, session: Session, prepared: PreparedModel, message: types_pb2.Request, config: ExecutionConfig
    ) -> ValidRequest:
        """The valid request of a message; `PreparedModel.execute_valid` takes it.

        Raises:
            HalError: a limit; INVALID_ARGUMENT: an unknown handle, or as `PreparedModel.validate`.
        """
        known = self._known.get(prepared)
        if known is None:
            known = self._known.setdefault(prepared, {})
        values = take_values(message)
        form = (message.SerializeToString(), tuple(map(len, values)), config)
        found = known.get(form)
        if found is not None:
            return found.holding([np.frombuffer(values[index], np.uint8) for index in found.inline])
        _put_back(message, values)
        valid = prepared.validate(self.unknown(session, message), config)
        if len(form[0]) <= FORM_BYTES and says_all(message):
            keep(known, form, Known.of(valid))
        return valid

    def unknown(self, session: Session, message: types_pb2.Request) -> Request:
        """The request of a message, judged by the limits alone.

        Raises:
            HalError: a limit; INVALID_ARGUMENT: an unknown handle.
        """
        self._limits.hold_request(message)
        return wire.to_request(message, lambda pool: read_memory(session, pool))


def take_values(message: types_pb2.Request) -> list[bytes]:
    """Takes the bytes out of the inline pools; gives one entry for each pool, b"" for those of other kinds."""
    values = []
    for pool in message.pools:
        memory = pool.pool
        data = memory.inline
        if data:
            memory.inline = b""
        values.append(data)
    return values


def _put_back(message: types_pb2.Request, values: list[bytes]) -> None:
    for pool, data in zip(message.pools, values, strict=True):
        if data:
            pool.pool.inline = data


def says_all(message: types_pb2.Request) -> bool:
    """Whether the messages of pools say all there is to them: what a handle or token stands for may change."""
    return all(
        pool.WhichOneof("kind") == "returned" or pool.pool.WhichOneof("memory") == "inline" for pool in message.pools
    )
