"""The check of the contract: each kind of change that breaks old peers is refused, additions pass."""

from collections.abc import Callable
from pathlib import Path

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorSet

from tools import contract_check

RELEASED = """
file {
  name: "t.proto" package: "t" syntax: "proto3"
  message_type {
    name: "Operand"
    field { name: "type" number: 1 type: TYPE_ENUM type_name: ".t.Kind" label: LABEL_OPTIONAL }
    field { name: "scale" number: 3 type: TYPE_FLOAT label: LABEL_OPTIONAL }
    field { name: "dimensions" number: 4 type: TYPE_INT32 label: LABEL_REPEATED }
    field { name: "copy" number: 5 type: TYPE_BYTES label: LABEL_OPTIONAL oneof_index: 0 }
    field { name: "pool" number: 6 type: TYPE_BYTES label: LABEL_OPTIONAL oneof_index: 0 }
    field { name: "length" number: 7 type: TYPE_INT64 label: LABEL_OPTIONAL oneof_index: 1 proto3_optional: true }
    field { name: "notes" number: 8 type: TYPE_MESSAGE type_name: ".t.Operand.NotesEntry" label: LABEL_REPEATED }
    field { name: "inner" number: 9 type: TYPE_MESSAGE type_name: ".t.Operand.Inner" label: LABEL_OPTIONAL }
    oneof_decl { name: "data" }
    oneof_decl { name: "_length" }
    nested_type {
      name: "NotesEntry"
      field { name: "key" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
      field { name: "value" number: 2 type: TYPE_BOOL label: LABEL_OPTIONAL }
      options { map_entry: true }
    }
    nested_type {
      name: "Inner"
      field { name: "depth" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL }
      enum_type { name: "Mode" value { name: "MODE_NONE" number: 0 } }
      reserved_range { start: 40 end: 41 }
    }
    reserved_range { start: 20 end: 22 }
  }
  message_type { name: "Empty" }
  enum_type {
    name: "Kind"
    value { name: "KIND_FLOAT32" number: 0 }
    value { name: "KIND_INT32" number: 1 }
    reserved_range { start: 30 end: 31 }
  }
  service {
    name: "Device"
    method { name: "Get" input_type: ".t.Empty" output_type: ".t.Operand" }
    method { name: "Watch" input_type: ".t.Empty" output_type: ".t.Operand" server_streaming: true }
  }
}
file { name: "u.proto" package: "t" syntax: "proto3" message_type { name: "Other" } }
"""

Change = Callable[[FileDescriptorSet], object]


def released() -> FileDescriptorSet:
    """A small contract with one of everything."""
    return text_format.Parse(RELEASED, FileDescriptorSet())


def operand(contract: FileDescriptorSet) -> DescriptorProto:
    return contract.file[0].message_type[0]


def field(contract: FileDescriptorSet, name: str) -> FieldDescriptorProto:
    return next(each for each in operand(contract).field if each.name == name)


def kind(contract: FileDescriptorSet) -> EnumDescriptorProto:
    return contract.file[0].enum_type[0]


def text(change: str) -> Change:
    """Merges a text into the file t.proto: repeated fields are appended to."""
    return lambda contract: text_format.Merge(change, contract.file[0])


def text_in_operand(change: str) -> Change:
    return lambda contract: text_format.Merge(change, operand(contract))


def set_all(target: object, values: dict[str, object]) -> None:
    for name, value in values.items():
        setattr(target, name, value)


def set_field(field_name: str, **values: object) -> Change:
    return lambda contract: set_all(field(contract, field_name), values)


def set_method(index: int, **values: object) -> Change:
    return lambda contract: set_all(contract.file[0].service[0].method[index], values)


def drop_presence(contract: FileDescriptorSet) -> None:
    field(contract, "length").ClearField("oneof_index")
    field(contract, "length").ClearField("proto3_optional")


def swap_numbers(contract: FileDescriptorSet) -> None:
    field(contract, "copy").number, field(contract, "pool").number = 6, 5


def move_message(contract: FileDescriptorSet) -> None:
    contract.file[0].message_type.append(contract.file[1].message_type.pop())


