"""Codec between frozen dataclasses of plain values and JSON. A dataclass becomes the list of its fields, in order.

The member of a union is encoded as its index in the union. Decoding does not check types, so only sealed data may be
decoded.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Convert = Callable[[Any], Any]


def encode(type_: Any, value: object) -> Any:
    """Return a value of a type in a form that json.dumps accepts."""
    return _converter(type_, True)(value)


def decode(type_: type[T], data: Any) -> T:
    """Return the value that was encoded as `data`."""
    converter: Convert = _converter(type_, False)  # type: ignore[arg-type]
    value: T = converter(data)
    return value


@cache
def _converter(type_: Any, encoding: bool) -> Convert:
    """Return the function that encodes or decodes values of a type."""
    if found := (_ENCODING if encoding else _DECODING).get(type_):
        return found
    origin, members = get_origin(type_), get_args(type_)
    if origin in (Union, UnionType):
        return (_encode_union if encoding else _decode_union)(members, [_converter(one, encoding) for one in members])
    if origin is tuple and members[1:] == (...,):
        return _each(_converter(members[0], encoding))
    if is_dataclass(type_):
        hints = get_type_hints(type_)
        converters = {field.name: _converter(hints[field.name], encoding) for field in fields(type_)}
        return (_encode_dataclass if encoding else _decode_dataclass)(type_, converters)
    if type_ is NoneType:
        return _same
    raise TypeError(f"{type_} has no form in the cache")


def _same(value: Any) -> Any:
    return value


def _each(convert: Convert) -> Convert:
    if convert is _same:
        return tuple
    return lambda value: tuple([convert(item) for item in value])


def _encode_dataclass(type_: Any, converters: Mapping[str, Convert]) -> Convert:
    pairs = list(converters.items())
    return lambda value: [convert(getattr(value, name)) for name, convert in pairs]


def _decode_dataclass(type_: Any, converters: Mapping[str, Convert]) -> Convert:
    special = [(place, convert) for place, convert in enumerate(converters.values()) if convert is not _same]
    if not special:
        return lambda data: type_(*data)

    def decoded(data: list[Any]) -> Any:
        values = data.copy()
        for place, convert in special:
            values[place] = convert(values[place])
        return type_(*values)

    return decoded


def _encode_union(members: tuple[type, ...], converters: list[Convert]) -> Convert:
    places = {member: i for i, member in enumerate(members)}
    return lambda value: None if value is None else [places[type(value)], converters[places[type(value)]](value)]


def _decode_union(members: tuple[type, ...], converters: list[Convert]) -> Convert:
    return lambda data: None if data is None else converters[data[0]](data[1])


_ENCODING: Mapping[Any, Convert] = {int: int, float: float, str: str, bool: bool, bytes: bytes.hex}
"""Converters of plain types. Enums and numpy's numbers become plain ones."""
_DECODING: Mapping[Any, Convert] = {int: _same, float: _same, str: _same, bool: _same, bytes: bytes.fromhex}
