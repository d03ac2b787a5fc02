"""Inputs and outputs of executions: where their values are."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

import nnhal
from nnhal.types import DTYPES, AnyArray, Bytes, is_fully_specified
from nnhal_ndk.execution.memory import MappedFile, NdkMemory
from nnhal_ndk.execution.tensor_memory import Role, TensorMemory
from nnhal_ndk.extensions import element_dtype
from nnhal_ndk.model.model import NdkOperand
from nnhal_ndk.model.operand_type import Dimensions, GivenType, is_specialization, known_size, merge_dimensions
from nnhal_ndk.results import bad_data


@dataclass(frozen=True)
class OmittedArgument:
    """Argument without a value."""


@dataclass(frozen=True)
class MemoryArgument:
    """Argument in memory of this process: a buffer of the program, or a part of a mapped file.

    Attributes:
        data: its bytes, not copied.
        dimensions: the dimensions that are known.
    """

    data: Bytes
    dimensions: Dimensions


@dataclass(frozen=True)
class TensorArgument:
    """Argument in a memory that was created from a description."""

    tensor: TensorMemory
    dimensions: Dimensions


Argument: TypeAlias = OmittedArgument | MemoryArgument | TensorArgument


@dataclass(frozen=True)
class ArgumentSlot:
    """Input or output of an execution.

    Attributes:
        operand: its operand.
        name: its name in messages.
        role: its use of memories.
        is_padded: whether memory may be larger than the value.
    """

    operand: NdkOperand
    name: str
    role: Role
    is_padded: bool

    @property
    def _is_output(self) -> bool:
        return self.role[1]

    def from_buffer(self, given: GivenType | None, buffer: memoryview | None) -> Argument:
        """Return the argument in a buffer of the program; None omits it.

        Raises:
            NdkError, HalError: BAD_DATA: the type or the size is wrong.
        """
        dimensions = self._dimensions(given, may_be_unknown=self._is_output or buffer is None)
        if buffer is None:
            return OmittedArgument()
        data = np.frombuffer(buffer, np.uint8)
        if data.size == 0:
            raise bad_data(f"{self.name} has a buffer of 0 bytes")
        return MemoryArgument(self._value(data, dimensions), dimensions)

    def from_memory(self, given: GivenType | None, memory: NdkMemory, offset: int, length: int) -> Argument:
        """Return the argument in a memory.

        Raises:
            NdkError, HalError: BAD_DATA: the type, the region or the use is wrong.
        """
        content = memory.content
        dimensions = self._dimensions(given, may_be_unknown=self._is_output or isinstance(content, TensorMemory))
        if isinstance(content, MappedFile):
            size = content.contents.size
            if offset + length > size or length == 0:
                raise bad_data(f"{self.name}: {length} bytes from byte {offset} of a memory of {size} bytes")
            return MemoryArgument(self._value(content.contents[offset : offset + length], dimensions), dimensions)
        if offset or length:
            raise bad_data(f"{self.name}: offset and length must be 0 for a memory from a description")
        if self.role not in content.roles:
            raise bad_data(f"{self.name} is not a role of the memory")
        dimensions = merge_dimensions(content.operand.dimensions, dimensions, self.name)
        return TensorArgument(content, dimensions)

    def _dimensions(self, given: GivenType | None, *, may_be_unknown: bool) -> Dimensions:
        """Return the dimensions of the value, as far as they are known."""
        dimensions = self.operand.dimensions
        if given is not None:
            given.check(f"the type of {self.name}")
            if dimensions and not is_specialization(given.dimensions, dimensions):
                raise bad_data(f"{self.name} has dimensions {list(dimensions)}, but {list(given.dimensions)} are given")
            dimensions = given.dimensions
        if not may_be_unknown and not is_fully_specified(self.operand.type, dimensions):
            raise bad_data(f"{self.name} has unknown dimensions {list(dimensions)}; give its type")
        return dimensions

    def _value(self, data: Bytes, dimensions: Dimensions) -> Bytes:
        """Return the bytes of the value, without padding."""
        needed = known_size(self.operand.type, dimensions)
        if needed and (data.size < needed or (data.size > needed and not self.is_padded)):
            raise bad_data(f"{self.name} needs {needed} bytes, but {data.size} are given")
        return data[:needed] if needed and not self._is_output else data

    def input_value(self, argument: Argument) -> AnyArray | nnhal.Buffer | None:
        """Return the value of an input for an execution.

        Raises:
            NdkError: OP_FAILED: its memory is uninitialized, or has other dimensions.
        """
        match argument:
            case OmittedArgument():
                return None
            case MemoryArgument():
                dtype = DTYPES.get(self.operand.type) or element_dtype(self.operand.type)
                return argument.data.view(dtype).reshape(argument.dimensions)
            case TensorArgument():
                return argument.tensor.input_value(argument.dimensions, self.name)
