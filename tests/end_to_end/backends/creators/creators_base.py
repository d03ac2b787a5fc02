"""Class of the backend."""

from collections.abc import Sequence

from nnhal_backend.v1 import Extension, ExtensionOperandTypeInformation, PerOperationBackend

NAME = "com.example.creators"
FACTOR = 3
"""Operand type: a scalar of two bytes, the digits of a factor."""
SCALE, COMPACT = 1, 2
"""Operations: multiply by a factor, and leave out what is not positive."""


class Creators(PerOperationBackend):
    """The backend."""

    id = "Creators"
    version = "1"

    def extensions(self) -> Sequence[Extension]:
        """Return the extension."""
        return (Extension(NAME, (ExtensionOperandTypeInformation(FACTOR, False, 2),)),)
