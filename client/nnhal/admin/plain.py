"""Messages of nnhal.admin.v1 as plain values, for JSON and for tables."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from google.protobuf.message import Message


def to_plain(message: "Message") -> dict[str, Any]:
    """Return a message as plain values, with all its fields. Unlike in the JSON of protobuf, integers are numbers."""
    plain: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is None:
            plain[field.name] = list(value) if field.is_repeated else value
        elif field.message_type.GetOptions().map_entry:
            plain[field.name] = dict(value)
        else:
            plain[field.name] = [to_plain(each) for each in value] if field.is_repeated else to_plain(value)
    return plain
