"""Signatures of the HAL's operations, one module per family, as tables; for the model builder and the validation.

`SIGNATURES[type]` holds the `[validation]` constraints of the operation files. Importing this package registers every
family; adding an operation means adding to a family's module, nothing else.
"""

import importlib
import pkgutil

from nnhal.operations.signature import SIGNATURES, Arguments, Signature

__all__ = ["SIGNATURES", "Arguments", "Signature"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
