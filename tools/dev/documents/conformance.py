"""Tables of the ids of all conformance checks in docs/conformance.md."""

from pathlib import Path

from nnhal_tools.conformance.ids import GROUPS
from tools.dev.documents.markdown import Documents, table, with_generated


def generate() -> Documents:
    """Return the document with a table for each group of ids."""
    parts = []
    for name, group in GROUPS.items():
        suite = f" (suite `{group['suite']}`)" if "suite" in group else ""
        parts.append(f"### {name}: {group['title']}{suite}\n\n{table(['ID', 'Requirement'], group['checks'].items())}")
    return with_generated(Path("docs/conformance.md"), "\n".join(parts))
