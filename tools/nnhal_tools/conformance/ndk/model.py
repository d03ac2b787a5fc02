"""Models of the NNAPI C library, built from the message of a model."""

import ctypes
import mmap
import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from nnhal.types import OperandLifeTime, is_extension
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.device.ndk_library import NdkLibrary, handles, operand_type, quant_params, uint32s


class SharedFile:
    """Anonymous file, mapped by this process and by the library, whose `memory` it is."""

    def __init__(self, library: NdkLibrary, size: int) -> None:
        self._library = library
        descriptor = os.memfd_create("nnhal-conformance")
        try:
            os.ftruncate(descriptor, size)
            self._mapping = mmap.mmap(descriptor, size)
            protection = mmap.PROT_READ | mmap.PROT_WRITE
            self.memory = library.create("Memory_createFromFd", size, protection, descriptor, 0)
        finally:
            os.close(descriptor)

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes."""
        self._mapping[offset : offset + len(data)] = data

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes."""
        return self._mapping[offset : offset + length]

    def close(self) -> None:
        """Free the memory."""
        self._library.Memory_free(self.memory)
        self._mapping.close()


class LibraryModel:
    """Model that is compiled for the first device of the library. Use it as a context manager.

    Constants of the message's pool, which must not be large, lie in a memory, the others in buffers. Operations are
    added in their reverse order, because the library sorts them. `supported` tells for each operation of main whether
    the device supports it.
    """

    def __init__(self, library: NdkLibrary, message: types_pb2.Model) -> None:
        self.library = library
        self._message = message
        self._stack = ExitStack()
        self._kept: list[Any] = []  # values that the library reads when it compiles the model
        self._referenced: dict[int, int] = {}
        try:
            self._pools = [self._share(pool.inline) for pool in message.pools]
            self.handle = self._build(message.main)
            self._devices = handles(library.create("getDevice", 0))
            self.supported = self._query_support()
        except BaseException:
            self._stack.close()
            raise

    def _share(self, data: bytes) -> SharedFile:
        shared = SharedFile(self.library, len(data))
        self._stack.callback(shared.close)
        shared.write(0, data)
        return shared

    def _build(self, graph: types_pb2.Subgraph) -> int:
        call = self.library.call
        model = self.library.create("Model_create")
        self._stack.callback(self.library.Model_free, model)
        for operand in graph.operands:
            type_ = self._type("Model_getExtensionOperandType", model, operand.type)
            given = operand_type(type_, operand.dimensions, operand.scale, operand.zero_point)
            call("Model_addOperand", model, given)
        for index, operand in enumerate(graph.operands):
            self._set_value(model, index, operand)
        for operation in reversed(graph.operations):
            arguments = [_array(operation.inputs), _array(operation.outputs)]
            type_ = self._type("Model_getExtensionOperationType", model, operation.type)
            call("Model_addOperation", model, type_, *arguments[0], *arguments[1])
        call("Model_identifyInputsAndOutputs", model, *_array(graph.input_indexes), *_array(graph.output_indexes))
        if self._message.relax_computation_float32_to_float16:
            call("Model_relaxComputationFloat32toFloat16", model, True)
        call("Model_finish", model)
        return model

    def _type(self, function: str, model: int, type_: int) -> int:
        """Return the library's number of an operand type or operation of the message."""
        if not is_extension(type_):
            return type_
        prefix, code = type_ >> 16, type_ & 0xFFFF
        (name,) = (each.name for each in self._message.extension_name_to_prefix if each.prefix == prefix)
        number = ctypes.c_int32()
        self.library.call(function, model, ctypes.c_char_p(name.encode()), code, ctypes.byref(number))
        return number.value

    def _set_value(self, model: int, index: int, operand: types_pb2.Operand) -> None:
        call, location = self.library.call, operand.location
        if operand.HasField("extra_params"):
            quant = operand.extra_params.channel_quant
            parameters = quant_params(quant.channel_dim, quant.scales)
            call("Model_setOperandSymmPerChannelQuantParams", model, index, parameters)
        match OperandLifeTime(operand.lifetime):
            case OperandLifeTime.CONSTANT_COPY:
                values = self._message.operand_values[location.offset : location.offset + location.length]
                self._kept.append(ctypes.create_string_buffer(values, len(values)))
                call("Model_setOperandValue", model, index, self._kept[-1], len(values))
            case OperandLifeTime.CONSTANT_POOL:
                memory = self._pools[location.pool_index].memory
                call("Model_setOperandValueFromMemory", model, index, memory, location.offset, location.length)
            case OperandLifeTime.NO_VALUE:
                call("Model_setOperandValue", model, index, None, 0)
            case OperandLifeTime.SUBGRAPH:
                call("Model_setOperandValueFromModel", model, index, self._referenced_model(location.offset))

    def _referenced_model(self, number: int) -> int:
        if number not in self._referenced:
            self._referenced[number] = self._build(self._message.referenced[number])
        return self._referenced[number]

    def _query_support(self) -> list[bool]:
        supported = (ctypes.c_bool * len(self._message.main.operations))()
        self.library.call("Model_getSupportedOperationsForDevices", self.handle, self._devices, 1, supported)
        return list(supported)

    def compile(self) -> int:
        """Return the finished compilation for the device.

        Raises:
            CallFailed: the compilation failed.
        """
        compilation = self.library.create("Compilation_createForDevices", self.handle, self._devices, 1)
        self._stack.callback(self.library.Compilation_free, compilation)
        self.library.call("Compilation_finish", compilation)
        return compilation

    def __enter__(self) -> "LibraryModel":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _array(numbers: Sequence[int]) -> tuple[int, Any]:
    return len(numbers), uint32s(*numbers)
