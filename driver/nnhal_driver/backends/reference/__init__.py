"""CpuRef, the reference backend in plain numpy.

Its kernels are in one module per family, named as in `nnhal_driver.operations`. They register themselves by decorator.
"""

import importlib
import pkgutil

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
