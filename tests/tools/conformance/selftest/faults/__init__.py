"""Faults, with one module for each part of a device."""

import importlib
import pkgutil


def load() -> None:
    """Import all modules of this package, which registers the faults."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
