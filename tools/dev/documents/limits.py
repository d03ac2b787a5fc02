"""Limits on what clients may use, from their table: docs/limits.md."""

from pathlib import Path

from nnhal_service.sessions.limits import DERIVED, LIMITS
from tools.dev.documents.markdown import Documents, render


def generate() -> Documents:
    """Return the page."""
    return {Path("docs/limits.md"): render("limits", limits=LIMITS.values(), derived=DERIVED)}
