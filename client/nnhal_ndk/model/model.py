"""Models while the program builds them."""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Protocol

from nnhal.builder.constants import MAX_COPIED_BYTES
from nnhal.operations import SIGNATURES
from nnhal.rules.control_flow import CONTROL_FLOW_RULES, FIRST_VALUE, Callee, ControlFlow
from nnhal.types import (
    Bytes,
    Operand,
    OperandLifeTime,
    OperandType,
    Operation,
    SymmPerChannelQuantParams,
    is_extension,
    is_fully_specified,
    operation_name,
)
from nnhal_ndk.model.operand_type import check_rules, check_type, known_size
from nnhal_ndk.model.order import execution_order
from nnhal_ndk.results import bad_data, bad_state

_WRITTEN = (OperandLifeTime.TEMPORARY_VARIABLE, OperandLifeTime.SUBGRAPH_OUTPUT)


class BuildState(Enum):
    """State of a model."""

    OPEN = "not finished"
    FINISHED = "finished"
    INVALID = "invalid"


class MappedMemory(Protocol):
    """Memory whose bytes this process can read."""

    @property
    def contents(self) -> Bytes:
        """All of its bytes, not copied."""
        ...


@dataclass(frozen=True)
class MemoryRegion:
    """Value in a memory of the program."""

    memory: MappedMemory
    offset: int
    length: int


