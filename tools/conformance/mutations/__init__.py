"""Mutations that make a valid model invalid (checklist 4): each a small function, registered with its id.

A mutator looks at a model and gives edits, each of which is made on a fresh copy. Only the main graph is mutated.
"""

import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from nnhal.types import OperandType, byte_size, is_fully_specified, operation_name, type_name
from nnhal.v1 import types_pb2
from tools.conformance.ids import known


@dataclass(frozen=True)
class Edit:
    """One change. `place`: what it changes, in words. `make`: changes a copy of the model."""

    place: str
    make: Callable[[types_pb2.Model], None]


class Base:
    """A valid model, and what mutators ask of it."""

    def __init__(self, model: types_pb2.Model) -> None:
        self.model = model
        self.operands = list(model.main.operands)
        self.operations = list(model.main.operations)

    @cached_property
    def consumers(self) -> Counter[int]:
        """How often each operand appears among the inputs of operations."""
        return Counter(i for operation in self.operations for i in operation.inputs)

    def producers(self, operand: int) -> list[str]:
        """Names of the operations that write an operand."""
        return [operation_name(int(o.type)) for o in self.operations if operand in o.outputs]

    def operand_name(self, index: int) -> str:
        """What a failure calls an operand."""
        return f"operand {index} ({type_name(int(self.operands[index].type))})"

    def operation_name(self, index: int) -> str:
        """What a failure calls an operation."""
        return f"operation {index} ({operation_name(int(self.operations[index].type))})"

    def edited(self, edit: Edit) -> types_pb2.Model:
        """A copy with an edit made."""
        copy = types_pb2.Model()
        copy.CopyFrom(self.model)
        edit.make(copy)
        return copy


Mutator = Callable[[Base], Iterator[Edit]]

MUTATORS: dict[str, Mutator] = {}
"""By id."""


def mutation(check: str) -> Callable[[Mutator], Mutator]:
    """Registers a mutator."""

    def register(mutator: Mutator) -> Mutator:
        MUTATORS[known(check)] = mutator
        return mutator

    return register


def load() -> dict[str, Mutator]:
    """Every mutator, by id."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    return dict(sorted(MUTATORS.items()))


# ---- What several mutators do ---------------------------------------------------------------------------


def known_byte_size(operand: types_pb2.Operand) -> int:
    """Bytes of an operand's value; 0 where its shape is not known."""
    type_, dimensions = int(operand.type), tuple(operand.dimensions)
    known_shape = type_ != OperandType.SUBGRAPH and is_fully_specified(type_, dimensions)
    return byte_size(type_, dimensions) if known_shape else 0


def add_temporary_like(main: types_pb2.Subgraph, operand: int) -> int:
    """Adds a TEMPORARY_VARIABLE with the type of an operand; gives its index."""
    clone = main.operands.add()
    clone.CopyFrom(main.operands[operand])
    clone.ClearField("lifetime")
    clone.ClearField("location")
    return len(main.operands) - 1


def without(values: list[int], position: int) -> list[int]:
    """A list less one entry."""
    return values[:position] + values[position + 1 :]
