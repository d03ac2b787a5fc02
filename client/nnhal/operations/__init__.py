"""Signatures of the HAL's operations, as tables: one module per family.

`SIGNATURES[type]` holds the `[validation]` constraints of the operation files. The model builder and the driver's
validation use them. Importing this package registers every family. A new operation goes into the module of its family.
"""

import importlib
import pkgutil

from nnhal.operations.signature import SIGNATURES, Arguments, Signature

__all__ = ["SIGNATURES", "Arguments", "Signature"]

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
