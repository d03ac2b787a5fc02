"""Messages like one that came before: where only the bytes of inline pools differ, nothing is decoded again.

A message is known by all of its bytes but those (`nnhal.moulds`). So it names the same session and the same object,
which are looked up each time, and what was found valid is valid again (`service.known_requests`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from google.protobuf.message import DecodeError, Message

from driver.memory import ValidRequest
from driver.prepared_model import PreparedModel
from nnhal.errors import invalid_argument
from nnhal.moulds import FORM_BYTES, Mould, inline_pools, keep
from nnhal.types import ExecutionConfig
from nnhal.v1 import types_pb2
from service.known_requests import Known, KnownRequests, says_all, take_values
from service.sessions import Session

_HEAD_BYTES = 48
"""Session and handle lie in them, so that forms of two clients are told apart by them."""

M = TypeVar("M", bound=Message)
C = TypeVar("C")
_Key = tuple[int, bytes]


@dataclass(frozen=True, eq=False)
class _Form(Generic[C]):
    """A valid message without its values: the call that it is, and its request."""

    mould: Mould
    call: C
    known: Known


class _OfModel(Generic[C]):
    """What is known of the messages about one prepared model. `seen`: what came once, by what it may be known."""

    def __init__(self) -> None:
        self.forms: dict[_Key, _Form[C]] = {}
        self.seen: dict[_Key, bytes] = {}


class Received(NamedTuple, Generic[M, C]):
    """A message that came.

    Attributes:
        call: what it is about; whoever reads it must not look for values there.
        message: itself; None where its form is known.
    """

    call: C
    encoded: bytes
    message: M | None
    form: _Form[C] | None


class KnownMessages(Generic[M, C]):
    """The messages of one method, all of which name their session and their object. Thread safe.

    Args:
        kind: what they are.
        request_of: finds the request in one.
        call_of: works out what one is about, values aside.
    """

    def __init__(
        self,
        requests: KnownRequests,
        kind: type[M],
        request_of: Callable[[M], types_pb2.Request],
        call_of: Callable[[M], C],
    ) -> None:
        self._requests = requests
        self._kind = kind
        self._request_of = request_of
        self._call_of = call_of
        self._models: WeakKeyDictionary[PreparedModel, _OfModel[C]] = WeakKeyDictionary()
        self._forms: WeakValueDictionary[_Key, _Form[C]] = WeakValueDictionary()  # they go with their models

    def decode(self, encoded: bytes) -> Received[M, C]:
        """A message from its bytes.

        Raises:
            HalError: INVALID_ARGUMENT: they are none.
        """
        form = self._forms.get((len(encoded), encoded[:_HEAD_BYTES]))
        if form is not None and form.mould.fits(encoded):
            return Received(form.call, encoded, None, form)
        message = self._decoded(encoded)
        return Received(self._call_of(message), encoded, message, None)

    def read(
        self, session: Session, prepared: PreparedModel, received: Received[M, C], config: ExecutionConfig
    ) -> ValidRequest:
        """The valid request of a message, which loses its values; `PreparedModel.execute_valid` takes it.

        Args:
            session, prepared, config: what the message says.

        Raises:
            HalError: a limit; INVALID_ARGUMENT: an unknown handle, or as `PreparedModel.validate`.
        """
        _, encoded, message, form = received
        if form is not None:
            places = form.mould.places
            return form.known.holding([np.frombuffer(encoded, np.uint8, end - start, start) for start, end in places])
        assert message is not None, "it is there where the form is not"
        valid = self._requests.read(session, prepared, self._request_of(message), config)
        self._learn(prepared, encoded, message, valid)
        return valid

    def _learn(self, prepared: PreparedModel, encoded: bytes, message: M, valid: ValidRequest) -> None:
        """Keeps the form of a valid message when it comes for the second time: one with a deadline comes but once."""
        request = self._request_of(message)
        if not says_all(request):
            return
        take_values(request)
        key, rest = (len(encoded), encoded[:_HEAD_BYTES]), message.SerializeToString()
        if len(rest) > FORM_BYTES:
            return
        of_model = self._models.get(prepared) or self._models.setdefault(prepared, _OfModel())
        if of_model.seen.get(key) != rest:
            keep(of_model.seen, key, rest)
            return
        mould = Mould.of(self._decoded(encoded), lambda one: inline_pools(self._request_of(one)))
        if mould is not None and mould.fits(encoded):  # not every encoder writes the bytes that ours would
            # a message keeps the memory of values that it had: another one
            form = self._forms[key] = _Form(mould, self._call_of(self._decoded(rest)), Known.of(valid))
            keep(of_model.forms, key, form)

    def _decoded(self, encoded: bytes) -> M:
        message = self._kind()
        try:
            message.ParseFromString(encoded)
        except DecodeError as error:
            raise invalid_argument(f"the request cannot be decoded: {error}") from None
        return message
