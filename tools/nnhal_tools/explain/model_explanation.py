"""Everything known about a file: its import and, if it can be imported and a device responds, its placement."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnhal.tflite.report import ImportOutcome
from nnhal_tools.explain.explanation import Explanation
from nnhal_tools.explain.imported import ImportedFile
from nnhal_tools.tables import counted


@dataclass(frozen=True)
class ModelExplanation:
    """An import with its placement.

    Attributes:
        missing: why there is no placement, or why it has no times, or "".
    """

    imported: ImportedFile
    placed: Explanation | None
    missing: str = ""

    @property
    def is_complete(self) -> bool:
        """True if every operation has a backend."""
        return self.placed is not None and self.placed.is_complete

    @property
    def fallback_operators(self) -> int:
        """Number of operators of the file that the client's machine runs."""
        rows = self.placed.operations if self.placed else []
        return sum(any(rows[i]["is_fallback"] for i in row["operations"]) for row in self.imported.operators if rows)

    def as_json(self) -> dict[str, Any]:
        """Return the import, the placement, and why it is missing."""
        placed = self.placed.as_json() if self.placed else {"partitions": [], "operations": [], "fallback": None}
        totals = placed.pop("totals", {"operations": 0, "backends": {}, "fallback": 0})
        return {
            "totals": {
                "operators": len(self.imported.operators),
                "outcomes": self.imported.totals,
                "regions": self.imported.regions,
                "operations": totals["operations"],
                "backends": totals["backends"],
                "fallback_operators": self.fallback_operators,
                "fallback_operations": totals["fallback"],
            },
            "missing": self.missing,
            "import": self.imported.as_json(),
            **placed,
        }

    def summary(self) -> list[str]:
        """Return the totals as lines."""
        imported, placed = self.imported, self.placed
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in imported.totals.items())
        regions = f" in {counted(imported.regions, 'region')}" if imported.regions else ""
        lines = [f"{counted(len(imported.operators), 'operator')}: {outcomes or 'none'}{regions}"]
        if imported.problem:
            lines.append(f"cannot be imported: {imported.problem}")
        if placed is None:
            return [*lines, f"no placement: {self.missing}"]
        backends = ", ".join(f"{count} {backend}" for backend, count in placed.backends.items())
        partitions = counted(len(placed.partitions), "partition")
        lines.append(f"{counted(len(placed.operations), 'operation')} in {partitions}: {backends}")
        if placed.fallback is not None:
            lines.append(
                f"{counted(self.fallback_operators, 'operator')} on this machine: {placed.fallback['summary']}"
            )
        return [*lines, f"no times: {self.missing}"] if self.missing else lines


def become_text(row: Mapping[str, Any]) -> str:
    """Return the operations that an operator became: "MUL, ADD (operations 3, 4)", "region (operation 5)" or ""."""
    if row["outcome"] == ImportOutcome.EXTENSION:
        return "region" + _operations_text(row["operations"])
    return _repeated(row["types"]) + _operations_text(row["operations"])


def _operations_text(operations: Sequence[int]) -> str:
    return f" (operation{'s' * (len(operations) > 1)} {', '.join(map(str, operations))})" if operations else ""


def _repeated(types: Sequence[str]) -> str:
    """Return names in their first order, with counts: "2 MUL, ADD"."""
    return ", ".join(name if count == 1 else f"{count} {name}" for name, count in Counter(types).items())
