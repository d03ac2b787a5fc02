"""Operand types of vendor extensions that a device knows, and types of values, which they may be."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from nnhal.rules.operand import bounded_byte_size, bounded_size
from nnhal.types import SCALAR_TYPES, Extension, ExtensionOperandTypeInformation, Operand, is_fully_specified

ExtensionTypes = Mapping[int, ExtensionOperandTypeInformation]
"""Operand types by their number in a model."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """Type of the values of an input, an output or a buffer.

    Attributes:
        operand: type, quantization and shape; 0 and () in the shape are unknown.
        extension: the device's description of the operand's type; None for base types, and types it does not know.
    """

    operand: Operand
    extension: ExtensionOperandTypeInformation | None = None

    @property
    def is_scalar(self) -> bool:
        """True if values have no dimensions."""
        return self.operand.type in SCALAR_TYPES if self.extension is None else not self.extension.is_tensor

    def is_fully_specified(self, dimensions: Sequence[int]) -> bool:
        """Return whether dimensions determine the size of a value."""
        if self.extension is None:
            return is_fully_specified(self.operand.type, dimensions)
        return 0 not in dimensions and (len(dimensions) > 0 or not self.extension.is_tensor)

    def byte_size(self, dimensions: Sequence[int]) -> int | None:
        """Return the size of a value in bytes, or None above the maximum. All dimensions must be known."""
        if self.extension is None:
            return bounded_byte_size(self.operand.type, dimensions)
        return bounded_size(self.extension.byte_size, dimensions)


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
