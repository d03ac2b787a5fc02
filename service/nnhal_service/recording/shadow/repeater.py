"""Second run of executions on the shadow, and its comparison with the first one."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nnhal import wire
from nnhal.errors import MISSED_DEADLINE, DeadObjectError, HalError
from nnhal.lru import LruDict
from nnhal.recording.comparison import Agreement, OutputDifference, agreement_of, compare_outputs
from nnhal.types import AnyArray, Model, Priority
from nnhal.v1 import types_pb2
from nnhal_service.log import RepeatedEvent, event
from nnhal_service.packets import Message
from nnhal_service.recording.archives import Archives

if TYPE_CHECKING:
    from nnhal.client import Device, PreparedModel

TIMEOUT_S = 30.0
"""Seconds that the shadow has for a preparation, and for an execution."""
KEPT = 10
"""Differing executions of a model that are recorded, and logged. Further ones are only counted."""
_MAX_MODELS = 32
_FAILED = RepeatedEvent("shadow-failed")


class ShadowLostError(Exception):
    """The shadow does not answer. The text says why."""


@dataclass
class _ShadowModel:
    """Model on the shadow. `prepared`: None if the shadow cannot prepare it."""

    model: Model
    encoded: bytes
    prepared: "PreparedModel | None" = None
    different: int = 0


class Repeater:
    """Repetition of executions on a device.

    Args:
        count: called with the label of a model and a result.
        archives: where the first differences are recorded; None if the service has no folder for them.
    """

    def __init__(self, device: "Device", count: Callable[[str, str], None], archives: Archives | None) -> None:
        self._device = device
        self._count = count
        self._archives = archives
        self._models: LruDict[str, _ShadowModel] = LruDict(_MAX_MODELS)

    def repeat(self, message: Message, files: Sequence[int]) -> None:
        """Repeat an execution, compare it, and count the result. The files have the model and the values.

        Raises:
            ShadowLostError: the shadow does not answer.
        """
        record, label = message["record"], message["label"]
        values = dict(_read_values(record, files[1]))
        inputs, expected = ([values.get(f"{k}{i}") for i in range(len(record[f"{k}s"]))] for k in ("input", "output"))
        try:
            found = self._prepare(record["model"], files[0])
            if found.prepared is None:
                self._count(label, Agreement.FAILED)
                return
            actual = [np.asarray(value) for value in found.prepared.execute(inputs, deadline=TIMEOUT_S)]
        except HalError as error:
            self._count(label, Agreement.FAILED)
            _FAILED.log(digest=record["model"], why=error.reason)
            _require_answer(error)
            return
        differences = list(compare_outputs(found.model, found.model.main.output_indexes, actual, expected))
        agreement = agreement_of(differences)
        self._count(label, agreement)
        if agreement is Agreement.DIFFERENT:
            found.different += 1
            if found.different <= KEPT:
                self._keep(message, found, values, differences)

    def _prepare(self, digest: str, file: int) -> _ShadowModel:
        """Return a model on the shadow. One that could not be prepared is not tried again while it is known."""
        if digest in self._models:
            return self._models.use(digest)
        encoded = os.pread(file, os.fstat(file).st_size, 0)
        found = _ShadowModel(wire.to_model(types_pb2.Model.FromString(encoded)), encoded)
        try:
            preparation = self._device.prepare(found.model, priority=Priority.LOW, deadline=TIMEOUT_S)
            found.prepared = preparation.result()
        except HalError as error:
            event("shadow-cannot-prepare", logging.WARNING, digest=digest, why=str(error))
            _require_answer(error)
        evicted = self._models.put(digest, found)
        if evicted is not None and evicted[1].prepared is not None:
            evicted[1].prepared.close()
        return found

    def _keep(
        self,
        message: Message,
        found: _ShadowModel,
        values: Mapping[str, AnyArray],
        differences: Sequence[OutputDifference],
    ) -> None:
        """Log an execution that differs, and record it as the client has seen it."""
        worst = max((each for each in differences if not each.is_allowed), key=lambda each: each.measured.maximum)
        difference = f"{worst.measured.maximum:.6g} {worst.measured.unit}"  # no values: they are the client's
        event(
            "shadow-different",
            logging.WARNING,
            digest=message["record"]["model"],
            output=worst.output,
            difference=difference,
        )
        if self._archives is not None and message["may_keep"]:
            with self._archives.tolerating_loss():
                self._archives.write(message["identity"], message["record"], values, lambda: found.encoded)


def _require_answer(error: HalError) -> None:
    """Raise ShadowLostError for an error that does not come from the model."""
    if isinstance(error, DeadObjectError) or error.status in MISSED_DEADLINE:
        raise ShadowLostError(str(error)) from error


def _read_values(record: Mapping[str, Any], file: int) -> Iterator[tuple[str, AnyArray]]:
    """Yield the arrays of an execution by name."""
    offset = 0
    for kind in ("input", "output"):
        for i, described in enumerate(record[f"{kind}s"]):
            if described is not None:
                dtype = np.dtype(described["dtype"])
                size = dtype.itemsize * int(np.prod(described["shape"], dtype=np.int64))
                data = os.pread(file, size, offset)
                yield f"{kind}{i}", np.frombuffer(data, dtype).reshape(described["shape"])
                offset += size
