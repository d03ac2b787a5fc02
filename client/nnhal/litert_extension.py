"""The vendor extension whose operation runs TFLite operators that NNAPI lacks.

The operation SUBMODEL has a TFLite model as its first input, a constant of type SUBMODEL_BYTES. The other inputs and
the outputs are those of the model's main subgraph, in order. A tensor without dimensions in the TFLite model has shape
[1] as an operand. Tensors have the type of NNAPI that has the same elements, and otherwise a type of the extension.
"""

from typing import Any

import numpy as np

from nnhal.types import EXTENSION_OPERATIONS, Extension, ExtensionNameAndPrefix, ExtensionOperandTypeInformation

NAME = "org.nnhal.litert"
SUBMODEL = EXTENSION_OPERATIONS[NAME].index("SUBMODEL")
"""The operation."""
SUBMODEL_BYTES = 0
"""Type of the operand that holds a TFLite model: one element per byte."""

ELEMENT_TYPES: dict[int, np.dtype[Any]] = {
    number: np.dtype(name)
    for number, name in enumerate(
        (
            *("int64", "int16", "float64", "int8", "uint8", "uint16", "uint32", "uint64"),
            *("complex64", "complex128"),  # later than the others
        ),
        start=SUBMODEL_BYTES + 1,
    )
}
"""Types of tensors without a counterpart in NNAPI, by their number in the extension. None is quantized."""

EXTENSION = Extension(
    NAME,
    (
        ExtensionOperandTypeInformation(SUBMODEL_BYTES, True, 1),
        *(ExtensionOperandTypeInformation(number, True, dtype.itemsize) for number, dtype in ELEMENT_TYPES.items()),
    ),
)
"""The extension as a device lists it."""


def element_dtypes(names: tuple[ExtensionNameAndPrefix, ...]) -> dict[int, np.dtype[Any]]:
    """Return the types of the elements of the extension's tensors, by operand type in a model with these extensions."""
    return {
        entry.prefix << 16 | number: dtype
        for entry in names
        if entry.name == NAME
        for number, dtype in ELEMENT_TYPES.items()
    }
