"""Generators of the corpus, one module per family of operators. The import of this package registers all of them.

To add an operator, write a function with the decorator `@models`. It yields the operators of the models:

    @models("ADD", "SUB")
    def arithmetic(name: str) -> Iterator[Op]:
        for type_ in ("FLOAT32", "INT8"):
            yield Op(name, [tensor(type_, 2, 3), tensor(type_, 3)], [tensor(type_)], options("Add"))

The shapes of outputs are left out: LiteRT determines them.
"""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
