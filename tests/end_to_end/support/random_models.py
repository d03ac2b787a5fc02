"""Random models of one operation: argument lists and types follow its signature, everything else is random.

A shape rule rejects most of them. The rest reach kernels with inputs that handwritten tests do not cover.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np

from nnhal.operations import SIGNATURES
from nnhal.operations.signature import Argument, ArgumentList, Rank
from nnhal.types import (
    DTYPES,
    SCALAR_TYPES,
    AnyArray,
    DataLocation,
    Model,
    Operand,
    OperandLifeTime,
    OperandType,
    Operation,
    Subgraph,
    SymmPerChannelQuantParams,
)

_INTEGERS = (0, 1, 1, 1, 2, 2, 3, 4, -1, -1, -2, 7, 64, 1000, 2**20, 2**31 - 1, -(2**31))
_REALS = (0.0, 1.0, 1.0, 0.5, 2.0, -1.0, 1e-45, 3e38, 1e9, float("inf"), float("-inf"), float("nan"))
_SCALES = (1.0, 1.0, 0.5, 1 / 128, 1 / 256, 1 / 255, 2**-11, 0.125, 1e-30, 1e30, 3e38, 1e-45, float("inf"))
_LENGTHS = (1, 1, 2, 2, 3, 4, 8)
_QUANTIZED = {
    OperandType.TENSOR_QUANT8_ASYMM: (0, 128, 255),
    OperandType.TENSOR_QUANT8_ASYMM_SIGNED: (0, -128, 127),
    OperandType.TENSOR_QUANT8_SYMM: (0,),
    OperandType.TENSOR_QUANT16_SYMM: (0,),
    OperandType.TENSOR_QUANT16_ASYMM: (0, 1, 65535),
}
"""Zero points to try, by quantized type with one scale."""


@dataclass(frozen=True)
class Sample:
    """A model and the values of its inputs."""

    model: Model
    inputs: Sequence[AnyArray]


@dataclass
class _Writer:
    """Builder of a model's operands. Most tensors get `shape` and `scale`."""

    random: Random
    shape: tuple[int, ...]
    scale: float
    operands: list[Operand] = field(default_factory=list)
    values: bytearray = field(default_factory=bytearray)
    inputs: list[AnyArray] = field(default_factory=list)

    def add(self, operand: Operand, value: AnyArray) -> None:
        """Add an operand with a value, as a constant or as an input."""
        if operand.type in SCALAR_TYPES or self.random.random() < 0.5:
            location = DataLocation(0, len(self.values), value.nbytes)
            self.values += value.tobytes()
            self.operands.append(replace(operand, lifetime=OperandLifeTime.CONSTANT_COPY, location=location))
        else:
            self.operands.append(replace(operand, lifetime=OperandLifeTime.SUBGRAPH_INPUT))
            self.inputs.append(value)


def random_sample(random: Random, type_: int | None = None) -> Sample:
    """Return a random model of an operation, by default of a random one."""
    signature = SIGNATURES[random.choice(sorted(SIGNATURES)) if type_ is None else type_]
    row = random.choice(signature.rows)
    writer = _Writer(random, _dimensions(random, random.randint(1, 4)), random.choice(_SCALES))
    inputs = _arguments(random, random.choice(signature.inputs))
    for argument in inputs:
        operand = _operand(writer, _type(argument, row), signature.ranks.get(argument.name))
        if argument.optional and random.random() < 0.5:
            writer.operands.append(replace(operand, lifetime=OperandLifeTime.NO_VALUE))
        else:
            writer.add(operand, _value(random, operand))
    outputs = _arguments(random, signature.outputs)
    for argument in outputs:
        operand = _operand(writer, _type(argument, row), signature.ranks.get(argument.name))
        if operand.extra_params is None and random.random() < 0.8:
            operand = replace(operand, dimensions=())
        writer.operands.append(replace(operand, lifetime=OperandLifeTime.SUBGRAPH_OUTPUT))
    return _build_sample(
        writer, Operation(signature.type, tuple(range(len(inputs))), _output_indexes(writer, len(outputs)))
    )


def _output_indexes(writer: _Writer, count: int) -> tuple[int, ...]:
    return tuple(range(len(writer.operands) - count, len(writer.operands)))


def _build_sample(writer: _Writer, operation: Operation) -> Sample:
    inputs = [i for i, operand in enumerate(writer.operands) if operand.lifetime == OperandLifeTime.SUBGRAPH_INPUT]
    main = Subgraph(tuple(writer.operands), (operation,), tuple(inputs), operation.outputs)
    return Sample(Model(main, operand_values=bytes(writer.values)), writer.inputs)


def _arguments(random: Random, form: ArgumentList) -> tuple[Argument, ...]:
    """Return an argument list of a random length that the form allows."""
    fixed = len(form.required) + sum(len(group) for group in form.groups[: random.randint(0, len(form.groups))])
    repeated = any(argument.repeated for argument in form.required)
    arguments = form.of_length(fixed + (random.randint(0, 3) if repeated else 0))
    return arguments if arguments is not None else form.required


def _type(argument: Argument, row: "dict[str, int] | object") -> int:
    return argument.type if isinstance(argument.type, int) else int(row[argument.type])  # type: ignore[index]


def _dimensions(random: Random, rank: int) -> tuple[int, ...]:
    return tuple(random.choice(_LENGTHS) for _ in range(rank))


def _operand(writer: _Writer, type_: int, rank: Rank | None) -> Operand:
    random = writer.random
    if type_ in SCALAR_TYPES:
        return Operand(type_)
    dimensions = writer.shape
    if isinstance(rank, int) and rank != len(dimensions):
        dimensions = _dimensions(random, rank)
    elif random.random() < 0.4:
        dimensions = _dimensions(random, random.choice((1, 1, 2, 3, 4, len(dimensions))))
    if type_ == OperandType.TENSOR_QUANT8_SYMM_PER_CHANNEL:
        axis = random.choice((0, len(dimensions) - 1))
        scales = tuple(float(np.float32(random.choice(_SCALES))) for _ in range(dimensions[axis]))
        return Operand(type_, dimensions, extra_params=SymmPerChannelQuantParams(scales, axis))
    if type_ not in _QUANTIZED:
        return Operand(type_, dimensions)
    scale = writer.scale if random.random() < 0.7 else random.choice(_SCALES)
    return Operand(type_, dimensions, float(np.float32(scale)), random.choice(_QUANTIZED[OperandType(type_)]))


def _value(random: Random, operand: Operand) -> AnyArray:
    dtype = DTYPES[operand.type]
    count = int(np.prod(operand.dimensions, dtype=np.int64))
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            values = np.array([random.choice(_REALS) for _ in range(count)]).astype(dtype)
    elif dtype.itemsize == 1:
        values = np.frombuffer(random.randbytes(count), np.uint8).astype(dtype)
    else:
        limits = np.iinfo(dtype.str)
        picked = [min(max(random.choice(_INTEGERS), limits.min), limits.max) for _ in range(count)]
        values = np.array(picked, dtype)
    return values.reshape(operand.dimensions)
