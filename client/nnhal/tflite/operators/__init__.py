"""Converters of TFLite's operators, one module per family. The import of this package registers all of them.

To add an operator, add a function, or a row of a table, to the module of its family.
"""

import importlib
import pkgutil

from nnhal.tflite.call import CONVERTERS

__all__ = ["CONVERTERS"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
