"""Inputs and outputs of executions: where their values are."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from nnhal.types import AnyArray, Bytes, Operand, is_fully_specified
from nnhal_ndk.execution.memory import MappedFile, NdkMemory
from nnhal_ndk.execution.tensor_memory import Role, TensorMemory
from nnhal_ndk.extensions import element_dtype
from nnhal_ndk.model.operand_type import Dimensions, check_type, is_specialization, known_size, merge_dimensions
from nnhal_ndk.results import bad_data


@dataclass(frozen=True, slots=True)
class OmittedArgument:
    """Argument without a value."""


OMITTED_ARGUMENT = OmittedArgument()


@dataclass(slots=True, eq=False)
class MemoryArgument:
    """Argument in memory of this process: a buffer of the program, or a part of a mapped file.

    Attributes:
        data: the value of an input; the bytes that an output may have. It is not copied.
    """

    data: AnyArray
    dimensions: Dimensions


@dataclass(slots=True, eq=False)
class TensorArgument:
    """Argument in a memory that was created from a description."""

    tensor: TensorMemory
    dimensions: Dimensions


Argument: TypeAlias = OmittedArgument | MemoryArgument | TensorArgument


class ArgumentSlot:
    """Input or output of a compilation, which its executions share. This is a hot path."""

    def __init__(self, operand: Operand, role: Role) -> None:
        self.operand = operand
        self._role = role
        self._is_output = role[1]
        self._dtype = element_dtype(operand.type)
        self._is_specified = is_fully_specified(operand.type, operand.dimensions)
        self._size = known_size(operand.type, operand.dimensions)

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"{'output' if self._is_output else 'input'} {self._role[2]}"

    def from_buffer(self, given: Operand | None, buffer: memoryview | None, *, is_padded: bool) -> Argument:
        """Return the argument in a buffer of the program; None omits it. It may be larger than the value if padded.

        `given` is the type of the value; None for that of the operand.

        Raises:
            NdkError: BAD_DATA: the type or the size is wrong.
        """
        dimensions = self._dimensions(given, may_be_unknown=self._is_output or buffer is None)
        if buffer is None:
            return OMITTED_ARGUMENT
        if not buffer:
            raise bad_data(f"{self.name} has a buffer of 0 bytes")
        return self._in_memory(np.frombuffer(buffer, np.uint8), dimensions, is_padded)

    def from_memory(
        self, given: Operand | None, memory: NdkMemory, offset: int, length: int, *, is_padded: bool
    ) -> Argument:
        """Return the argument in a memory, see `from_buffer`.

        Raises:
            NdkError: BAD_DATA: the type, the region or the use is wrong.
        """
        content = memory.content
        dimensions = self._dimensions(given, may_be_unknown=self._is_output or isinstance(content, TensorMemory))
        if isinstance(content, MappedFile):
            size = content.contents.size
            if offset + length > size or length == 0:
                raise bad_data(f"{self.name}: {length} bytes from byte {offset} of a memory of {size} bytes")
            return self._in_memory(content.contents[offset : offset + length], dimensions, is_padded)
        if offset or length:
            raise bad_data(f"{self.name}: offset and length must be 0 for a memory from a description")
        if self._role not in content.roles:
            raise bad_data(f"{self.name} is not a role of the memory")
        dimensions = merge_dimensions(content.operand.dimensions, dimensions, self.name)
        return TensorArgument(content, dimensions)

    def _dimensions(self, given: Operand | None, *, may_be_unknown: bool) -> Dimensions:
        """Return the dimensions of the value, as far as they are known."""
        dimensions = self.operand.dimensions
        if given is None:
            is_specified = self._is_specified
        else:
            check_type(given, f"the type of {self.name}")
            if dimensions and not is_specialization(given.dimensions, dimensions):
                raise bad_data(f"{self.name} has dimensions {list(dimensions)}, but {list(given.dimensions)} are given")
            dimensions = given.dimensions
            is_specified = is_fully_specified(self.operand.type, dimensions)
        if not may_be_unknown and not is_specified:
            raise bad_data(f"{self.name} has unknown dimensions {list(dimensions)}; give its type")
        return dimensions

    def _in_memory(self, data: Bytes, dimensions: Dimensions, is_padded: bool) -> MemoryArgument:
        is_usual = dimensions is self.operand.dimensions
        needed = self._size if is_usual else known_size(self.operand.type, dimensions)
        if needed and data.size != needed and (data.size < needed or not is_padded):
            raise bad_data(f"{self.name} needs {needed} bytes, but {data.size} are given")
        if self._is_output:
            return MemoryArgument(data, dimensions)
        value = data[:needed] if needed else data
        return MemoryArgument(value.view(self._dtype).reshape(dimensions), dimensions)
