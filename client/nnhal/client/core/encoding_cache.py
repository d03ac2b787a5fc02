"""Fast path for repeated executions: reuse the cached encodings of requests and responses.

Only values that travel inside the messages, and executions that are not measured, are cached.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from google.protobuf.message import Message

from nnhal.client.core.arrays import ModelIO, Outputs
from nnhal.message_template import MAX_FIXED_BYTES, FindValueFields, MessageTemplate, put_bounded
from nnhal.types import UNMEASURED, AnyArray

M = TypeVar("M", bound=Message)
Arrays = Sequence[AnyArray | None]


class RequestEncodingCache:
    """Encoded requests of one model or burst, without their values. Thread safe."""

    def __init__(self) -> None:
        self._templates: dict[Hashable, MessageTemplate | None] = {}

    def encode(self, options: Hashable, arrays: Arrays) -> bytes | None:
        """Return the encoded message for some inputs, or None on a cache miss.

        Args:
            options: everything in the message except shapes and values.
            arrays: the checked inputs.
        """
        key, values = _key_and_values(options, arrays)
        template = self._templates.get(key)
        return None if template is None else template.fill(values)

    def add(self, options: Hashable, arrays: Arrays, message: M, find_fields: FindValueFields[M]) -> None:
        """Cache the encoding of a message that carries all of these inputs."""
        key, _ = _key_and_values(options, arrays)
        if key not in self._templates:
            put_bounded(self._templates, key, MessageTemplate.of(message, find_fields))


def _key_and_values(options: Hashable, arrays: Arrays) -> tuple[Hashable, list[AnyArray]]:
    """Return the cache key of a message, and the inputs that are present."""
    key, values = [options], []
    for array in arrays:
        if array is None:
            key.append(None)
        else:
            key.append(array.shape)
            values.append(array)
    return tuple(key), values


class _CachedResponse(NamedTuple):
    template: MessageTemplate
    shapes: list[tuple[tuple[int, ...], np.dtype[np.generic]]]


class ResponseDecodingCache:
    """Encoded responses to executions of one model, without their values. Thread safe."""

    def __init__(self, io: ModelIO) -> None:
        self._names = io.output_names
        self._entries: dict[int, _CachedResponse] = {}

    def decode(self, encoded: bytes) -> Outputs | None:
        """Return copies of the outputs in a response, or None on a cache miss."""
        entry = self._entries.get(len(encoded))
        if entry is None or not entry.template.matches(encoded):
            return None
        arrays: list[AnyArray] = [
            np.ndarray(shape, dtype, encoded, start).copy()
            for (start, _), (shape, dtype) in zip(entry.template.spans, entry.shapes, strict=True)
        ]
        return Outputs.of(arrays, self._names, UNMEASURED)

    def add(self, encoded: bytes, message: M, find_fields: FindValueFields[M], outputs: Outputs) -> None:
        """Cache the encoding of a response.

        Args:
            encoded: the encoded response.
            message: the decoded response.
            find_fields: finds the messages that hold the outputs.
            outputs: the decoded outputs.
        """
        if outputs.timing != UNMEASURED or len(encoded) - sum(array.nbytes for array in outputs) > MAX_FIXED_BYTES:
            return
        template = MessageTemplate.of(message, find_fields)
        if template is not None and template.matches(encoded) and len(template.spans) == len(outputs):
            shapes = [(array.shape, array.dtype) for array in outputs]
            put_bounded(self._entries, len(encoded), _CachedResponse(template, shapes))
