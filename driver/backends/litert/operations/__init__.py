"""Converters of the operations, one module per family, named as in `driver.operations`; registered by decorator."""

import importlib
import pkgutil

from driver.backends.litert.lowering import CONVERTERS

__all__ = ["CONVERTERS"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
