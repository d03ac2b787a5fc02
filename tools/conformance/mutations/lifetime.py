"""Mutations of an operand's lifetime (VALMODEL-10, -11).

The vendor test suite leaves a CONSTANT_COPY out that would make the message larger than Binder takes; here the limit is
what this contract takes in one message.
"""

from collections.abc import Iterator, Mapping
from functools import partial

from nnhal.types import OperandLifeTime as L
from nnhal.v1 import types_pb2
from tools.conformance.mutations import Base, Edit, known_byte_size, mutation

LARGEST_MODEL = 2 * 2**20
"""Bytes of a model in a message, after the mutation."""

_CONSTANTS = (L.CONSTANT_COPY, L.CONSTANT_POOL)

WRONG_WRITER = {
    **dict.fromkeys((L.SUBGRAPH_OUTPUT, L.TEMPORARY_VARIABLE), (L.SUBGRAPH_INPUT, L.CONSTANT_COPY)),
    **dict.fromkeys((*_CONSTANTS, L.SUBGRAPH_INPUT), (L.TEMPORARY_VARIABLE, L.SUBGRAPH_OUTPUT)),
}
"""Lifetimes that having a writer, or none, forbids (checklist 4.2)."""

WRONG_LISTS = {
    **dict.fromkeys(_CONSTANTS, (L.SUBGRAPH_INPUT,)),
    L.SUBGRAPH_INPUT: (L.CONSTANT_COPY,),
    L.SUBGRAPH_OUTPUT: (L.TEMPORARY_VARIABLE,),
    L.TEMPORARY_VARIABLE: (L.SUBGRAPH_OUTPUT,),
}
"""Lifetimes that the lists of inputs and outputs contradict when these stay as they are (checklist 4.3)."""


@mutation("VALMODEL-10")
def lifetime_against_its_writer(base: Base) -> Iterator[Edit]:
    """Changes lifetimes, and keeps the lists in step."""
    yield from _edits(base, WRONG_WRITER, keep_lists=False)


@mutation("VALMODEL-11")
def lifetime_against_the_lists(base: Base) -> Iterator[Edit]:
    """Changes lifetimes, and leaves the lists."""
    yield from _edits(base, WRONG_LISTS, keep_lists=True)


def _edits(base: Base, table: Mapping[L, tuple[L, ...]], *, keep_lists: bool) -> Iterator[Edit]:
    size = base.model.ByteSize()
    for i, operand in enumerate(base.operands):
        for lifetime in table.get(L(operand.lifetime), ()):
            if lifetime == L.CONSTANT_COPY and not _fits(base, operand, size):
                continue
            change = partial(_change, operand=i, lifetime=lifetime, keep_lists=keep_lists)
            yield Edit(f"{base.operand_name(i)}, {L(operand.lifetime).name}, made {lifetime.name}", change)


def _fits(base: Base, operand: types_pb2.Operand, size: int) -> bool:
    length = known_byte_size(operand)
    growth = max(0, length - len(base.model.operand_values))
    return length > 0 and size + growth <= LARGEST_MODEL


def _change(model: types_pb2.Model, *, operand: int, lifetime: L, keep_lists: bool) -> None:
    message = model.main.operands[operand]
    if not keep_lists:
        for list_ in (model.main.input_indexes, model.main.output_indexes):
            list_[:] = [i for i in list_ if i != operand]
        if lifetime == L.SUBGRAPH_INPUT:
            model.main.input_indexes.append(operand)
        elif lifetime == L.SUBGRAPH_OUTPUT:
            model.main.output_indexes.append(operand)
    message.lifetime = int(lifetime)  # type: ignore[assignment]
    message.ClearField("location")
    if lifetime == L.CONSTANT_COPY:
        message.location.length = known_byte_size(message)
        model.operand_values += bytes(max(0, message.location.length - len(model.operand_values)))
