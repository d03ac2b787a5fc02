"""Answers like one that was sent before: where only the bytes of the outputs differ, no message is made again."""

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from google.protobuf.message import Message

from driver.prepared_model import PreparedModel
from nnhal import wire
from nnhal.moulds import FORM_BYTES, Mould, keep
from nnhal.types import UNMEASURED, ExecutionResult, OutputShape
from nnhal.v1 import types_pb2
from service.limits import Limits, MemoryQuota
from service.returning import Returning
from service.sessions import Session

M = TypeVar("M", bound=Message)
_Form = tuple[tuple[OutputShape, ...], tuple[int, ...]]


class KnownAnswers(Generic[M]):
    """The answers of one method. Thread safe.

    Args:
        kind: what they are.
        result_of: finds the result in one.
        limits, quota: for outputs that do not travel in the message.
    """

    def __init__(
        self, kind: type[M], result_of: Callable[[M], types_pb2.ExecutionResult], limits: Limits, quota: MemoryQuota
    ) -> None:
        self._kind = kind
        self._result_of = result_of
        self._limits = limits
        self._quota = quota
        self._known: WeakKeyDictionary[PreparedModel, dict[_Form, Mould]] = WeakKeyDictionary()

    def encode(self, result: ExecutionResult, prepared: PreparedModel, session: Session) -> bytes:
        """The bytes of an answer.

        Args:
            prepared: whose result it is.
            session: owns the outputs that do not travel in it.

        Raises:
            HalError: RESOURCE_EXHAUSTED_TRANSIENT: an output needs a Memory object, and there is no room for it.
        """
        outputs = [data for data in result.returned if data is not None]
        if result.timing is not UNMEASURED or result.spans:
            return self._message(result, session).SerializeToString()
        form = (result.output_shapes, tuple([data.size for data in outputs]))
        known = self._known.get(prepared)
        if known is None:
            known = self._known.setdefault(prepared, {})
        mould = known.get(form)
        if mould is not None:
            return mould.fill(outputs)
        message = self._message(result, session)
        self._learn(known, form, message)
        return message.SerializeToString()

    def _message(self, result: ExecutionResult, session: Session) -> M:
        message = self._kind()
        returning = Returning(session, self._limits["inline_bytes"], self._quota)
        wire.fill_result(self._result_of(message), result, returning)
        return message

    def _learn(self, known: dict[_Form, Mould], form: _Form, message: M) -> None:
        # None where an output is empty, or does not travel in the message
        mould = Mould.of(message, lambda one: self._result_of(one).returned)
        if mould is None or mould.size - sum(form[1]) > FORM_BYTES:
            return
        keep(known, form, mould)
