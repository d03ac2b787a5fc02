"""Cache of encoded responses: a repeated execution fills only its output bytes into the encoding of the last one."""

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from google.protobuf.message import Message

from nnhal import wire
from nnhal.message_template import MAX_FIXED_BYTES, MessageTemplate, put_bounded
from nnhal.types import UNMEASURED, ExecutionResult, OutputShape
from nnhal.v1 import types_pb2
from nnhal_driver.execution.prepared_model import PreparedModel
from nnhal_service.sessions.limits import Limits
from nnhal_service.sessions.memory_quota import MemoryQuota
from nnhal_service.sessions.output_writer import OutputWriter
from nnhal_service.sessions.session import Session

M = TypeVar("M", bound=Message)
_Key = tuple[tuple[OutputShape, ...], tuple[int, ...]]
"""Shapes of the outputs, and sizes in bytes of the returned ones."""


class ResponseTemplateCache(Generic[M]):
    """Encodes the responses of one method. Thread safe.

    Args:
        message_type: type of the responses.
        get_result: returns the execution result in a response.
        limits: limits on the bytes of outputs in a response.
        quota: memory quota for outputs that become Memory objects.
    """

    def __init__(
        self,
        message_type: type[M],
        get_result: Callable[[M], types_pb2.ExecutionResult],
        limits: Limits,
        quota: MemoryQuota,
    ) -> None:
        self._message_type = message_type
        self._get_result = get_result
        self._limits = limits
        self._quota = quota
        self._models: WeakKeyDictionary[PreparedModel, dict[_Key, MessageTemplate]] = WeakKeyDictionary()

    def encode(self, result: ExecutionResult, prepared: PreparedModel, session: Session) -> bytes:
        """Return an encoded response.

        Args:
            result: the result to encode.
            prepared: the model that was executed.
            session: owner of the Memory objects for outputs that do not fit into the response.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT: limit memory_bytes or objects.
        """
        outputs = [data for data in result.returned if data is not None]
        if result.timing is not UNMEASURED or result.spans:
            return self._build(result, session).SerializeToString()
        key = (result.output_shapes, tuple([data.size for data in outputs]))
        templates = self._models.get(prepared)
        if templates is None:
            templates = self._models.setdefault(prepared, {})
        template = templates.get(key)
        if template is not None:
            return template.fill(outputs)
        message = self._build(result, session)
        self._add(templates, key, message)
        return message.SerializeToString()

    def _build(self, result: ExecutionResult, session: Session) -> M:
        message = self._message_type()
        writer = OutputWriter(session, self._limits["inline_bytes"], self._quota)
        wire.fill_result(self._get_result(message), result, writer)
        return message

    def _add(self, templates: dict[_Key, MessageTemplate], key: _Key, message: M) -> None:
        # there is no template if an output is empty or became a Memory object
        template = MessageTemplate.of(message, lambda response: self._get_result(response).returned)
        if template is not None and template.size - sum(key[1]) <= MAX_FIXED_BYTES:
            put_bounded(templates, key, template)
