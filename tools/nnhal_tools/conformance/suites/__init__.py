"""Suites of checks, one module or package each; see `nnhal_tools.conformance.registry`."""

import importlib
import pkgutil


def load() -> None:
    """Import all modules of this package, which registers the checks."""
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        importlib.import_module(module.name)
