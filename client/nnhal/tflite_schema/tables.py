"""Tables of the TFLite schema, and their fields by number, from `schema.txt`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SCALARS: Mapping[str, str] = {
    "bool": "B",
    "int8": "b",
    "uint8": "B",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float32": "f",
}
"""Codes of scalars in struct and numpy."""


@dataclass(frozen=True, slots=True)
class SchemaField:
    """A field of a table.

    Attributes:
        type: a scalar, a table, `string`, `region` (begin and end of a vector of bytes), `offset` (position of a table
            of any type) or `ignored`.
        fixed: whether a strict reader refuses other values than the default.
    """

    name: str
    type: str
    is_vector: bool
    default: object
    fixed: bool


def parse_tables(text: str) -> dict[str, tuple[SchemaField, ...]]:
    """Return tables by name from lines as in `schema.txt`."""
    joined = text.strip().replace("\n ", " ").splitlines()
    lines = (line.split() for line in joined if line and not line.startswith("#"))
    return {name: tuple(map(_field, fields)) for name, *fields in lines}


def _field(text: str) -> SchemaField:
    name, _, rest = text.removesuffix("!").partition(":")
    type_, _, number = rest.partition("=")
    default: object = None
    if type_ in SCALARS:
        default = float(number or 0) if type_ == "float32" else int(number or 0)
        default = bool(default) if type_ == "bool" else default
    return SchemaField(name, type_.strip("[]"), type_.startswith("["), default, text.endswith("!"))


TABLES: Mapping[str, tuple[SchemaField, ...]] = parse_tables(Path(__file__).with_name("schema.txt").read_text())
"""All tables by name."""

_OPTIONS = {name: fields for name, fields in TABLES.items() if name.endswith("Options")}
_OLDER = list(_OPTIONS).index("RightShiftOptions") + 1

OPTIONS: Mapping[str, tuple[SchemaField, ...]] = dict(list(_OPTIONS.items())[:_OLDER])
"""Tables of options by name, in the order of their numbers in BuiltinOptions."""
OPTIONS_NUMBERS: Mapping[str, int] = {name: number for number, name in enumerate(OPTIONS, 1)}
"""Numbers of the tables of options in BuiltinOptions, which begin with 1."""
OPTIONS_NAMES: Mapping[int, str] = {number: name for name, number in OPTIONS_NUMBERS.items()}

NEWER_OPTIONS: Mapping[str, tuple[SchemaField, ...]] = dict(list(_OPTIONS.items())[_OLDER:])
"""The same for BuiltinOptions2."""
NEWER_OPTIONS_NUMBERS: Mapping[str, int] = {name: number for number, name in enumerate(NEWER_OPTIONS, 1)}
NEWER_OPTIONS_NAMES: Mapping[int, str] = {number: name for name, number in NEWER_OPTIONS_NUMBERS.items()}
