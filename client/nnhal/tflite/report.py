"""Report of an import: what became of each operator, and why."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from nnhal.tflite.graph import Operator, TfliteGraph


class ImportOutcome(StrEnum):
    """ImportOutcome of the import of an operator."""

    DIRECT = "direct"
    COMPOSED = "composed"
    FOLDED = "folded"
    UNREAD = "unread"
    STATE = "state"
    EXTENSION = "extension"
    REFUSED = "refused"


EXPLANATIONS = {
    ImportOutcome.DIRECT: "one NNAPI operation",
    ImportOutcome.COMPOSED: "several NNAPI operations with the same result",
    ImportOutcome.FOLDED: "evaluated at import: its inputs are constants",
    ImportOutcome.UNREAD: "removed: nothing reads its result",
    ImportOutcome.STATE: "an input and an output of the model that hold a variable",
    ImportOutcome.EXTENSION: "runs in LiteRT, through the vendor extension org.nnhal.litert",
    ImportOutcome.REFUSED: "cannot be imported",
}


@dataclass(frozen=True, slots=True)
class OperatorReport:
    """Report on one operator.

    Attributes:
        operations: names of the NNAPI operations of a direct or composed operator.
        reason: why NNAPI has no counterpart, for operators that are in the extension or refused.
    """

    operator: Operator
    outcome: ImportOutcome
    operations: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ImportReport:
    """Report on the operators of a file's main subgraph.

    Attributes:
        operators: one report per operator, in the order of the file, and then those that the import adds.
        graph: the subgraph after folding. Its tensors have the indexes of the file.
        regions: number of regions of the LiteRT extension.
        problem: why the file cannot be imported even if no operator is refused, or "".
    """

    operators: Sequence[OperatorReport]
    graph: TfliteGraph
    regions: int = 0
    problem: str = ""

    @property
    def totals(self) -> dict[ImportOutcome, int]:
        """Number of operators by outcome, without outcomes that do not occur."""
        counts = Counter(report.outcome for report in self.operators)
        return {outcome: counts[outcome] for outcome in ImportOutcome if counts[outcome]}

    def refusals(self) -> list[str]:
        """Return why the file cannot be imported: one line for the file itself, and one for each refused operator."""
        refused = (report for report in self.operators if report.outcome == ImportOutcome.REFUSED)
        return [self.problem] * bool(self.problem) + [f"{report.operator}: {report.reason}" for report in refused]
