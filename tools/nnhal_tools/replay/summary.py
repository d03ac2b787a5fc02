"""Summary of a replay by model: outcomes, the first differences, and times beside the recorded ones."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from nnhal.errors import HalError
from nnhal.recording.comparison import Agreement
from nnhal_tools.conformance.check import Result, Status
from nnhal_tools.replay.blame import ReferenceRun, slowest_operation
from nnhal_tools.replay.replayer import Repetition, ReplayedModel
from nnhal_tools.tables import DIGITS

if TYPE_CHECKING:
    from nnhal.client import Device

QUANTILES = (0.5, 0.9, 0.99)
SUITE = "replay"
_STATUSES = {
    Agreement.EQUAL: Status.PASSED,
    Agreement.WITHIN: Status.PASSED,
    Agreement.DIFFERENT: Status.FAILED,
    Agreement.FAILED: Status.FAILED,
    Agreement.SKIPPED: Status.SKIPPED,
}


@dataclass
class ModelSummary:
    """Repetitions of one model.

    Attributes:
        digest: of the model.
        operations: number of its operations.
        outcomes: number of repetitions by outcome.
        recorded_us, replayed_us: the durations of the repetitions that succeeded, recorded and now.
        sample: the first repetition that succeeded.
        worst: the repetition with the largest difference outside of the tolerance.
        blame: the operation to blame, in words; "" if it is not known.
        blamed: its name and backend.
        slowest: the operation that is slower than on the reference by most; "" if the model is not slower.
    """

    digest: str
    operations: int = 0
    outcomes: Counter[Agreement] = field(default_factory=Counter)
    recorded_us: list[float] = field(default_factory=list)
    replayed_us: list[float] = field(default_factory=list)
    sample: Repetition | None = None
    worst: Repetition | None = None
    blame: str = ""
    blamed: tuple[str, str] | None = None
    slowest: str = ""

    def add(self, repetition: Repetition) -> None:
        """Count a repetition."""
        self.outcomes[repetition.outcome] += 1
        if repetition.duration_ns:
            self.sample = self.sample or repetition
            self.recorded_us.append(repetition.record.duration_ns / 1e3)
            self.replayed_us.append(repetition.duration_ns / 1e3)
        if repetition.outcome is Agreement.DIFFERENT and (self.worst is None or _size(repetition) > _size(self.worst)):
            self.worst = repetition

    @property
    def is_different(self) -> bool:
        """True if a repetition differs or failed."""
        return bool(self.outcomes[Agreement.DIFFERENT] or self.outcomes[Agreement.FAILED])

    @property
    def slowdown(self) -> float:
        """Median duration, as a multiple of the recorded one; 1 if nothing was measured."""
        return float(np.median(self.replayed_us) / np.median(self.recorded_us)) if self.recorded_us else 1.0

    def quantiles(self) -> tuple[list[float], list[float]]:
        """Return the quantiles of the recorded durations, and of those of now; [] without measurements."""
        recorded, replayed = (
            np.quantile(each, QUANTILES).tolist() if each else [] for each in (self.recorded_us, self.replayed_us)
        )
        return recorded, replayed

    def to_json(self) -> Mapping[str, Any]:
        """Return the summary as plain values."""
        recorded, replayed = self.quantiles()
        return {
            "model": self.digest,
            "operations": self.operations,
            "outcomes": {outcome.value: self.outcomes[outcome] for outcome in Agreement},
            "quantiles": QUANTILES,
            "recorded_us": recorded,
            "replayed_us": replayed,
            "slowdown": self.slowdown,
            "blame": self.blame,
            "slowest": self.slowest,
        }


def _size(repetition: Repetition) -> float:
    return max(each.measured.maximum for each in repetition.differences if not each.is_allowed)


def summarize(repetitions: Iterable[Repetition], models: Mapping[str, ReplayedModel]) -> dict[str, ModelSummary]:
    """Return the summaries by digest."""
    summaries = {digest: ModelSummary(digest, len(model.operations)) for digest, model in models.items()}
    for repetition in repetitions:
        summaries[repetition.record.model].add(repetition)
    return summaries


def explain(summary: ModelSummary, model: ReplayedModel, device: "Device", reference: "Device", slow: float) -> None:
    """Find the operations to blame for the worst difference, and for a median that is `slow` times the recorded one."""
    if model.model is None:
        return
    try:
        if summary.worst is not None:
            inputs = summary.worst.record.values()[0]
            blame = ReferenceRun(reference, model.model, inputs).first_difference(device)
            summary.blame = str(blame) if blame else "no operation differs from the reference when it runs alone"
            summary.blamed = (blame.name, blame.backend) if blame else None
        if summary.slowdown > slow and summary.sample is not None:
            summary.slowest = slowest_operation(device, reference, model.model, summary.sample.record.values()[0])
    except HalError as error:
        summary.blame = summary.blame or f"not known: {error}"


def results(
    repetitions: Iterable[Repetition], models: Mapping[str, ReplayedModel], summaries: Mapping[str, ModelSummary]
) -> Iterator[Result]:
    """Yield the repetitions as results for the reports of the conformance harness."""
    for each in repetitions:
        digest = each.record.model
        summary = summaries[digest]
        is_different = each.outcome is Agreement.DIFFERENT
        result = Result(
            name=f"{digest[:DIGITS]} {each.record.name}",
            suite=SUITE,
            path=each.record.path,
            status=_STATUSES[each.outcome],
            reason=each.reason or each.outcome.value,
            check=each.outcome.value,
            seconds=each.duration_ns / 1e9,
            operations=[summary.blamed] if is_different and summary.blamed else models[digest].operations,
        )
        wrong = next((difference for difference in each.differences if not difference.is_allowed), None)
        if wrong is not None:
            result.stimulus = f"output {wrong.output}"
            result.expected, result.got = wrong.expected, wrong.got
            at = f"; {summary.blame}" if summary.blame else ""
            result.reason = f"output {wrong.output}: expected {wrong.expected}, got {wrong.got}{at}"
        yield result
