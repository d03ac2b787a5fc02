"""Executions like those before: inputs go into a message that is encoded but for them, outputs come out of one.

Only what travels inside of the messages, and is not measured, is known by its form; for the rest there are messages.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from google.protobuf.message import Message

from nnhal.moulds import FORM_BYTES, Holders, Mould, keep
from nnhal.tensors import Ends, Outputs
from nnhal.types import UNMEASURED, AnyArray

M = TypeVar("M", bound=Message)
Arrays = Sequence[AnyArray | None]


class KnownCalls:
    """The messages of executions of one model or burst. Thread safe."""

    def __init__(self) -> None:
        self._moulds: dict[Hashable, Mould | None] = {}

    def encode(self, how: Hashable, arrays: Arrays) -> bytes | None:
        """The message for inputs that have been checked; None where there was none like it before.

        Args:
            how: all that the message says beside shapes and values.
        """
        form, given = _form(how, arrays)
        mould = self._moulds.get(form)
        return None if mould is None else mould.fill(given)

    def learn(self, how: Hashable, arrays: Arrays, message: M, holders: Holders[M]) -> None:
        """Keeps the form of a message that carries all of these inputs."""
        form, _ = _form(how, arrays)
        if form not in self._moulds:
            keep(self._moulds, form, Mould.of(message, holders))


def _form(how: Hashable, arrays: Arrays) -> tuple[Hashable, list[AnyArray]]:
    """What a message is known by, and the inputs that are given."""
    form, given = [how], []
    for array in arrays:
        if array is None:
            form.append(None)
        else:
            form.append(array.shape)
            given.append(array)
    return tuple(form), given


class _Answer(NamedTuple):
    mould: Mould
    forms: list[tuple[tuple[int, ...], np.dtype[np.generic]]]


class KnownAnswers:
    """The answers to executions of one model. Thread safe."""

    def __init__(self, ends: Ends) -> None:
        self._names = ends.output_names
        self._known: dict[int, _Answer] = {}

    def outputs(self, encoded: bytes) -> Outputs | None:
        """The outputs in an answer, copied; None where there was none like it before."""
        known = self._known.get(len(encoded))
        if known is None or not known.mould.fits(encoded):
            return None
        arrays: list[AnyArray] = [
            np.ndarray(shape, dtype, encoded, start).copy()
            for (start, _), (shape, dtype) in zip(known.mould.places, known.forms, strict=True)
        ]
        return Outputs.of(arrays, self._names, UNMEASURED)

    def learn(self, encoded: bytes, message: M, returned: Holders[M], outputs: Outputs) -> None:
        """Keeps the form of an answer with these outputs; `returned`: finds the messages that have them."""
        if outputs.timing != UNMEASURED or len(encoded) - sum(array.nbytes for array in outputs) > FORM_BYTES:
            return
        mould = Mould.of(message, returned)
        if mould is not None and mould.fits(encoded) and len(mould.places) == len(outputs):
            keep(self._known, len(encoded), _Answer(mould, [(array.shape, array.dtype) for array in outputs]))
