"""Evaluators of TFLite operators on constants, one module per family. The import of this package registers all of them.

Only exact evaluations are registered: movements of elements, conversions, integer and IEEE arithmetic. To add an
operator, add a function, or a row of a table, to the module of its family.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
