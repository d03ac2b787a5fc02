"""Small valid models, and functions that return modified copies of models."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nnhal.types import (
    DataLocation,
    Memory,
    Model,
    Operand,
    OperandLifeTime,
    OperandType,
    Operation,
    OperationType,
    Subgraph,
)

EXTENSION = 0x10000
"""Type 0 of the extension with prefix 1, as an operand or an operation. Its arguments are not checked."""

TEMPORARY, INPUT, OUTPUT, COPY, POOL, NO_VALUE, SUBGRAPH = OperandLifeTime


@dataclass(frozen=True)
class ModelCase:
    """A model that breaks one rule.

    Attributes:
        rule: the rule under test.
        model: the model.
        reason: a part of the error's reason.
        raised: id in the error, if `rule` only applies another rule.
    """

    rule: str
    model: Model
    reason: str
    raised: str = ""


def tensor(lifetime: int, dimensions: tuple[int, ...] = (2, 3), **fields: Any) -> Operand:
    """Return a TENSOR_FLOAT32."""
    return Operand(**{"type": OperandType.TENSOR_FLOAT32, "dimensions": dimensions, "lifetime": lifetime, **fields})


def reference(number: int, **fields: Any) -> Operand:
    """Return a SUBGRAPH operand."""
    return Operand(OperandType.SUBGRAPH, lifetime=SUBGRAPH, location=DataLocation(offset=number), **fields)


def passing(*operands: Operand) -> Subgraph:
    """Return a subgraph whose one operation, of an extension, turns its inputs into its outputs."""
    inputs = tuple(i for i, operand in enumerate(operands) if operand.lifetime == INPUT)
    outputs = tuple(i for i, operand in enumerate(operands) if operand.lifetime == OUTPUT)
    return Subgraph(operands, (Operation(EXTENSION, inputs, outputs),), inputs, outputs)


BOOL = Operand(OperandType.TENSOR_BOOL8, (1,))

# y = (x + copied constant) + constant in a pool
ADDITION = Model(
    Subgraph(
        (
            tensor(INPUT),
            tensor(COPY, (3,), location=DataLocation(0, 0, 12)),
            Operand(OperandType.INT32, lifetime=COPY, location=DataLocation(0, 12, 4)),
            tensor(TEMPORARY),
            tensor(POOL, (3,), location=DataLocation(0, 4, 12)),
            tensor(OUTPUT),
        ),
        (Operation(OperationType.ADD, (0, 1, 2), (3,)), Operation(OperationType.ADD, (3, 4, 2), (5,))),
        (0,),
        (5,),
    ),
    operand_values=bytes(16),
    pools=(Memory(np.zeros(16, np.uint8)),),
)

BRANCH = Model(
    Subgraph(
        (replace(BOOL, lifetime=INPUT), reference(0), reference(1), tensor(INPUT), tensor(OUTPUT)),
        (Operation(OperationType.IF, (0, 1, 2, 3), (4,)),),
        (0, 3),
        (4,),
    ),
    (passing(tensor(INPUT), tensor(OUTPUT)), passing(tensor(INPUT), tensor(OUTPUT))),
)

# The first value is an output of the loop, the second is only passed on, the third does not change.
LOOP = Model(
    Subgraph(
        (reference(0), reference(1), tensor(INPUT), tensor(INPUT), tensor(INPUT), tensor(OUTPUT)),
        (Operation(OperationType.WHILE, (0, 1, 2, 3, 4), (5,)),),
        (2, 3, 4),
        (5,),
    ),
    (
        passing(tensor(INPUT), tensor(INPUT), tensor(INPUT), replace(BOOL, lifetime=OUTPUT)),
        passing(tensor(INPUT), tensor(INPUT), tensor(INPUT), tensor(OUTPUT), tensor(OUTPUT)),
    ),
)


def with_subgraph(model: Model, number: int, subgraph: Subgraph) -> Model:
    """Return the model with another subgraph `number` (0: main)."""
    if number == 0:
        return replace(model, main=subgraph)
    referenced = list(model.referenced)
    referenced[number - 1] = subgraph
    return replace(model, referenced=tuple(referenced))


def edited(model: Model, number: int = 0, **fields: Any) -> Model:
    """Return the model with fields of subgraph `number` replaced."""
    return with_subgraph(model, number, replace(model.subgraphs[number], **fields))


def with_operand(model: Model, index: int, number: int = 0, **fields: Any) -> Model:
    """Return the model with fields of an operand replaced."""
    operands = list(model.subgraphs[number].operands)
    operands[index] = replace(operands[index], **fields)
    return edited(model, number, operands=tuple(operands))


def with_location(model: Model, index: int, number: int = 0, **fields: int) -> Model:
    """Return the model with fields of an operand's location replaced."""
    location = replace(model.subgraphs[number].operands[index].location, **fields)
    return with_operand(model, index, number, location=location)


def with_operation(model: Model, index: int, number: int = 0, **fields: Any) -> Model:
    """Return the model with fields of an operation replaced."""
    operations = list(model.subgraphs[number].operations)
    operations[index] = replace(operations[index], **fields)
    return edited(model, number, operations=tuple(operations))


def adding(model: Model, *operands: Operand, number: int = 0) -> Model:
    """Return the model with further, unused operands."""
    return edited(model, number, operands=model.subgraphs[number].operands + operands)


def spare(type_: int, dimensions: tuple[int, ...] = (), **fields: Any) -> Model:
    """Return ADDITION with an unused operand 6 of lifetime NO_VALUE, which is checked nevertheless (V-OPERAND-14)."""
    return adding(ADDITION, Operand(type_, dimensions, **{"lifetime": NO_VALUE, **fields}))
