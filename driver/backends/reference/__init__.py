"""CpuRef: plain numpy, the oracle. Kernels stand in one module per family, named as in `driver.operations`."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
