"""Mutations that make a valid model invalid (checklist 4).

Each mutator is a function that is registered with its check id. It yields the edits that apply to a model, and each
edit is applied to a fresh copy. Only the main subgraph is mutated.
"""

import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property

from nnhal.types import OperandType, byte_size, is_fully_specified, operation_name, type_name
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.ids import validate_id


@dataclass(frozen=True)
class Edit:
    """Change in a copy of a model, with a description of the changed part and the change for failure messages."""

    description: str
    apply: Callable[[types_pb2.Model], None]


class ValidModel:
    """Valid model to mutate, with the queries that mutators share."""

    def __init__(self, model: types_pb2.Model) -> None:
        self.message = model
        self.operands = list(model.main.operands)
        self.operations = list(model.main.operations)

    @cached_property
    def read_counts(self) -> Counter[int]:
        """Number of times that each operand is an input of an operation."""
        return Counter(i for operation in self.operations for i in operation.inputs)

    def producers(self, operand: int) -> list[str]:
        """Return the names of the operations that write an operand."""
        return [operation_name(int(o.type)) for o in self.operations if operand in o.outputs]

    def operand_name(self, index: int) -> str:
        """Return the name of an operand in failure messages."""
        return f"operand {index} ({type_name(int(self.operands[index].type))})"

    def operation_name(self, index: int) -> str:
        """Return the name of an operation in failure messages."""
        return f"operation {index} ({operation_name(int(self.operations[index].type))})"

    def with_edit(self, edit: Edit) -> types_pb2.Model:
        """Return a copy of the model with an edit applied."""
        copy = deepcopy(self.message)
        edit.apply(copy)
        return copy


Mutator = Callable[[ValidModel], Iterator[Edit]]

MUTATORS: dict[str, Mutator] = {}
"""Mutators by check id."""


def mutation(check: str) -> Callable[[Mutator], Mutator]:
    """Register a mutator under a check id."""

    def register(mutator: Mutator) -> Mutator:
        MUTATORS[validate_id(check)] = mutator
        return mutator

    return register


def load() -> dict[str, Mutator]:
    """Import all mutators and return them by id."""
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        importlib.import_module(module.name)
    return dict(sorted(MUTATORS.items()))


# ---- Helpers of several mutators ------------------------------------------------------------------------


def known_byte_size(operand: types_pb2.Operand) -> int:
    """Return the size of an operand's value in bytes, or 0 if its shape is not known."""
    type_, dimensions = int(operand.type), tuple(operand.dimensions)
    known_shape = type_ != OperandType.SUBGRAPH and is_fully_specified(type_, dimensions)
    return byte_size(type_, dimensions) if known_shape else 0


def add_temporary_like(main: types_pb2.Subgraph, operand: int) -> int:
    """Add a TEMPORARY_VARIABLE of an operand's type and return its index."""
    temporary = main.operands.add()
    temporary.CopyFrom(main.operands[operand])
    temporary.ClearField("lifetime")
    temporary.ClearField("location")
    return len(main.operands) - 1


def without_item(values: list[int], position: int) -> list[int]:
    """Return a copy of a list without the item at a position."""
    return values[:position] + values[position + 1 :]
