"""Shape rules of the operations, one module per family, named as in `nnhal.operations`; registered by decorator."""

import importlib
import pkgutil

from driver.operations.shape import SHAPE_RULES, infer

__all__ = ["SHAPE_RULES", "infer"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
