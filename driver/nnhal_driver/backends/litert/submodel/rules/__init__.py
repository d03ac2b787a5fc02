"""Rules for operators: one module per family. Importing this package registers every family."""

import importlib
import pkgutil

from nnhal_driver.backends.litert.submodel.operator_check import RULES

__all__ = ["RULES"]

for _module in pkgutil.iter_modules(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
