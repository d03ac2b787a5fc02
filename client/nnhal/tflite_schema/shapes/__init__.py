"""Rules that infer the shapes of outputs of TFLite operators, one module per family. The import registers all of them.

The shapes of a file are only those of its converter's example. LiteRT computes them again, and so does the importer:
they differ where a shape depends on computed values, or on a shape that the caller chooses. A region of the LiteRT
extension must declare the shapes that LiteRT computes. To add an operator, add a function, or a row of a table, to the
module of its family.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