BREAKING: dict[str, tuple[Change, list[str]]] = {
    "file removed": (
        lambda c: c.file.pop(),
        ["file u.proto removed or renamed", "message t.Other removed or renamed"],
    ),
    "file renamed": (
        lambda c: setattr(c.file[1], "name", "v.proto"),
        ["file u.proto removed or renamed", "message t.Other changed file u.proto -> v.proto"],
    ),
    "package": (
        lambda c: setattr(c.file[1], "package", "w"),
        ["file u.proto changed package t -> w", "message t.Other removed or renamed"],
    ),
    "syntax": (lambda c: c.file[1].ClearField("syntax"), ["file u.proto changed syntax proto3 -> proto2"]),
    "service removed": (
        lambda c: c.file[0].service.pop(),
        [
            "service t.Device removed or renamed",
            "service t.Device: method Get removed or renamed",
            "service t.Device: method Watch removed or renamed",
        ],
    ),
    "method removed": (
        lambda c: c.file[0].service[0].method.pop(),
        ["service t.Device: method Watch removed or renamed"],
    ),
    "method input": (
        set_method(0, input_type=".t.Operand"),
        ["service t.Device: method Get changed input t.Empty -> t.Operand"],
    ),
    "method output": (
        set_method(0, output_type=".t.Empty"),
        ["service t.Device: method Get changed output t.Operand -> t.Empty"],
    ),
    "client streaming": (
        set_method(0, client_streaming=True),
        ["service t.Device: method Get changed client streaming no -> yes"],
    ),
    "server streaming": (
        set_method(1, server_streaming=False),
        ["service t.Device: method Watch changed server streaming yes -> no"],
    ),
    "message removed": (lambda c: c.file[0].message_type.pop(), ["message t.Empty removed or renamed"]),
    "message moved": (move_message, ["message t.Other changed file u.proto -> t.proto"]),
    "nested message removed": (
        lambda c: operand(c).nested_type.pop(),
        [
            "message t.Operand.Inner removed or renamed",
            'message t.Operand.Inner: field 1 "depth" removed or renamed',
            "enum t.Operand.Inner.Mode removed or renamed",
            'enum t.Operand.Inner.Mode: value 0 "MODE_NONE" removed or renamed',
        ],
    ),
    "field removed": (
        lambda c: operand(c).field.remove(field(c, "scale")),
        ['message t.Operand: field 3 "scale" removed or renamed'],
    ),
    "nested field removed": (
        lambda c: operand(c).nested_type[1].field.pop(),
        ['message t.Operand.Inner: field 1 "depth" removed or renamed'],
    ),
    "field renamed": (
        set_field("scale", name="factor"),
        [
            'message t.Operand: field 3 "scale" removed or renamed',
            'message t.Operand: field 3 "scale": its number is reused by "factor"',
        ],
    ),
    "field number": (
        set_field("scale", number=13),
        ['message t.Operand: field 3 "scale" changed number 3 -> 13'],
    ),
    "field numbers swapped": (
        swap_numbers,
        [
            'message t.Operand: field 5 "copy" changed number 5 -> 6',
            'message t.Operand: field 5 "copy": its number is reused by "pool"',
            'message t.Operand: field 6 "pool" changed number 6 -> 5',
            'message t.Operand: field 6 "pool": its number is reused by "copy"',
        ],
    ),
    "field type": (
        set_field("scale", type=FieldDescriptorProto.TYPE_DOUBLE),
        ['message t.Operand: field 3 "scale" changed type float -> double'],
    ),
    "field message type": (
        set_field("inner", type_name=".t.Empty"),
        ['message t.Operand: field 9 "inner" changed type t.Operand.Inner -> t.Empty'],
    ),
    "label": (
        set_field("scale", label=FieldDescriptorProto.LABEL_REPEATED),
        ['message t.Operand: field 3 "scale" changed label optional -> repeated'],
    ),
    "into a oneof": (
        set_field("scale", oneof_index=0),
        ['message t.Operand: field 3 "scale" changed oneof none -> data'],
    ),
    "out of a oneof": (
        lambda c: field(c, "pool").ClearField("oneof_index"),
        ['message t.Operand: field 6 "pool" changed oneof data -> none'],
    ),
    "presence": (
        drop_presence,
        ['message t.Operand: field 7 "length" changed presence explicit -> implicit'],
    ),
    "map value": (
        lambda c: setattr(operand(c).nested_type[0].field[1], "type", FieldDescriptorProto.TYPE_INT32),
        ['message t.Operand: field 8 "notes" changed type map<string, bool> -> map<string, int32>'],
    ),
    "map no more": (
        lambda c: operand(c).nested_type[0].ClearField("options"),
        ['message t.Operand: field 8 "notes" changed type map<string, bool> -> t.Operand.NotesEntry'],
    ),
    "reserved field number": (
        text_in_operand('field { name: "late" number: 21 type: TYPE_BOOL label: LABEL_OPTIONAL }'),
        ['message t.Operand: field 21 "late" uses a number that the release reserves'],
    ),
    "reserved number of a nested message": (
        lambda c: text_format.Merge('field { name: "late" number: 40 }', operand(c).nested_type[1]),
        ['message t.Operand.Inner: field 40 "late" uses a number that the release reserves'],
    ),
    "enum removed": (
        lambda c: c.file[0].enum_type.pop(),
        [
            "enum t.Kind removed or renamed",
            'enum t.Kind: value 0 "KIND_FLOAT32" removed or renamed',
            'enum t.Kind: value 1 "KIND_INT32" removed or renamed',
        ],
    ),
    "enum value removed": (
        lambda c: kind(c).value.pop(),
        ['enum t.Kind: value 1 "KIND_INT32" removed or renamed'],
    ),
    "enum value renamed": (
        lambda c: setattr(kind(c).value[1], "name", "KIND_UINT32"),
        [
            'enum t.Kind: value 1 "KIND_INT32" removed or renamed',
            'enum t.Kind: value 1 "KIND_INT32": its number is reused by "KIND_UINT32"',
        ],
    ),
    "enum number": (
        lambda c: setattr(kind(c).value[1], "number", 2),
        ['enum t.Kind: value 1 "KIND_INT32" changed number 1 -> 2'],
    ),
    "reserved enum number": (
        lambda c: text_format.Merge('value { name: "KIND_LATE" number: 31 }', kind(c)),
        ['enum t.Kind: value 31 "KIND_LATE" uses a number that the release reserves'],
    ),
}

