"""Operand types of vendor extensions: what a device knows of those in a model."""

from collections.abc import Iterable, Mapping

from nnhal.types import Extension, ExtensionOperandTypeInformation

ExtensionTypes = Mapping[int, ExtensionOperandTypeInformation]
"""By the number that an operand type has in a model."""


def extension_types(prefixes: Mapping[int, str], offered: Iterable[Extension]) -> ExtensionTypes:
    """The operand types that may occur in a model and that a device knows the size of.

    Args:
        prefixes: names of the extensions that the model uses, by prefix.
        offered: what backends offer. The first that has a name says what it holds.
    """
    by_name = {one.name: one for one in reversed(list(offered))}
    return {
        prefix << 16 | type_.type: type_
        for prefix, name in prefixes.items()
        if name in by_name
        for type_ in by_name[name].operand_types
        if type_.byte_size > 0
    }
