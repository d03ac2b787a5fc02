"""Objects of a program and the result codes that their functions must return, from the documentation of NNAPI.

Each function has a method with its name. It changes the state as the call does, and returns the codes that the call may
return: several only where a computation in progress decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from nnhal.types import OperandType, OperationType
from nnhal_ndk.api.constants import ResultCode

Codes = frozenset[ResultCode]

OK = frozenset({ResultCode.NO_ERROR})
BAD_DATA = frozenset({ResultCode.BAD_DATA})
BAD_STATE = frozenset({ResultCode.BAD_STATE})
OP_FAILED = frozenset({ResultCode.OP_FAILED})
TOO_SMALL = frozenset({ResultCode.OUTPUT_INSUFFICIENT_SIZE})

SCALARS = (OperandType.INT32, OperandType.FLOAT32)
ELEMENT_BYTES = 4

Shape = tuple[int, ...]


@dataclass(frozen=True)
class TypeCase:
    """Operand type, and whether it is valid."""

    type: int
    dimensions: Shape = ()
    scale: float = 0.0
    zero_point: int = 0
    is_valid: bool = True


TYPES = [
    TypeCase(OperandType.TENSOR_FLOAT32, (2, 3)),
    TypeCase(OperandType.TENSOR_FLOAT32, (2, 3)),
    TypeCase(OperandType.TENSOR_FLOAT32, (0, 3)),
    TypeCase(OperandType.INT32),
    TypeCase(OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL, (2, 2)),
    TypeCase(OperandType.SUBGRAPH),
    TypeCase(OperandType.INT32, (1,), is_valid=False),
    TypeCase(OperandType.TENSOR_FLOAT32, (2,), 0.5, is_valid=False),
    TypeCase(OperandType.TENSOR_QUANT8_ASYMM, (2,), -1.0, is_valid=False),
    TypeCase(OperandType.TENSOR_QUANT8_ASYMM, (2,), 1.0, 256, is_valid=False),
    TypeCase(OperandType.TENSOR_FLOAT32, (2**16, 2**16), is_valid=False),
    TypeCase(777, (2,), is_valid=False),
]
"""Types of operands, valid and invalid ones."""


class Lifetime(Enum):
    """Use of an operand."""

    TEMPORARY = "temporary"
    CONSTANT = "constant"
    OMITTED = "omitted"
    MODEL = "model"
    INPUT = "input"
    OUTPUT = "output"


@dataclass
class OperandState:
    """Operand of a model."""

    given: TypeCase
    lifetime: Lifetime = Lifetime.TEMPORARY
    has_scales: bool = False

    @property
    def is_tensor(self) -> bool:
        """True for a float tensor."""
        return self.given.type == OperandType.TENSOR_FLOAT32

    @property
    def size(self) -> int | None:
        """Bytes of its value, or None if it cannot be a constant."""
        if self.given.type == OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL:
            return self.given.dimensions[0] * self.given.dimensions[1]
        if self.given.type == OperandType.SUBGRAPH or 0 in self.given.dimensions:
            return None
        return value_bytes(self.given.dimensions)


def value_bytes(shape: Shape) -> int:
    """Return the bytes of a float32 or int32 value."""
    size = ELEMENT_BYTES
    for dimension in shape:
        size *= dimension
    return size


@dataclass
class ModelState:
    """Model of a program: operands and operations, and the state that the documentation describes."""

    handle: int
    operands: list[OperandState] = field(default_factory=list)
    operations: list[tuple[int, Shape, Shape]] = field(default_factory=list)
    inputs: Shape = ()
    outputs: Shape = ()
    is_finished: bool = False
    is_invalid: bool = False

    @property
    def is_open(self) -> bool:
        """True if it can be changed."""
        return not (self.is_finished or self.is_invalid)

    def _is_operand(self, index: int) -> bool:
        return 0 <= index < len(self.operands)

    def add_operand(self, given: TypeCase) -> Codes:
        if not self.is_open:
            return BAD_STATE
        if not given.is_valid:
            return BAD_DATA
        self.operands.append(OperandState(given))
        return OK

    def set_value(self, index: int, length: int, *, is_null: bool = False) -> Codes:
        if not self.is_open:
            return BAD_STATE
        if not self._is_operand(index):
            return BAD_DATA
        operand = self.operands[index]
        if is_null:
            operand.lifetime = Lifetime.OMITTED
            return OK
        if operand.size != length:
            return BAD_DATA
        operand.lifetime = Lifetime.CONSTANT
        return OK

    def set_value_from_memory(self, index: int, memory: "MemoryState", offset: int, length: int) -> Codes:
        if memory.is_tensor:
            return BAD_STATE if not self.is_open else BAD_DATA
        if self.is_open and (not self._is_operand(index) or offset + length > memory.size):
            return BAD_DATA
        return self.set_value(index, length)

    def set_value_from_model(self, index: int, value: "ModelState") -> Codes:
        if not self.is_open or not value.is_finished:
            return BAD_STATE
        if not self._is_operand(index) or self.operands[index].given.type != OperandType.SUBGRAPH:
            return BAD_DATA
        self.operands[index].lifetime = Lifetime.MODEL
        return OK

    def set_scales(self, index: int, channel: int, scales: Sequence[float]) -> Codes:
        if not self.is_open:
            return BAD_STATE
        if not self._is_operand(index):
            return BAD_DATA
        given = self.operands[index].given
        if given.type != OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL or channel >= len(given.dimensions):
            return BAD_DATA
        if given.dimensions[channel] != len(scales) or min(scales) <= 0:
            return BAD_DATA
        self.operands[index].has_scales = True
        return OK

    def add_operation(self, type_: int, inputs: Shape, outputs: Shape) -> Codes:
        if not self.is_open:
            return BAD_STATE
        if not all(map(self._is_operand, (*inputs, *outputs))) or not self._is_operation(type_, inputs, outputs):
            return BAD_DATA
        self.operations.append((type_, inputs, outputs))
        return OK

    def _is_operation(self, type_: int, inputs: Shape, outputs: Shape) -> bool:
        arguments = [self.operands[index] for index in inputs]
        if any(each.lifetime is Lifetime.OMITTED for each in arguments) or len(outputs) != 1:
            return False
        if not self.operands[outputs[0]].is_tensor:
            return False
        if type_ == OperationType.FLOOR:
            return len(arguments) == 1 and arguments[0].is_tensor
        if type_ != OperationType.ADD or len(arguments) != 3:
            return False
        return arguments[0].is_tensor and arguments[1].is_tensor and arguments[2].given.type == OperandType.INT32

    def identify(self, inputs: Shape, outputs: Shape) -> Codes:
        if not self.is_open:
            return BAD_STATE
        if not all(map(self._is_operand, (*inputs, *outputs))):
            return BAD_DATA
        for index, lifetime in [*((i, Lifetime.INPUT) for i in inputs), *((i, Lifetime.OUTPUT) for i in outputs)]:
            if self.operands[index].lifetime is not Lifetime.TEMPORARY:
                return BAD_DATA
            self.operands[index].lifetime = lifetime
        self.inputs, self.outputs = inputs, outputs
        return OK

    def relax(self) -> Codes:
        return OK if self.is_open else BAD_STATE

    def finish(self) -> Codes:
        if not self.is_open:
            return BAD_STATE
        self.is_finished = self._is_valid()
        self.is_invalid = not self.is_finished
        return OK if self.is_finished else BAD_DATA

    def _is_valid(self) -> bool:
        if not (self.operands and self.operations and self.inputs and self.outputs):
            return False
        if not all(self._is_operation(*operation) for operation in self.operations):
            return False
        roles = [*((i, Lifetime.INPUT) for i in self.inputs), *((i, Lifetime.OUTPUT) for i in self.outputs)]
        if any(self.operands[index].lifetime is not lifetime for index, lifetime in roles):
            return False
        written = [index for _, _, outputs in self.operations for index in outputs]
        must_be_written = {
            index
            for index, operand in enumerate(self.operands)
            if operand.lifetime in (Lifetime.TEMPORARY, Lifetime.OUTPUT)
        }
        if len(set(written)) != len(written) or set(written) != must_be_written:
            return False
        per_channel = OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL
        if any(operand.given.type == per_channel and not operand.has_scales for operand in self.operands):
            return False
        return self._has_order(must_be_written)

    def _has_order(self, unknown: set[int]) -> bool:
        waiting, missing = list(self.operations), set(unknown)
        while ready := [each for each in waiting if not missing & set(each[1])]:
            for operation in ready:
                missing -= set(operation[2])
                waiting.remove(operation)
        return not waiting


@dataclass(eq=False)
class CompilationState:
    """Compilation of a model."""

    handle: int
    model: ModelState
    has_single_device: bool
    is_finished: bool = False

    @property
    def is_plain(self) -> bool:
        """True if its model is one of the two that programs build whole, so that results can be predicted."""
        return len(self.model.operations) == 1 and len(self.model.operands) == 4

    @property
    def shape(self) -> Shape:
        """Dimensions of inputs and outputs."""
        return self.model.operands[0].given.dimensions

    def change(self, is_valid: bool) -> Codes:
        if self.is_finished:
            return BAD_STATE
        return OK if is_valid else BAD_DATA

    def finish(self) -> Codes:
        if self.is_finished:
            return BAD_STATE
        self.is_finished = True
        return OK

    def needs_finished(self) -> Codes:
        return OK if self.is_finished else BAD_STATE

    def query(self, index: int, count: int) -> Codes:
        if not self.is_finished:
            return BAD_STATE
        return OK if index < count else BAD_DATA


@dataclass(eq=False)
class MemoryState:
    """Memory: a mapped file, or a tensor of a description."""

    handle: int
    size: int = 0
    roles: frozenset[tuple[CompilationState, bool, int]] = frozenset()
    is_tensor: bool = False
    shape: Shape = ()
    has_value: bool = True

    def copy_to(self, target: "MemoryState") -> Codes:
        if target is self:
            return OK
        if not self.has_value or self.size != target.size:
            target.has_value = target.has_value and not target.is_tensor
            return BAD_DATA
        target.has_value = True
        return OK


@dataclass(eq=False)
class DescState:
    """Description of a memory, for models of known shape."""

    handle: int
    roles: set[tuple[CompilationState, bool, int]] = field(default_factory=set)
    shape: Shape = ()
    is_finished: bool = False

    def add_role(self, compilation: CompilationState, index: int, frequency: float, *, is_output: bool) -> Codes:
        role = (compilation, is_output, index)
        if self.is_finished:
            return BAD_STATE
        is_known = index < (1 if is_output else 2)
        if role in self.roles or not compilation.is_finished or not is_known or not 0 < frequency <= 1:
            return BAD_DATA
        if self.shape and self.shape != compilation.shape:
            return BAD_DATA
        self.roles.add(role)
        self.shape = compilation.shape
        return OK

    def set_dimensions(self, shape: Shape) -> Codes:
        if self.is_finished:
            return BAD_STATE
        if self.shape and shape and self.shape != shape:
            return BAD_DATA
        self.shape = self.shape or shape
        return OK

    def finish(self) -> Codes:
        if self.is_finished:
            return BAD_STATE
        self.is_finished = bool(self.roles)
        return OK if self.roles else BAD_DATA


class Phase(Enum):
    """State of an execution. STARTED: a thread computes, or has ended."""

    PREPARATION = "preparation"
    STARTED = "started"
    COMPLETED = "completed"


@dataclass(frozen=True)
class ArgumentState:
    """Input or output that is set."""

    shape: Shape = ()
    size: int = 0
    memory: MemoryState | None = None
    is_omitted: bool = False


@dataclass(eq=False)
class ExecutionState:
    """Execution of a compilation."""

    handle: int
    compilation: CompilationState
    arguments: dict[tuple[bool, int], ArgumentState] = field(default_factory=dict)
    phase: Phase = Phase.PREPARATION
    is_reusable: bool = False
    is_padded: bool = False
    has_called_setters: bool = False
    measures: bool = False
    result: Codes = OK
    has_shape: bool = False

    def change(self, *, needs_single_device: bool = False) -> Codes:
        if needs_single_device and not self.compilation.has_single_device:
            return BAD_DATA
        return OK if self.phase is Phase.PREPARATION else BAD_STATE

    def enable_padding(self, enable: bool) -> Codes:
        if self.phase is not Phase.PREPARATION or self.has_called_setters:
            return BAD_STATE
        self.is_padded = enable
        return OK

    def set_argument(
        self,
        key: tuple[bool, int],
        given: Shape | None,
        length: int,
        memory: MemoryState | None = None,
        *,
        offset: int = 0,
        is_null: bool = False,
    ) -> Codes:
        is_output, index = key
        if self.phase is not Phase.PREPARATION:
            return BAD_STATE
        if not 0 <= index < (1 if is_output else 2):
            return BAD_DATA
        self.has_called_setters = True
        if not self._is_shape(given, is_output, is_null, memory):
            return BAD_DATA
        shape = self.compilation.shape if given is None else given
        if not is_null and not self._holds(key, shape, length, memory, offset):
            return BAD_DATA
        if key in self.arguments:
            return BAD_STATE
        self.arguments[key] = ArgumentState(shape, length, memory, is_null)
        return OK

    def _holds(self, key: tuple[bool, int], shape: Shape, length: int, memory: MemoryState | None, offset: int) -> bool:
        """Return whether memory can hold a value."""
        if memory is not None and memory.is_tensor:
            is_whole = offset == 0 and length == 0 and (self.compilation, *key) in memory.roles
            return is_whole and memory.shape == shape
        if length == 0 or (memory is not None and offset + length > memory.size):
            return False
        return 0 in shape or self._fits(value_bytes(shape), length)

    def _is_shape(self, given: Shape | None, is_output: bool, is_null: bool, memory: MemoryState | None) -> bool:
        known = self.compilation.shape
        if given is None:
            return 0 not in known or is_output or is_null or (memory is not None and memory.is_tensor)
        if 0 in given and not (is_output or is_null):
            return False
        return len(given) == len(known) and all(a in (0, b) for a, b in zip(known, given, strict=True))

    def _fits(self, needed: int, length: int) -> bool:
        return length >= needed if self.is_padded else length == needed

    @property
    def is_documented(self) -> bool:
        """True unless it omits arguments that ADD needs, or reads the tensor that it writes."""
        output = self.arguments.get((True, 0))
        tensors = [each.memory for key, each in self.arguments.items() if each.memory is not None and not key[0]]
        reads_output = output is not None and output.memory in [each for each in tensors if each.is_tensor]
        return not reads_output and not any(each.is_omitted for each in self.arguments.values())

    def begin(self) -> Codes | None:
        """Begin a computation. Return codes if it cannot begin, and otherwise set `result`."""
        if self.phase is not Phase.PREPARATION and not self.is_reusable:
            return BAD_STATE
        self.phase, self.has_shape = Phase.COMPLETED, False
        return self.fail(BAD_DATA) if len(self.arguments) < 3 else None

    def fail(self, codes: Codes) -> Codes:
        """End a computation that has begun in error, and return the codes."""
        self.result = codes
        output = self.arguments.get((True, 0))
        if output is not None and output.memory is not None and output.memory.is_tensor:
            output.memory.has_value = False
        return codes

    def compute(self) -> Codes:
        """Return the codes of a computation that has begun, and set its results."""
        self.result = self._outcome()
        self.has_shape = self.result in (OK, TOO_SMALL)
        output = self.arguments[True, 0].memory
        if output is not None and output.is_tensor:
            output.has_value = self.result == OK
        return self.result

    def _outcome(self) -> Codes:
        inputs = [self.arguments[False, 0], self.arguments[False, 1]]
        output = self.arguments[True, 0]
        tensors = [each.memory for each in inputs if each.memory is not None and each.memory.is_tensor]
        if not all(each.has_value for each in tensors):
            return OP_FAILED
        rows = {each.shape[0] for each in inputs}  # 1 or 2
        shape = (max(rows), 3)
        if any(a not in (0, b) for a, b in zip(output.shape, shape, strict=True)):
            return OP_FAILED
        if (output.memory is None or not output.memory.is_tensor) and output.size < value_bytes(shape):
            return TOO_SMALL
        return OK

    @property
    def has_known_output(self) -> bool:
        """True if the dimensions of the output are all known, which fenced computations need."""
        return 0 not in self.arguments[True, 0].shape

    def results(self, index: int) -> Codes:
        """Return the codes of the queries for the dimensions of an output."""
        if self.phase is Phase.PREPARATION:
            return BAD_STATE
        if index > 0 and self.has_shape:
            return BAD_DATA | BAD_STATE if self.phase is Phase.STARTED else BAD_DATA
        known = self.result if self.has_shape else BAD_STATE
        return known | BAD_STATE if self.phase is Phase.STARTED else known

    def duration(self, code: int) -> Codes:
        if not 0 <= code <= 3:
            return BAD_DATA
        if self.phase is Phase.PREPARATION or not self.measures or ResultCode.NO_ERROR not in self.result:
            return BAD_STATE
        return OK | BAD_STATE if self.phase is Phase.STARTED or len(self.result) > 1 else OK
