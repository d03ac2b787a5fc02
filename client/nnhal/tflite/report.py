"""Report of an import: what became of each operator, and why."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from nnhal.tflite.graph import Operator


class Outcome(StrEnum):
    """Outcome of the import of an operator."""

    DIRECT = "direct"
    COMPOSED = "composed"
    FOLDED = "folded"
    UNREAD = "unread"
    STATE = "state"
    EXTENSION = "extension"
    REFUSED = "refused"


EXPLANATIONS = {
    Outcome.DIRECT: "one NNAPI operation",
    Outcome.COMPOSED: "several NNAPI operations with the same result",
    Outcome.FOLDED: "evaluated at import: its inputs are constants",
    Outcome.UNREAD: "removed: nothing reads its result",
    Outcome.STATE: "an input and an output of the model that hold a variable",
    Outcome.EXTENSION: "runs in LiteRT, through the vendor extension org.nnhal.litert",
    Outcome.REFUSED: "cannot be imported",
}


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """Report on one operator.

    Attributes:
        operator: the operator.
        outcome: what became of it.
        operations: names of the NNAPI operations of a direct or composed operator.
        reason: why NNAPI has no counterpart, for operators that are in the extension or refused.
    """

    operator: Operator
    outcome: Outcome
    operations: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """Report on the operators of a file's main subgraph.

    Attributes:
        operators: one report per operator, in the order of the file.
        regions: number of regions of the LiteRT extension.
    """

    operators: Sequence[OperatorReport]
    regions: int = 0

    @property
    def totals(self) -> dict[Outcome, int]:
        """Number of operators by outcome, without outcomes that do not occur."""
        counts = Counter(report.outcome for report in self.operators)
        return {outcome: counts[outcome] for outcome in Outcome if counts[outcome]}

    def refusals(self) -> list[str]:
        """Return one line for each refused operator."""
        refused = (report for report in self.operators if report.outcome == Outcome.REFUSED)
        return [f"{report.operator}: {report.reason}" for report in refused]
