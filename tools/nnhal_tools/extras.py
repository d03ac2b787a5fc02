"""Extras of the package: the one to install when an import fails."""

_EXTRAS = {
    "PIL": "cli",
    "ai_edge_litert": "server",
    "grpc_health": "server",
    "grpc_reflection": "server",
    "jinja2": "cli",
    "psutil": "cli",
    "pydantic": "server",
    "ray": "fleet",
    "rich": "cli",
}
"""Extra that a command needs, by the top-level package that is missing. `fleet` has `cli`, which has the others."""


def missing_extra(error: ImportError) -> str:
    """Return the extra to install after an import has failed; "" if no extra has the package."""
    return _EXTRAS.get((error.name or "").partition(".")[0], "")


def missing_extra_text(extra: str) -> str:
    """Return the error message for a command whose packages are not installed."""
    return f"this command needs more packages: pip install 'nnhal[{extra}]'"