class NdkModel:
    """Model of the program: operands, operations, inputs and outputs. Not thread safe, as documented by Android.

    Attributes:
        operands: its operands, without the locations of their values.
        values: values of operands by number: bytes that were copied, memory of the program, or a model.
        operations: its operations, as added; after `finish`, in an order of execution.
        order: for each of the sorted operations, its position as added.
        is_relaxed: whether float32 may be computed as float16.
    """

    def __init__(self) -> None:
        self.operands: list[Operand] = []
        self.values: dict[int, bytes | memoryview | MemoryRegion | NdkModel] = {}
        self.operations: list[Operation] = []
        self.order: list[int] = []
        self.inputs: tuple[int, ...] = ()
        self.outputs: tuple[int, ...] = ()
        self.is_relaxed = False
        self._state = BuildState.OPEN

    def require_finished(self) -> None:
        """Check that the model can be used.

        Raises:
            NdkError: BAD_STATE.
        """
        if self._state is not BuildState.FINISHED:
            raise bad_state(f"the model is {self._state.value}")

    def require_open(self) -> None:
        """Check that the model can be changed.

        Raises:
            NdkError: BAD_STATE.
        """
        if self._state is not BuildState.OPEN:
            raise bad_state(f"the model is {self._state.value} and cannot be changed")

    def operand(self, index: int) -> Operand:
        """Return an operand.

        Raises:
            NdkError: BAD_DATA: there is no such operand.
        """
        if not 0 <= index < len(self.operands):
            raise bad_data(f"there is no operand {index}; the model has {len(self.operands)}")
        return self.operands[index]

    # ---- Operands -----------------------------------------------------------------------------------

    def add_operand(self, given: Operand) -> None:
        """Add an operand.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: its type is invalid.
        """
        self.require_open()
        check_type(given, f"operand {len(self.operands)}")
        self.operands.append(given)

    def change_operand(self, index: int, **changes: Any) -> None:
        """Replace fields of an operand."""
        self.operands[index] = replace(self.operands[index], **changes)

    def set_value(self, index: int, buffer: memoryview | None) -> None:
        """Set a constant: small values are copied, large ones stay in the memory of the program. None omits it.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: unknown operand, or wrong size.
        """
        self.require_open()
        operand = self.operand(index)
        if buffer is None:
            self.change_operand(index, lifetime=OperandLifeTime.NO_VALUE)
            self.values.pop(index, None)
            return
        self._require_size(index, operand, len(buffer))
        is_small = len(buffer) <= MAX_COPIED_BYTES
        lifetime = OperandLifeTime.CONSTANT_COPY if is_small else OperandLifeTime.CONSTANT_POOL
        self.change_operand(index, lifetime=lifetime)
        self.values[index] = bytes(buffer) if is_small else buffer

    def set_value_from_memory(self, index: int, memory: MappedMemory, offset: int, length: int) -> None:
        """Set the value of a constant to a region of a memory.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: unknown operand, wrong size, or a region outside of the memory.
        """
        self.require_open()
        self._require_size(index, self.operand(index), length)
        size = memory.contents.size
        if offset + length > size:
            raise bad_data(f"bytes {offset} to {offset + length} are outside of a memory of {size} bytes")
        self.change_operand(index, lifetime=OperandLifeTime.CONSTANT_POOL)
        self.values[index] = MemoryRegion(memory, offset, length)

    def set_value_from_model(self, index: int, value: "NdkModel") -> None:
        """Set the value of an operand to a model, for IF and WHILE.

        Raises:
            NdkError: BAD_STATE: also if the other model is not finished; BAD_DATA: unknown operand, or wrong type.
        """
        self.require_open()
        value.require_finished()
        if self.operand(index).type != OperandType.SUBGRAPH:
            raise bad_data(f"operand {index} is not of type MODEL")
        self.change_operand(index, lifetime=OperandLifeTime.SUBGRAPH)
        self.values[index] = value

    def set_channel_quantization(self, index: int, channel_dim: int, count: int, scales: memoryview | None) -> None:
        """Set the scales, of float32, of an operand that is quantized along a dimension.

        The scales are read if their number is that of the dimension.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: unknown operand, wrong type, or wrong scales.
        """
        self.require_open()
        operand = self.operand(index)
        if operand.type != OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL:
            raise bad_data(f"operand {index} is not quantized per channel")
        if channel_dim >= len(operand.dimensions):
            raise bad_data(f"operand {index} has no dimension {channel_dim}")
        if operand.dimensions[channel_dim] != count or not scales:
            raise bad_data(f"{count} scales for {operand.dimensions[channel_dim]} channels of operand {index}")
        values = struct.unpack(f"{count}f", scales)
        if not all(scale > 0 and math.isfinite(scale) for scale in values):
            raise bad_data(f"operand {index} has a scale that is not above 0")
        self.change_operand(index, extra_params=SymmPerChannelQuantParams(values, channel_dim))

    def _require_size(self, index: int, operand: Operand, length: int) -> None:
        if operand.type == OperandType.SUBGRAPH:
            raise bad_data(f"operand {index} is of type MODEL")
        if is_extension(operand.type):
            return
        if not is_fully_specified(operand.type, operand.dimensions):
            raise bad_data(f"operand {index} is a constant with unknown dimensions")
        if (needed := known_size(operand.type, operand.dimensions)) != length:
            raise bad_data(f"operand {index} needs {needed} bytes, but {length} are given")

    # ---- Operations, inputs and outputs -------------------------------------------------------------

    def add_operation(self, type_: int, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Add an operation. The models of an IF or WHILE are set before.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: unknown operands or operation, operands of the wrong types, or models that do
                not suit.
        """
        self.require_open()
        operation = Operation(type_, tuple(inputs), tuple(outputs))
        self._check_signature(operation)
        self._check_control_flow(operation)
        self.operations.append(operation)

    def _check_signature(self, operation: Operation) -> None:
        inputs = [self.operand(i) for i in operation.inputs]
        outputs = [self.operand(i) for i in operation.outputs]
        name = operation_name(operation.type)
        if (first_value := FIRST_VALUE.get(operation.type)) is not None:
            if len(inputs) < first_value or not outputs:
                raise bad_data(f"{name} has {len(inputs)} inputs and {len(outputs)} outputs")
            return
        if is_extension(operation.type):
            return
        signature = SIGNATURES.get(operation.type)
        if signature is None:
            raise bad_data(f"there is no operation {operation.type}")
        bound = signature.bind(inputs, outputs, scales=False)  # Android leaves scales to the preparation
        if isinstance(bound, str):
            raise bad_data(f"{name}: {bound}")
        for argument, operand in zip(bound.inputs, inputs, strict=True):
            if operand.lifetime == OperandLifeTime.NO_VALUE and argument not in bound.optional:
                raise bad_data(f"{name}: {argument} has no value")

    @property
    def invalid_scales(self) -> frozenset[int]:
        """Operations whose scales no device accepts, by their position in the order of execution."""
        return frozenset(
            position for position, operation in enumerate(self.operations) if self._has_bad_scale(operation)
        )

    def _has_bad_scale(self, operation: Operation) -> bool:
        signature = SIGNATURES.get(operation.type)
        operands = ([self.operand(i) for i in indexes] for indexes in (operation.inputs, operation.outputs))
        return signature is not None and isinstance(signature.bind(*operands), str)

    def identify(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """Declare the inputs and outputs.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: unknown operands, or operands that are something else already.
        """
        self.require_open()
        for index in (*inputs, *outputs):
            self.operand(index)
        for indexes, lifetime in (
            (inputs, OperandLifeTime.SUBGRAPH_INPUT),
            (outputs, OperandLifeTime.SUBGRAPH_OUTPUT),
        ):
            for index in indexes:
                if (current := self.operands[index].lifetime) != OperandLifeTime.TEMPORARY_VARIABLE:
                    raise bad_data(f"operand {index} is already {OperandLifeTime(current).name}")
                self.change_operand(index, lifetime=lifetime)
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)

    def relax(self, allow: bool) -> None:
        """Set whether float32 may be computed as float16.

        Raises:
            NdkError: BAD_STATE.
        """
        self.require_open()
        self.is_relaxed = allow

    def finish(self) -> None:
        """Check the model and sort its operations.

        Raises:
            NdkError: BAD_STATE; BAD_DATA: the model is invalid, and remains so.
        """
        if self._state is not BuildState.OPEN:
            raise bad_state(f"the model is {self._state.value} already")
        self._state = BuildState.INVALID
        self._check()
        available = {index for index, operand in enumerate(self.operands) if operand.lifetime not in _WRITTEN}
        self.order = execution_order(self.operations, available)
        self.operations = [self.operations[position] for position in self.order]
        self._state = BuildState.FINISHED

    def _check_control_flow(self, operation: Operation) -> None:
        """Raise NdkError if a model of an IF or WHILE is missing, or has other inputs or outputs."""
        rules = CONTROL_FLOW_RULES.get(operation.type)
        if rules is not None:
            inputs = [self.operand(i) for i in operation.inputs]
            outputs = [self.operand(i) for i in operation.outputs]
            callees = [self._callee(number, index) for number, index in enumerate(operation.inputs)]
            check_rules(rules, ControlFlow(inputs, outputs, callees), operation_name(operation.type))

    def _callee(self, number: int, index: int) -> Callee | None:
        """Return the model behind an input of an operation, or None if the input is a value."""
        if self.operands[index].type != OperandType.SUBGRAPH:
            return None
        model = self.values.get(index)
        if not isinstance(model, NdkModel):
            raise bad_data(f"input {number} is of type MODEL, but has no model")
        inputs = [model.operands[index] for index in model.inputs]
        return Callee(f"input {number}", inputs, [model.operands[index] for index in model.outputs])

    def _check(self) -> None:
        if not (self.operands and self.operations and self.inputs and self.outputs):
            raise bad_data("a model needs operands, operations, inputs and outputs")
        for operation in self.operations:
            self._check_signature(operation)
            self._check_control_flow(operation)
        written = [index for operation in self.operations for index in operation.outputs]
        writers = set(written)
        for indexes, lifetime in (
            (self.inputs, OperandLifeTime.SUBGRAPH_INPUT),
            (self.outputs, OperandLifeTime.SUBGRAPH_OUTPUT),
        ):
            if changed := [index for index in indexes if self.operands[index].lifetime != lifetime]:
                raise bad_data(f"operand {changed[0]} is {lifetime.name}, but was given a value")
        if len(writers) != len(written):
            raise bad_data("two operations write the same operand")
        for index, operand in enumerate(self.operands):
            if (is_written := operand.lifetime in _WRITTEN) != (index in writers):
                problem = "no operation writes" if is_written else "an operation writes"
                raise bad_data(f"{problem} operand {index}, which is {OperandLifeTime(operand.lifetime).name}")
            if operand.type == OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL and operand.extra_params is None:
                raise bad_data(f"operand {index} has no scales per channel")
