"""Limits on the elements of encoded requests, which are counted before protobuf makes objects of them.

Protobuf parses a message in one step that holds the interpreter lock, and needs some 70 bytes for an operand that takes
two bytes in a message. The counter reads the fields of the wire format that lead to lists, and skips all others. It
ends at the first element above a limit.
"""

import threading
from collections.abc import Callable, Iterator
from functools import cache

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from nnhal.errors import invalid_argument
from nnhal_driver.scheduling.paced_check import PacedCheck, proceed
from nnhal_service.sessions.limits import Limits

_FIELD_LIMITS = {
    "nnhal.v1.Model.referenced": "subgraphs",
    "nnhal.v1.Model.pools": "pools",
    "nnhal.v1.Subgraph.operands": "operands",
    "nnhal.v1.Subgraph.operations": "operations",
    "nnhal.v1.Request.inputs": "arguments",
    "nnhal.v1.Request.outputs": "arguments",
    "nnhal.v1.Request.pools": "pools",
    "nnhal.v1.RunRequest.values": "pools",
}
"""Limits of lists, by the full name of their field. The limit of all others is `elements`."""
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_MAX_VARINT_BITS = 63
_COUNTED_TYPES = (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING)
_MIN_ELEMENT_BYTES = 2
"""Tag and length of an empty element."""
_FEW = 4096
"""Number of fields that are read at once. Larger messages take turns, so that they compete with others as one."""
_READ, _ALL = "read", 2**62
"""Key of the number of fields, and what is left of it in a turn."""
_turn = threading.Lock()

Fields = dict[int, tuple[str, "Fields"]]
"""Limit, or "", and the fields that lead to lists, by number. Other fields are left out."""
_SKIPPED: tuple[str, Fields] = ("", {})


def count_elements(message: Descriptor, limits: Limits) -> Callable[[bytes], None]:
    """Return a function that counts the messages, strings and bytes in the lists of an encoded message of a type.

    Numbers and enums are not counted: one takes at most eight times the memory of its encoding. The function raises a
    HalError: the status of a limit; INVALID_ARGUMENT: the fields of a message with many elements are incomplete.
    """
    fields = _fields(message)
    allowed = {name: limits[name] for name in _names(fields)}
    smallest = min(allowed.values(), default=0) * _MIN_ELEMENT_BYTES

    few = {**allowed, _READ: _FEW}

    def find_excess(encoded: bytes, left: dict[str, int], turn: Callable[[], None] = proceed) -> str:
        try:
            return _find_excess(encoded, (0, len(encoded)), fields, left, turn)
        except (IndexError, KeyError):
            raise invalid_argument("the request cannot be decoded: its fields are incomplete or unknown") from None

    def check(encoded: bytes) -> None:
        # a smaller message cannot have that many elements
        if fields and len(encoded) > smallest and find_excess(encoded, dict(few)):
            with _turn:
                excess = find_excess(encoded, {**allowed, _READ: _ALL}, PacedCheck(proceed))
            if excess:
                limits.require(excess, limits[excess] + 1, "the message has at least")

    return check


@cache
def _fields(message: Descriptor) -> Fields:
    """Return the fields that lead to lists, of a type of messages that cannot contain itself."""
    found: Fields = {}
    for field in message.fields:
        nested = _fields(field.message_type) if field.message_type is not None else {}
        is_counted = field.is_repeated and field.type in _COUNTED_TYPES
        if is_counted or nested:
            found[field.number] = (_FIELD_LIMITS.get(field.full_name, "elements") if is_counted else "", nested)
    return found


def _names(fields: Fields) -> Iterator[str]:
    for name, nested in fields.values():
        if name:
            yield name
        yield from _names(nested)


def _find_excess(
    encoded: bytes, span: tuple[int, int], fields: Fields, left: dict[str, int], turn: Callable[[], None]
) -> str:
    """Subtract the elements in a part of a message from what is `left` of each limit. Return the first one exceeded.

    `turn` is called between fields.
    """
    position, end = span
    while position < end:
        left[_READ] -= 1
        if not left[_READ] & 255:
            turn()
        if left[_READ] < 0:
            return _READ
        tag, position = _read_varint(encoded, position)
        kind = tag & 7
        if kind == _LENGTH_DELIMITED:
            size, position = _read_varint(encoded, position)
            name, nested = fields.get(tag >> 3, _SKIPPED)
            if name:
                left[name] -= 1
                if left[name] < 0:
                    return name
            if nested and (excess := _find_excess(encoded, (position, position + size), nested, left, turn)):
                return excess
            position += size
        elif kind == _VARINT:
            _, position = _read_varint(encoded, position)
        else:
            position += _FIXED_SIZES[kind]
    return ""


def _read_varint(encoded: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it.

    Raises:
        IndexError: the message ends in the number, or the number has more bytes than any valid one.
    """
    byte = encoded[position]
    number = byte & 127
    shift = 7
    while byte > 127:
        if shift > _MAX_VARINT_BITS:
            raise IndexError
        position += 1
        byte = encoded[position]
        number |= (byte & 127) << shift
        shift += 7
    return number, position + 1
