"""Mutations of an operation's type and of its indexes (VALMODEL-14 to -16)."""

from collections.abc import Iterator
from functools import partial

from nnhal.v1 import types_pb2
from tools.conformance.mutations import Base, Edit, mutation

NO_TYPES = (-1, 106)


@mutation("VALMODEL-14")
def type_that_does_not_exist(base: Base) -> Iterator[Edit]:
    """Gives each operation types below and above all that exist."""
    for n in range(len(base.operations)):
        for number in NO_TYPES:
            change = partial(_set_type, operation=n, number=number)
            yield Edit(f"{base.operation_name(n)} with type {number}", change)


def _set_type(model: types_pb2.Model, *, operation: int, number: int) -> None:
    model.main.operations[operation].type = number  # type: ignore[assignment]


@mutation("VALMODEL-15")
def input_that_does_not_exist(base: Base) -> Iterator[Edit]:
    """Lets each operation read the operand after the last."""
    yield from _beyond_the_last(base, "inputs")


@mutation("VALMODEL-16")
def output_that_does_not_exist(base: Base) -> Iterator[Edit]:
    """Lets each operation write the operand after the last."""
    yield from _beyond_the_last(base, "outputs")


def _beyond_the_last(base: Base, name: str) -> Iterator[Edit]:
    for n, operation in enumerate(base.operations):
        for k in range(len(getattr(operation, name))):
            change = partial(_set_index, operation=n, name=name, position=k, index=len(base.operands))
            yield Edit(f"{name[:-1]} {k} of {base.operation_name(n)} is operand {len(base.operands)}", change)


def _set_index(model: types_pb2.Model, *, operation: int, name: str, position: int, index: int) -> None:
    getattr(model.main.operations[operation], name)[position] = index
