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
    return _converter(type_, _ENCODING)(value)


def decode(type_: type[T], data: Any) -> T:
    """Return the value that was encoded as `data`."""
    converter: Convert = _converter(type_, _DECODING)  # type: ignore[arg-type]
    value: T = converter(data)
    return value


class _Direction:
    """Converters of one direction, for plain types, dataclasses and unions."""

    def __init__(
        self, plain: Mapping[Any, Convert], dataclass: Callable[..., Convert], union: Callable[..., Convert]
    ) -> None:
        self.plain = plain
        self.dataclass = dataclass
        self.union = union


@cache
def _converter(type_: Any, direction: _Direction) -> Convert:
    if found := direction.plain.get(type_):
        return found
    origin, members = get_origin(type_), get_args(type_)
    if origin in (Union, UnionType):
        return direction.union(members, [_converter(one, direction) for one in members])
    if origin is tuple and members[1:] == (...,):
        return _each(_converter(members[0], direction))
    if is_dataclass(type_):
        hints = get_type_hints(type_)
        names = [field.name for field in fields(type_)]
        return direction.dataclass(type_, names, [_converter(hints[name], direction) for name in names])
    if type_ is NoneType:
        return _same
    raise TypeError(f"{type_} has no form in the cache")


def _same(value: Any) -> Any:
    return value


def _each(convert: Convert) -> Convert:
    if convert is _same:
        return tuple
    return lambda value: tuple([convert(item) for item in value])


def _encode_dataclass(type_: type, names: list[str], converters: list[Convert]) -> Convert:
    pairs = list(zip(names, converters, strict=True))
    return lambda value: [convert(getattr(value, name)) for name, convert in pairs]


def _decode_dataclass(type_: type, names: list[str], converters: list[Convert]) -> Convert:
    special = [(place, convert) for place, convert in enumerate(converters) if convert is not _same]
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


_ENCODING = _Direction(
    # enums and numpy's numbers become plain ones
    {int: int, float: float, str: str, bool: bool, bytes: bytes.hex},
    _encode_dataclass,
    _encode_union,
)
_DECODING = _Direction(
    {int: _same, float: _same, str: _same, bool: _same, bytes: bytes.fromhex},
    _decode_dataclass,
    lambda members, converters: lambda data: None if data is None else converters[data[0]](data[1]),
)
