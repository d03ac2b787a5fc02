"""Mutations of an operand's lifetime (VALMODEL-10, -11).

The vendor test suite skips a CONSTANT_COPY that would exceed the size limit of Binder. Here the limit is the maximum
message size of the contract.
"""

from collections.abc import Iterator, Mapping
from functools import partial

from nnhal.types import OperandLifeTime as L
from nnhal.v1 import types_pb2
from nnhal_tools.conformance.mutations import Edit, ValidModel, known_byte_size, mutation

MAX_MODEL_BYTES = 2 * 2**20
"""Maximum size of a mutated model in a message."""

_CONSTANTS = (L.CONSTANT_COPY, L.CONSTANT_POOL)

LIFETIMES_AGAINST_WRITER = {
    **dict.fromkeys((L.SUBGRAPH_OUTPUT, L.TEMPORARY_VARIABLE), (L.SUBGRAPH_INPUT, L.CONSTANT_COPY)),
    **dict.fromkeys((*_CONSTANTS, L.SUBGRAPH_INPUT), (L.TEMPORARY_VARIABLE, L.SUBGRAPH_OUTPUT)),
}
"""Lifetimes that are invalid because an operation writes the operand, or because none does (checklist 4.2)."""

LIFETIMES_AGAINST_INDEX_LISTS = {
    **dict.fromkeys(_CONSTANTS, (L.SUBGRAPH_INPUT,)),
    L.SUBGRAPH_INPUT: (L.CONSTANT_COPY,),
    L.SUBGRAPH_OUTPUT: (L.TEMPORARY_VARIABLE,),
    L.TEMPORARY_VARIABLE: (L.SUBGRAPH_OUTPUT,),
}
"""Lifetimes that contradict the unchanged lists of model inputs and outputs (checklist 4.3)."""


@mutation("VALMODEL-10")
def lifetime_contradicts_writer(model: ValidModel) -> Iterator[Edit]:
    """Change lifetimes so that they contradict the operations, and update the index lists."""
    yield from _edits(model, LIFETIMES_AGAINST_WRITER, keep_index_lists=False)


@mutation("VALMODEL-11")
def lifetime_contradicts_index_lists(model: ValidModel) -> Iterator[Edit]:
    """Change lifetimes and leave the index lists of the model unchanged."""
    yield from _edits(model, LIFETIMES_AGAINST_INDEX_LISTS, keep_index_lists=True)


def _edits(model: ValidModel, table: Mapping[L, tuple[L, ...]], *, keep_index_lists: bool) -> Iterator[Edit]:
    size = model.message.ByteSize()
    for i, operand in enumerate(model.operands):
        for lifetime in table.get(L(operand.lifetime), ()):
            if lifetime == L.CONSTANT_COPY and not _fits(model, operand, size):
                continue
            change = partial(_set_lifetime, operand=i, lifetime=lifetime, keep_index_lists=keep_index_lists)
            yield Edit(f"{model.operand_name(i)}, {L(operand.lifetime).name}, changed to {lifetime.name}", change)


def _fits(model: ValidModel, operand: types_pb2.Operand, size: int) -> bool:
    length = known_byte_size(operand)
    growth = max(0, length - len(model.message.operand_values))
    return length > 0 and size + growth <= MAX_MODEL_BYTES


def _set_lifetime(model: types_pb2.Model, *, operand: int, lifetime: L, keep_index_lists: bool) -> None:
    message = model.main.operands[operand]
    if not keep_index_lists:
        for indexes in (model.main.input_indexes, model.main.output_indexes):
            indexes[:] = [i for i in indexes if i != operand]
        if lifetime == L.SUBGRAPH_INPUT:
            model.main.input_indexes.append(operand)
        elif lifetime == L.SUBGRAPH_OUTPUT:
            model.main.output_indexes.append(operand)
    message.lifetime = int(lifetime)  # type: ignore[assignment]
    message.ClearField("location")
    if lifetime == L.CONSTANT_COPY:
        message.location.length = known_byte_size(message)
        model.operand_values += bytes(max(0, message.location.length - len(model.operand_values)))
