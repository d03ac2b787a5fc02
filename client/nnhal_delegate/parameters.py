"""Options of operators in LiteRT's parameter structures, as fields of the option tables of .tflite files.

`parameters.txt` has the layout of the structures.
"""

import ctypes
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nnhal.tflite_schema import TensorType
from nnhal_delegate.tensor_types import tensor_type

_CODES = {"bool": "?", "float": "f"}
"""Codes of the types of fields in `struct`; all others are a C int."""
_CONVERSIONS: Mapping[str, Callable[[int], int]] = {
    "padding": lambda number: number - 1,
    "mirror": lambda number: number - 1,
    "type": tensor_type,
    "bias": tensor_type,
}
"""Numbers in the file, by the type of the field, where LiteRT's enumeration has other ones."""
_FIELD = re.compile(
    r"(?P<name>\w+):(?P<type>\w+)(?P<array>\[8\]|\*)?(?:#(?P<length>\d+))?@(?P<offset>\d+)(?:>=(?P<since>\d+))?"
)


@dataclass(frozen=True, slots=True)
class ParameterField:
    """A field of a parameter structure, see `parameters.txt`.

    Attributes:
        array: "[8]" for an array in the structure, "*" for a pointer to one, or "".
        length: offset of the length of the array.
        since: the first version of the operator that has the field.
    """

    name: str
    type: str
    offset: int
    array: str = ""
    length: int = 0
    since: int = 1

    def read(self, address: int) -> Any:
        """Return the value in the structure at an address."""
        code, place = _CODES.get(self.type, "i"), address + self.offset
        if self.array:
            (count,) = _unpack("i", 1, address + self.length)
            if self.array == "*":
                (place,) = _unpack("Q", 1, place)
            return _unpack(code, count, place)
        (value,) = _unpack(code, 1, place)
        return _CONVERSIONS[self.type](value) if self.type in _CONVERSIONS else value


def _unpack(code: str, count: int, address: int) -> tuple[Any, ...]:
    layout = f"<{count}{code}"
    return struct.unpack(layout, ctypes.string_at(address, struct.calcsize(layout)))


@dataclass(frozen=True, slots=True)
class ParameterStructure:
    """A parameter structure, and the option table with the same fields."""

    table: str
    fields: tuple[ParameterField, ...]


def read_structures(text: str) -> dict[str, ParameterStructure]:
    """Return the structure of each operator, from lines as in `parameters.txt`."""
    lines = (line.split() for line in text.replace("\n ", " ").splitlines() if line and not line.startswith("#"))
    structures: dict[str, ParameterStructure] = {}
    for table, operators, *fields in lines:
        structure = ParameterStructure(table, tuple(map(_field, fields)))
        structures.update(dict.fromkeys(operators.split(","), structure))
    return structures


def _field(text: str) -> ParameterField:
    match = _FIELD.fullmatch(text)
    assert match is not None, text
    values: dict[str, Any] = {
        name: int(value) if value.isdigit() else value for name, value in match.groupdict().items() if value
    }
    return ParameterField(**values)


STRUCTURES = read_structures(Path(__file__).with_name("parameters.txt").read_text("utf-8"))


def read_options(operator: str, version: int, address: int, types: Sequence[int]) -> tuple[str, dict[str, Any]]:
    """Return the name of an operator's option table and its fields; ("", {}) for an operator without options.

    Args:
        operator: its name.
        version: its version.
        address: where the parameter structure is, or 0.
        types: types of its inputs. The type of a bias matters for int16 only, and counts if it is that of an input:
            older hosts do not have the field.
    """
    structure = STRUCTURES.get(operator)
    if structure is None or not address:
        return "", {}
    has_bias_type = TensorType.INT16 in types[:1]
    fields = {
        field.name: field.read(address)
        for field in structure.fields
        if version >= field.since and (field.type != "bias" or has_bias_type)
    }
    if fields.get("quantized_bias_type") not in types[2:]:
        fields.pop("quantized_bias_type", None)
    return structure.table, fields
