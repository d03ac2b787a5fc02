"""Cache of validation results: a request that differs from a valid one only in inline tensor bytes is not validated.

Limits and rules (V-REQ*, V-EXECARG*) never depend on those bytes. So the cache key is the message without them, their
lengths, and the configuration of the execution.
"""

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from nnhal import wire
from nnhal.message_template import MAX_FIXED_BYTES, put_bounded
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
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.execution.request_binding import ValidRequest
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_objects import read_memory
from nnhal_service.sessions.session import Session

_Key = tuple[bytes, tuple[int, ...], ExecutionConfig]
_EMPTY = UnsetUnion()


class ValidatedTemplate(NamedTuple):
    """A valid request without its tensor bytes.

    Attributes:
        inline: indexes of the pools that take tensor bytes.
    """

    request: ValidRequest
    inline: tuple[int, ...]

    @staticmethod
    def of(request: ValidRequest) -> "ValidatedTemplate":
        """Return the template of a request whose pools are all inline or returned."""
        pools: tuple[RequestMemoryPool, ...] = tuple(
            pool if isinstance(pool, ReturnedPool) else _EMPTY for pool in request.pools
        )
        inline = tuple(index for index, pool in enumerate(request.pools) if isinstance(pool, Memory))
        return ValidatedTemplate(request.with_pools(pools), inline)

    def with_values(self, values: Sequence[Bytes]) -> ValidRequest:
        """Return the request with tensor bytes, one array for each inline pool."""
        pools = list(self.request.pools)
        for index, value in zip(self.inline, values, strict=True):
            pools[index] = Memory(value, prot=PROT_READ)
        return self.request.with_pools(tuple(pools))


class ValidatedRequestCache:
    """The validated requests of each prepared model. Thread safe."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._models: WeakKeyDictionary[PreparedModel, dict[_Key, ValidatedTemplate]] = WeakKeyDictionary()

    def validate(
        self, session: Session, prepared: PreparedModel, message: types_pb2.Request, config: ExecutionConfig
    ) -> ValidRequest:
        """Return the validated request of a message, for `PreparedModel.execute_valid`.

        Raises:
            HalError: a limit; INVALID_ARGUMENT: an unknown handle, or as `PreparedModel.validate_execution`.
        """
        templates = self._models.get(prepared)
        if templates is None:
            templates = self._models.setdefault(prepared, {})
        values = take_values(message)
        key = (message.SerializeToString(), tuple(map(len, values)), config)
        template = templates.get(key)
        if template is not None:
            return template.with_values([np.frombuffer(values[index], np.uint8) for index in template.inline])
        _put_back(message, values)
        valid = prepared.validate_execution(self.decode(session, message), config)
        if len(key[0]) <= MAX_FIXED_BYTES and is_self_contained(message):
            put_bounded(templates, key, ValidatedTemplate.of(valid))
        return valid

    def decode(self, session: Session, message: types_pb2.Request) -> Request:
        """Return the request of a message, checked against the limits only.

        Raises:
            HalError: a limit; INVALID_ARGUMENT: an unknown handle.
        """
        self._limits.require_request(message)
        return wire.to_request(message, lambda pool: read_memory(session, pool))


def take_values(message: types_pb2.Request) -> list[bytes]:
    """Remove the bytes of the inline pools, and return one entry for each pool: b"" for pools of other kinds."""
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


def is_self_contained(message: types_pb2.Request) -> bool:
    """Return whether all pools are inline or returned. The meaning of a handle or a token may change."""
    return all(
        pool.WhichOneof("kind") == "returned" or pool.pool.WhichOneof("memory") == "inline" for pool in message.pools
    )
