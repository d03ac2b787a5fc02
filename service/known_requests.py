"""Requests like one that was found valid: where only the bytes of inline pools differ, nothing is judged again.

What is refused (limits, V-REQ*, V-EXECARG*) never depends on those bytes. So a request is known by its form: the
message without them, how many there were, and how it is to be executed.
"""

from typing import NamedTuple
from weakref import WeakKeyDictionary

from driver.memory import ValidRequest
from driver.prepared_model import PreparedModel
from nnhal import wire
from nnhal.types import ExecutionConfig, Memory, Request, RequestMemoryPool, ReturnedPool, UnsetUnion
from nnhal.v1 import types_pb2
from service.limits import Limits
from service.memory import read_memory
from service.sessions import Session

_FORMS_KEPT = 64
"""Of one prepared model: clients must not fill the memory with forms."""
_FORM_BYTES = 4096

_Form = tuple[bytes, tuple[int, ...], ExecutionConfig]
_EMPTY = UnsetUnion()


class _Known(NamedTuple):
    """A valid request without its values. `inline`: which of its pools have them."""

    request: ValidRequest
    inline: tuple[int, ...]

    def holding(self, values: list[bytes]) -> ValidRequest:
        """The request with other values, one for each pool."""
        pools = list(self.request.pools)
        for index in self.inline:
            pools[index] = Memory.of(values[index])
        return self.request.with_pools(tuple(pools))


class KnownRequests:
    """The forms of valid requests of each prepared model. Thread safe."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._known: WeakKeyDictionary[PreparedModel, dict[_Form, _Known]] = WeakKeyDictionary()

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
        values = _take_values(message)
        form = (message.SerializeToString(), tuple(map(len, values)), config)
        found = known.get(form)
        if found is not None:
            return found.holding(values)
        _put_back(message, values)
        valid = prepared.validate(self.unknown(session, message), config)
        if len(form[0]) <= _FORM_BYTES and all(map(_says_all, message.pools)):
            if len(known) >= _FORMS_KEPT:
                known.clear()
            known[form] = _without_values(valid)
        return valid

    def unknown(self, session: Session, message: types_pb2.Request) -> Request:
        """The request of a message, judged by the limits alone.

        Raises:
            HalError: a limit; INVALID_ARGUMENT: an unknown handle.
        """
        self._limits.hold_request(message)
        return wire.to_request(message, lambda pool: read_memory(session, pool))


def _take_values(message: types_pb2.Request) -> list[bytes]:
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


def _says_all(pool: types_pb2.RequestMemoryPool) -> bool:
    """Whether a pool's message says all there is to it: what a handle or token stands for may change."""
    return pool.WhichOneof("kind") == "returned" or pool.pool.WhichOneof("memory") == "inline"


def _without_values(request: ValidRequest) -> _Known:
    pools: tuple[RequestMemoryPool, ...] = tuple(
        pool if isinstance(pool, ReturnedPool) else _EMPTY for pool in request.pools
    )
    inline = tuple(index for index, pool in enumerate(request.pools) if isinstance(pool, Memory))
    return _Known(request.with_pools(pools), inline)
