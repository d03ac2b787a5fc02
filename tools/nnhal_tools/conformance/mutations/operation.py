"""Mutations of the type and the operand indexes of an operation (VALMODEL-14 to -16)."""

from collections.abc import Iterator
from functools import partial

from nnhal.v1 import types_pb2
from nnhal_tools.conformance.mutations import Edit, ValidModel, mutation

UNKNOWN_TYPES = (-1, 106)


@mutation("VALMODEL-14")
def unknown_type(model: ValidModel) -> Iterator[Edit]:
    """Give each operation the type numbers just below and just above the valid ones."""
    for n in range(len(model.operations)):
        for number in UNKNOWN_TYPES:
            change = partial(_set_type, operation=n, number=number)
            yield Edit(f"{model.operation_name(n)} with type {number}", change)


def _set_type(model: types_pb2.Model, *, operation: int, number: int) -> None:
    model.main.operations[operation].type = number  # type: ignore[assignment]


@mutation("VALMODEL-15")
def input_out_of_range(model: ValidModel) -> Iterator[Edit]:
    """Replace each input of each operation by the index after the last operand."""
    yield from _index_out_of_range(model, "inputs")


@mutation("VALMODEL-16")
def output_out_of_range(model: ValidModel) -> Iterator[Edit]:
    """Replace each output of each operation by the index after the last operand."""
    yield from _index_out_of_range(model, "outputs")


def _index_out_of_range(model: ValidModel, name: str) -> Iterator[Edit]:
    for n, operation in enumerate(model.operations):
        for k in range(len(getattr(operation, name))):
            change = partial(_set_index, operation=n, name=name, position=k, index=len(model.operands))
            yield Edit(f"{name[:-1]} {k} of {model.operation_name(n)} is operand {len(model.operands)}", change)


def _set_index(model: types_pb2.Model, *, operation: int, name: str, position: int, index: int) -> None:
    getattr(model.main.operations[operation], name)[position] = index
