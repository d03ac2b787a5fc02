"""Converters of TFLite's operators, one module per family; importing this package registers them all.

Adding an operator means adding a function, or a row of a table, to its family's module, nothing else.
"""

import importlib
import pkgutil

from nnhal.tflite.call import CONVERTERS

__all__ = ["CONVERTERS"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
