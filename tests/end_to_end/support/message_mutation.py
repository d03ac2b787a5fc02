"""Random mutations of protobuf messages: of their fields, by reflection, and of their bytes.

All functions take a `random.Random`, so that hypothesis can drive them (`st.randoms(use_true_random=False)`).
"""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

M = TypeVar("M", bound=Message)

_INT32 = (0, 1, 2, 3, -1, -2, 7, 64, 255, 1000, 65536, 2**31 - 1, -(2**31))
_INT64 = (*_INT32, 2**31, 2**32 - 1, 2**32, 2**40, 2**63 - 1, -(2**63))
_UINT32 = (0, 1, 32767, 32768, 65535, 2**31, 2**32 - 1)
_FLOATS = (0.0, 1.0, -1.0, 0.5, 1e-45, 1e-30, 3e38, -3e38, float("inf"), float("-inf"), float("nan"))

_NUMBERS: dict[int, tuple[Any, ...]] = {
    FieldDescriptor.CPPTYPE_INT32: _INT32,
    FieldDescriptor.CPPTYPE_ENUM: (*range(-1, 110), 10000, 10001, 65535, 65536, 0x00010007, 2**31 - 1, -(2**31)),
    FieldDescriptor.CPPTYPE_INT64: _INT64,
    FieldDescriptor.CPPTYPE_UINT32: _UINT32,
    FieldDescriptor.CPPTYPE_FLOAT: _FLOATS,
    FieldDescriptor.CPPTYPE_BOOL: (False, True),
}
"""Interesting values by type of field."""

_ZEROS = {FieldDescriptor.TYPE_BYTES: b"", FieldDescriptor.TYPE_STRING: ""}


# ---- Fields ---------------------------------------------------------------------------------------------


def mutate_message(random: Random, message: M, changes: int = 3) -> M:
    """Return a copy with one to `changes` fields changed at any depth."""
    copy = type(message)()
    copy.CopyFrom(message)
    for _ in range(random.randint(1, changes)):
        places = list(_messages(copy))
        _change(random, random.choice(places), places)
    return copy


def _messages(message: Message) -> Iterator[Message]:
    """Yield a message and all messages inside it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.is_repeated else [value]:
                yield from _messages(inner)


def _change(random: Random, message: Message, others: list[Message]) -> None:
    fields: Sequence[Any] = message.DESCRIPTOR.fields
    if not fields:
        return
    field = random.choice(fields)
    if field.is_repeated:
        random.choice(_LIST_CHANGES)(random, message, field, others)
    elif field.message_type is not None:
        _change_message(random, message, field, others)
    else:
        setattr(message, field.name, _value(random, field, getattr(message, field.name)))


def _change_message(random: Random, message: Message, field: FieldDescriptor, others: list[Message]) -> None:
    """Clear a message field, set it to an empty message, or to another message of its type."""
    choice = random.randrange(3)
    if choice == 0:
        message.ClearField(field.name)
    elif choice == 1:
        getattr(message, field.name).SetInParent()
    else:
        alike = [other for other in others if other.DESCRIPTOR is field.message_type]
        if alike:
            other = type(alike[0])()
            other.CopyFrom(random.choice(alike))
            getattr(message, field.name).CopyFrom(other)


def _value(random: Random, field: FieldDescriptor, old: Any) -> Any:
    """Return another value for a scalar, string or bytes field."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return (
                mutate_bytes(random, old) if old and random.random() < 0.7 else random.randbytes(random.randrange(40))
            )
        return random.choice(("", "nnhal", "other", "a.b", "\0", "ü" * 50, old + "x"))
    numbers = _NUMBERS[field.cpp_type]
    if field.cpp_type in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64) and random.random() < 0.4:
        return max(-(2**31), min(2**31 - 1, old + random.choice((-1, 1, 4))))
    return random.choice(numbers)


# ---- Lists ----------------------------------------------------------------------------------------------

ListChange = Callable[[Random, Message, FieldDescriptor, list[Message]], None]


def _remove(random: Random, message: Message, field: FieldDescriptor, others: list[Message]) -> None:
    entries = getattr(message, field.name)
    if len(entries):
        del entries[random.randrange(len(entries))]


def _empty(random: Random, message: Message, field: FieldDescriptor, others: list[Message]) -> None:
    del getattr(message, field.name)[:]


def _add(random: Random, message: Message, field: FieldDescriptor, others: list[Message]) -> None:
    """Append one element, or very many."""
    entries = getattr(message, field.name)
    count = 1 if random.random() < 0.9 else random.choice((10, 70, 1000))
    if field.message_type is None:
        entries.extend([_value(random, field, _ZEROS.get(field.type, 0))] * count)
        return
    alike = [other for other in others if other.DESCRIPTOR is field.message_type]
    more = [random.choice(alike) if alike else type(entries.add())() for _ in range(min(count, 70))]
    entries.extend(more)


def _alter(random: Random, message: Message, field: FieldDescriptor, others: list[Message]) -> None:
    entries = getattr(message, field.name)
    if not len(entries):
        return
    i = random.randrange(len(entries))
    if field.message_type is None:
        entries[i] = _value(random, field, entries[i])
    else:
        _change(random, entries[i], others)


def _swap(random: Random, message: Message, field: FieldDescriptor, others: list[Message]) -> None:
    entries = getattr(message, field.name)
    if len(entries) < 2:
        return
    i, j = random.randrange(len(entries)), random.randrange(len(entries))
    if field.message_type is None:
        entries[i], entries[j] = entries[j], entries[i]
    else:
        entries[i].CopyFrom(entries[j])


_LIST_CHANGES: tuple[ListChange, ...] = (_remove, _empty, _add, _alter, _alter, _alter, _swap)


# ---- Bytes ----------------------------------------------------------------------------------------------


def _flip(random: Random, raw: bytearray) -> None:
    raw[random.randrange(len(raw))] ^= 1 << random.randrange(8)


def _cut(random: Random, raw: bytearray) -> None:
    del raw[random.randrange(len(raw)) :]


def _drop(random: Random, raw: bytearray) -> None:
    start = random.randrange(len(raw))
    del raw[start : start + random.randint(1, 8)]


def _insert(random: Random, raw: bytearray) -> None:
    start = random.randrange(len(raw))
    raw[start:start] = random.randbytes(random.randint(1, 8))


def _overwrite(random: Random, raw: bytearray) -> None:
    start = random.randrange(len(raw))
    raw[start : start + 4] = random.choice((b"\xff" * 4, b"\0" * 4, b"\x7f" * 4, random.randbytes(4)))


_BYTE_CHANGES = (_flip, _flip, _cut, _drop, _insert, _overwrite)


def mutate_bytes(random: Random, raw: bytes, changes: int = 3) -> bytes:
    """Return a copy with some bits flipped, or with bytes truncated, removed, inserted or overwritten."""
    copy = bytearray(raw)
    for _ in range(random.randint(1, changes)):
        if copy:
            random.choice(_BYTE_CHANGES)(random, copy)
    return bytes(copy)
