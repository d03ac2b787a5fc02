"""A small model, compiled and executed through the library."""

import ctypes
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from nnhal.types import AnyArray, OperandType, OperationType
from nnhal_ndk.api.constants import ResultCode
from nnhal_tools.conformance.device.ndk_library import NdkLibrary, handles, operand_type, uint32s

A = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
B = np.array([[10, 20, 30], [40, 50, 60]], np.float32)
BYTES = A.nbytes

Dimensions = Sequence[int]


def add_tensors_model(library: NdkLibrary, dimensions: Dimensions = (2, 3), output: Dimensions | None = None) -> int:
    """Return an unfinished model with one ADD of operands 0 and 1 to operand 3, without inputs and outputs."""
    model = library.create("Model_create")
    for type_, shape in (
        (OperandType.TENSOR_FLOAT32, dimensions),
        (OperandType.TENSOR_FLOAT32, dimensions),
        (OperandType.INT32, ()),
        (OperandType.TENSOR_FLOAT32, dimensions if output is None else output),
    ):
        expect(library.Model_addOperand(model, operand_type(type_, shape)))
    expect(library.Model_setOperandValue(model, 2, ctypes.byref(ctypes.c_int32(0)), 4))
    expect(library.Model_addOperation(model, OperationType.ADD, 3, uint32s(0, 1, 2), 1, uint32s(3)))
    return model


def finished_model(library: NdkLibrary, dimensions: Dimensions = (2, 3), output: Dimensions | None = None) -> int:
    """Return a finished model that adds its two inputs."""
    model = add_tensors_model(library, dimensions, output)
    expect(library.Model_identifyInputsAndOutputs(model, 2, uint32s(0, 1), 1, uint32s(3)))
    expect(library.Model_finish(model))
    return model


def expect(code: int, expected: ResultCode = ResultCode.NO_ERROR) -> None:
    """Check a result code."""
    assert ResultCode(code).name == expected.name


def device(library: NdkLibrary, index: int = 0) -> int:
    """Return a device."""
    return library.create("getDevice", index)


@dataclass
class Program(AbstractContextManager["Program"]):
    """Compiled model that adds its two inputs. Frees what it creates.

    Attributes:
        library: the library.
        model: the model.
        compilation: its compilation.
    """

    library: NdkLibrary
    model: int
    compilation: int

    def __post_init__(self) -> None:
        self._stack = ExitStack()
        self._stack.callback(self.library.Model_free, self.model)
        self._stack.callback(self.library.Compilation_free, self.compilation)

    @staticmethod
    def compiled(
        library: NdkLibrary,
        dimensions: Dimensions = (2, 3),
        output: Dimensions | None = None,
        *,
        for_device: bool = True,
        finish: bool = True,
    ) -> "Program":
        """Return the program, compiled for device 0 or for all devices."""
        model = finished_model(library, dimensions, output)
        if for_device:
            listed = handles(device(library))
            compilation = library.create("Compilation_createForDevices", model, listed, 1)
        else:
            compilation = library.create("Compilation_create", model)
        if finish:
            expect(library.Compilation_finish(compilation))
        return Program(library, model, compilation)

    def execution(self) -> int:
        """Return a new execution without arguments."""
        execution = self.library.create("Execution_create", self.compilation)
        self._stack.callback(self.library.Execution_free, execution)
        return execution

    def bound_execution(self, result: AnyArray, a: AnyArray = A, b: AnyArray = B) -> int:
        """Return a new execution whose arguments are arrays, which must stay alive."""
        execution = self.execution()
        for index, value in enumerate((a, b)):
            expect(self.library.Execution_setInput(execution, index, None, value.ctypes.data, value.nbytes))
        expect(self.library.Execution_setOutput(execution, 0, None, result.ctypes.data, result.nbytes))
        return execution

    def event(self, name: str, *arguments: Any) -> int:
        """Call a function that creates an event."""
        event = self.library.create(name, *arguments)
        self._stack.callback(self.library.Event_free, event)
        return event

    def __exit__(self, *_: object) -> None:
        self._stack.close()
