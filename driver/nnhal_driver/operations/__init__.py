"""Shape rules of the operations: one module per family, named as in `nnhal.operations`.

Rules register themselves by decorator. Importing this package registers every family.
"""

import importlib
import pkgutil

from nnhal_driver.operations.shape import SHAPE_RULES, infer

__all__ = ["SHAPE_RULES", "infer"]

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
