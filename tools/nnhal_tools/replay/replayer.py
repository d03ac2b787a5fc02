"""Repetition of recorded executions on a device, and their comparison with the recorded outputs."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from nnhal.errors import HalError
from nnhal.recording.archive import Archive, Record
from nnhal.recording.comparison import Agreement, OutputDifference, agreement_of, compare_outputs
from nnhal.recording.members import RecordingError
from nnhal.types import AnyArray, Model, operation_name

if TYPE_CHECKING:
    from nnhal.client import Device, PreparedModel


@dataclass(frozen=True)
class Repetition:
    """A repeated execution.

    Attributes:
        duration_ns: from the call of the client to its result; 0 if it failed.
        differences: the outputs that are not equal.
        reason: why it failed or was skipped.
    """

    record: Record
    outcome: Agreement
    duration_ns: int = 0
    differences: Sequence[OutputDifference] = ()
    reason: str = ""


@dataclass
class ReplayedModel:
    """A model of the archive on the device. `problem`: why it is not there."""

    model: Model | None = None
    prepared: "PreparedModel | None" = None
    problem: str = ""
    operations: list[tuple[str, str]] = field(default_factory=list)


class Replayer:
    """Repetition of records on a device. Use it as a context manager: it prepares the models first.

    Args:
        records: the records to repeat, in the order of their executions.
        keeps_spacing: begin each execution as long after the first one as it was recorded; else as soon as possible.
        clients: number of executions at once, at most.

    Attributes:
        models: the models by digest.
    """

    def __init__(
        self, device: "Device", archive: Archive, records: Sequence[Record], *, keeps_spacing: bool, clients: int
    ) -> None:
        self._device = device
        self._archive = archive
        self.records = records
        self._keeps_spacing = keeps_spacing
        self._clients = clients
        self.models: dict[str, ReplayedModel] = {}

    def __enter__(self) -> "Replayer":
        self._stack = ExitStack()
        for record in self.records:
            if record.model not in self.models:
                self.models[record.model] = self._prepare(record)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _prepare(self, record: Record) -> ReplayedModel:
        """Prepare the model of a record, and run it once: the first execution takes longer."""
        found = ReplayedModel()
        try:
            found.model = self._archive.model(record.model)
            prepared = self._device.prepare(found.model).result()
            found.prepared = self._stack.enter_context(prepared)
            placed, names = prepared.placement.operations, found.model.extension_names
            found.operations = [(operation_name(each.type, names), each.backend) for each in placed]
            if record.has_values:
                prepared.execute(record.values()[0])
        except (HalError, RecordingError) as error:
            found.problem = str(error)
        return found

    def run(self) -> Iterator[Repetition]:
        """Yield the repetitions in the order of the records."""
        if not self.records:
            return
        began, first = time.monotonic(), self.records[0].started

        def repeat(record: Record) -> Repetition:
            if self._keeps_spacing:
                time.sleep(max(0.0, record.started - first - (time.monotonic() - began)))
            return self._repeat(record)

        with ThreadPoolExecutor(self._clients) as threads:
            yield from threads.map(repeat, self.records)

    def _repeat(self, record: Record) -> Repetition:
        found = self.models[record.model]
        if record.status != "ok":
            return Repetition(record, Agreement.SKIPPED, reason=f"it was recorded with the status {record.status}")
        if not record.has_values:
            return Repetition(record, Agreement.SKIPPED, reason="it was recorded without values")
        if found.model is None or found.prepared is None:
            return Repetition(record, Agreement.FAILED, reason=found.problem)
        try:
            inputs, expected = record.values()
            before = time.perf_counter_ns()
            actual = found.prepared.execute(inputs)
            duration_ns = time.perf_counter_ns() - before
        except (HalError, RecordingError) as error:
            return Repetition(record, Agreement.FAILED, reason=str(error))
        outputs: list[AnyArray] = [np.asarray(value) for value in actual]
        differences = list(compare_outputs(found.model, found.model.main.output_indexes, outputs, expected))
        return Repetition(record, agreement_of(differences), duration_ns, differences)
