"""Operand types of vendor extensions that a device knows."""

from collections.abc import Iterable, Mapping

from nnhal.types import Extension, ExtensionOperandTypeInformation

ExtensionTypes = Mapping[int, ExtensionOperandTypeInformation]
"""Operand types by their number in a model."""


def extension_types(prefixes: Mapping[int, str], offered: Iterable[Extension]) -> ExtensionTypes:
    """Return the operand types that may occur in a model and whose size a device knows.

    Args:
        prefixes: names of the extensions that the model uses, by prefix.
        offered: extensions of the backends. Of several with the same name, the first counts.
    """
    by_name = {extension.name: extension for extension in reversed(list(offered))}
    return {
        prefix << 16 | type_.type: type_
        for prefix, name in prefixes.items()
        if name in by_name
        for type_ in by_name[name].operand_types
        if type_.byte_size > 0
    }