COMPATIBLE: dict[str, Change] = {
    "nothing": lambda c: None,
    "file": lambda c: text_format.Merge('file { name: "v.proto" package: "t" syntax: "proto3" }', c),
    "service": text('service { name: "Burst" }'),
    "method": lambda c: text_format.Merge(
        'method { name: "Set" input_type: ".t.Empty" output_type: ".t.Empty" }', c.file[0].service[0]
    ),
    "message": text('message_type { name: "Added" }'),
    "field": text_in_operand('field { name: "added" number: 2 type: TYPE_BOOL label: LABEL_OPTIONAL }'),
    "field in a oneof": text_in_operand(
        'field { name: "added" number: 2 type: TYPE_BOOL label: LABEL_OPTIONAL oneof_index: 0 }'
    ),
    "field after the reserved ones": text_in_operand(
        'field { name: "added" number: 22 type: TYPE_BOOL label: LABEL_OPTIONAL }'
    ),
    "enum": text('enum_type { name: "Added" value { name: "ADDED_NONE" number: 0 } }'),
    "enum value": lambda c: text_format.Merge('value { name: "KIND_BOOL" number: 2 }', kind(c)),
    "another order of fields": lambda c: operand(c).field.reverse(),
}


@pytest.mark.parametrize("name", BREAKING)
def test_what_breaks_old_peers_is_named(name: str) -> None:
    change, expected = BREAKING[name]
    current = released()
    change(current)
    assert contract_check.breaks(released(), current) == expected


@pytest.mark.parametrize("name", COMPATIBLE)
def test_what_keeps_old_peers_passes(name: str) -> None:
    current = released()
    COMPATIBLE[name](current)
    assert contract_check.breaks(released(), current) == []


SOURCE = """
syntax = "proto3";
package nnhal.v1;
import "google/protobuf/any.proto";
message M {
  oneof data { bytes inline = 1; google.protobuf.Any any = 2; }
  optional int64 length = 3;
  map<string, int32> limits = 4;
}
"""


@pytest.fixture
def contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A released contract of one file, which a test then edits; the command line works on it."""
    source = tmp_path / "nnhal/v1/m.proto"
    source.parent.mkdir(parents=True)
    source.write_text(SOURCE)
    (tmp_path / "released").mkdir()
    monkeypatch.setattr(contract_check, "PROTO", tmp_path)
    monkeypatch.setattr(contract_check, "RELEASED", tmp_path / "released/v1.binpb")
    contract_check.main(["--release"])
    return source


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("optional int64", "int64", 'field 3 "length" changed presence explicit -> implicit'),
        ("optional int64", "optional int32", 'field 3 "length" changed type int64 -> int32'),
        ("oneof data", "oneof kind", 'field 1 "inline" changed oneof data -> kind'),
        ("<string, int32>", "<int32, int32>", 'field 4 "limits" changed type map<string, int32> -> map<int32, int32>'),
    ],
)
def test_command_line_ends_with_the_breaks(contract: Path, old: str, new: str, expected: str) -> None:
    contract_check.main([])
    contract.write_text(SOURCE.replace(old, new))
    with pytest.raises(SystemExit) as refused:
        contract_check.main([])
    assert f"message nnhal.v1.M: {expected}\n" in str(refused.value)


def test_only_own_files_are_released(contract: Path) -> None:
    assert [file.name for file in contract_check.compile_contract(contract.parents[2]).file] == ["nnhal/v1/m.proto"]


def test_missing_release_is_refused(contract: Path) -> None:
    contract_check.RELEASED.unlink()
    with pytest.raises(SystemExit, match=r"v1\.binpb is missing"):
        contract_check.main([])


def test_file_that_does_not_compile_is_refused(contract: Path) -> None:
    contract.write_text("message {")
    with pytest.raises(SystemExit, match="protoc failed"):
        contract_check.main([])
