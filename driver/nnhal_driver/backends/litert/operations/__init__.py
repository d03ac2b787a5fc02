"""Converters of the operations to TFLite: one module per family, named as in `nnhal_driver.operations`.

Converters register themselves by decorator. Importing this package registers every family.
"""

import importlib
import pkgutil

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
