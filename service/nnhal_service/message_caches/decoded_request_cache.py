"""Cache of decoded messages: a message that differs from an earlier one only in inline tensor bytes is not decoded.

The cache key is all other bytes of the message (`nnhal.message_template`). So the message names the same session and
the same object, which are looked up for each call. A request that was valid is valid again
(`nnhal_service.message_caches.validated_request_cache`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from google.protobuf.message import DecodeError, Message

from nnhal.errors import invalid_argument
from nnhal.message_template import MAX_FIXED_BYTES, MessageTemplate, inline_memories, put_bounded
from nnhal.types import ExecutionConfig
from nnhal.v1 import types_pb2
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_driver.execution.request_binding import ValidRequest
from nnhal_service.message_caches.validated_request_cache import (
    ValidatedRequestCache,
    ValidatedTemplate,
    is_self_contained,
    take_values,
)
from nnhal_service.sessions.session import Session

_HEAD_BYTES = 48
"""Bytes at the start of a message that contain session and handle, and so differ between clients."""

M = TypeVar("M", bound=Message)
C = TypeVar("C")
_Key = tuple[int, bytes]
"""Length of a message, and its first bytes. Few messages share a key; `MessageTemplate.matches` compares the rest."""


@dataclass(frozen=True, eq=False)
class _CachedMessage(Generic[C]):
    """A valid message without its tensor bytes."""

    template: MessageTemplate
    call: C
    request: ValidatedTemplate


class _ModelEntries(Generic[C]):
    """The cached messages about one prepared model.

    Attributes:
        cached: messages that arrived at least twice.
        seen: messages that arrived once, without their tensor bytes.
    """

    def __init__(self) -> None:
        self.cached: dict[_Key, _CachedMessage[C]] = {}
        self.seen: dict[_Key, bytes] = {}


class ReceivedMessage(NamedTuple, Generic[M, C]):
    """A message of a client.

    Attributes:
        call: description of the message, without tensor bytes.
        message: the decoded message; None on a cache hit.
        cached: the cache entry; None on a cache miss.
    """

    call: C
    encoded: bytes
    message: M | None
    cached: _CachedMessage[C] | None


class DecodedRequestCache(Generic[M, C]):
    """Decodes the messages of one method, which all name their session and their object. Thread safe.

    Args:
        requests: validates the requests of messages that are not in the cache.
        message_type: type of the messages.
        get_request: returns the execution request in a message.
        describe: returns the call that a message describes, without tensor bytes.
    """

    def __init__(
        self,
        requests: ValidatedRequestCache,
        message_type: type[M],
        get_request: Callable[[M], types_pb2.Request],
        describe: Callable[[M], C],
    ) -> None:
        self._requests = requests
        self._message_type = message_type
        self._get_request = get_request
        self._describe = describe
        self._models: WeakKeyDictionary[PreparedModel, _ModelEntries[C]] = WeakKeyDictionary()
        # entries are owned by `_models`, so they are freed with their model
        self._cached: WeakValueDictionary[_Key, _CachedMessage[C]] = WeakValueDictionary()

    def decode(self, encoded: bytes) -> ReceivedMessage[M, C]:
        """Decode a message.

        Raises:
            HalError: INVALID_ARGUMENT: the bytes are not a message of this type.
        """
        cached = self._cached.get((len(encoded), encoded[:_HEAD_BYTES]))
        if cached is not None and cached.template.matches(encoded):
            return ReceivedMessage(cached.call, encoded, None, cached)
        message = self._parse(encoded)
        return ReceivedMessage(self._describe(message), encoded, message, None)

    def validate(
        self, session: Session, prepared: PreparedModel, received: ReceivedMessage[M, C], config: ExecutionConfig
    ) -> ValidRequest:
        """Return the validated request of a message, for `PreparedModel.execute_valid`.

        The tensor bytes are removed from the message.

        Args:
            session: the session that the message names.
            prepared: the prepared model that the message names.
            received: the message.
            config: the configuration in the message.

        Raises:
            HalError: a limit; INVALID_ARGUMENT: an unknown handle, or as `PreparedModel.validate`.
        """
        _, encoded, message, cached = received
        if cached is not None:
            spans = cached.template.spans
            values = [np.frombuffer(encoded, np.uint8, end - start, start) for start, end in spans]
            return cached.request.with_values(values)
        assert message is not None, "a message that is not cached has been decoded"
        valid = self._requests.validate(session, prepared, self._get_request(message), config)
        self._add(prepared, encoded, message, valid)
        return valid

    def _add(self, prepared: PreparedModel, encoded: bytes, message: M, valid: ValidRequest) -> None:
        """Cache a valid message when it arrives for the second time. A message with a deadline is never repeated."""
        request = self._get_request(message)
        if not is_self_contained(request):
            return
        take_values(request)
        key, fixed = (len(encoded), encoded[:_HEAD_BYTES]), message.SerializeToString()
        if len(fixed) > MAX_FIXED_BYTES:
            return
        entries = self._models.get(prepared) or self._models.setdefault(prepared, _ModelEntries())
        if entries.seen.get(key) != fixed:
            put_bounded(entries.seen, key, fixed)
            return
        template = MessageTemplate.of(self._parse(encoded), lambda parsed: inline_memories(self._get_request(parsed)))
        if template is not None and template.matches(encoded):  # other encoders may write fields in another order
            # a message keeps the memory of removed values, so the call is described from a new one
            call = self._describe(self._parse(fixed))
            cached = self._cached[key] = _CachedMessage(template, call, ValidatedTemplate.of(valid))
            put_bounded(entries.cached, key, cached)

    def _parse(self, encoded: bytes) -> M:
        message = self._message_type()
        try:
            message.ParseFromString(encoded)
        except DecodeError as error:
            raise invalid_argument(f"the request cannot be decoded: {error}") from None
        return message
