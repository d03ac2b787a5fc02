"""Refuses changes of the contract that break peers built from its last release, as v1 promises.

`python -m tools.contract_check` compares proto/nnhal/v1/*.proto with proto/released/v1.binpb and prints each break.
Whatever is added passes; whatever is removed, renamed, renumbered or given another type or shape does not.
`--release` makes the current contract the last release.
"""

import argparse
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grpc_tools
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)
from grpc_tools import protoc

from tools.generate import PROTO

RELEASED = PROTO / "released" / "v1.binpb"


@dataclass(frozen=True)
class Part:
    """One thing of the contract: what must stay as it is, under a name that must stay.

    `scope` is what it belongs to, for example `message nnhal.v1.Operand: `; empty for what stands alone. `kind` and
    `name` identify it within the scope; `number` is its number on the wire, for fields and enum values.
    """

    scope: str
    kind: str
    name: str
    properties: dict[str, str]
    number: int | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What stays the same for as long as the part exists."""
        return self.scope, self.kind, self.name

    def __str__(self) -> str:
        if self.number is None:
            return f"{self.scope}{self.kind} {self.name}"
        return f'{self.scope}{self.kind} {self.number} "{self.name}"'


# ---- The contract as a list of parts ----------------------------------------------------------------------


def parts(contract: FileDescriptorSet) -> Iterator[Part]:
    """Every file, service, method, message, field, enum and enum value of the contract."""
    for file in contract.file:
        yield Part("", "file", file.name, {"package": file.package, "syntax": file.syntax or "proto2"})
        for service in file.service:
            yield from service_parts(service, file)
        for message in file.message_type:
            yield from message_parts(message, file, file.package)
        for enum in file.enum_type:
            yield from enum_parts(enum, file, file.package)


def service_parts(service: ServiceDescriptorProto, file: FileDescriptorProto) -> Iterator[Part]:
    """A service and its methods."""
    name = f"{file.package}.{service.name}"
    yield Part("", "service", name, {"file": file.name})
    for method in service.method:
        yield Part(f"service {name}: ", "method", method.name, method_properties(method))


def method_properties(method: MethodDescriptorProto) -> dict[str, str]:
    """What both ends of a call must agree on."""
    return {
        "input": method.input_type.removeprefix("."),
        "output": method.output_type.removeprefix("."),
        "client streaming": yes_or_no(method.client_streaming),
        "server streaming": yes_or_no(method.server_streaming),
    }


def message_parts(message: DescriptorProto, file: FileDescriptorProto, scope: str) -> Iterator[Part]:
    """A message, its fields and what is nested in it. The hidden message of a map is told by the map's type."""
    name = f"{scope}.{message.name}"
    entries = {f".{name}.{nested.name}": nested for nested in message.nested_type if nested.options.map_entry}
    yield Part("", "message", name, {"file": file.name})
    for field in message.field:
        properties = field_properties(field, message, entries)
        yield Part(f"message {name}: ", "field", field.name, properties, field.number)
    for nested in message.nested_type:
        if not nested.options.map_entry:
            yield from message_parts(nested, file, name)
    for enum in message.enum_type:
        yield from enum_parts(enum, file, name)


def field_properties(
    field: FieldDescriptorProto, message: DescriptorProto, entries: dict[str, DescriptorProto]
) -> dict[str, str]:
    """How a field is written and what its absence means; `entries` are the map entries of its message."""
    in_oneof = field.HasField("oneof_index") and not field.proto3_optional
    return {
        "number": str(field.number),
        "type": type_name(field, entries),
        "label": FieldDescriptorProto.Label.Name(field.label).removeprefix("LABEL_").lower(),
        "oneof": message.oneof_decl[field.oneof_index].name if in_oneof else "none",
        "presence": "explicit" if field.proto3_optional else "implicit",
    }


def type_name(field: FieldDescriptorProto, entries: dict[str, DescriptorProto]) -> str:
    """The type as a .proto file has it: `float`, `nnhal.v1.Operand`, `map<string, bool>`."""
    if entry := entries.get(field.type_name):
        key, value = (type_name(each, {}) for each in entry.field)
        return f"map<{key}, {value}>"
    if field.type_name:
        return field.type_name.removeprefix(".")
    return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()


def enum_parts(enum: EnumDescriptorProto, file: FileDescriptorProto, scope: str) -> Iterator[Part]:
    """An enum and its values."""
    name = f"{scope}.{enum.name}"
    yield Part("", "enum", name, {"file": file.name})
    for value in enum.value:
        yield Part(f"enum {name}: ", "value", value.name, {"number": str(value.number)}, value.number)


def yes_or_no(flag: bool) -> str:
    """A flag in words."""
    return "yes" if flag else "no"


# ---- The comparison ---------------------------------------------------------------------------------------


def breaks(released: FileDescriptorSet, current: FileDescriptorSet) -> list[str]:
    """What of `current` breaks peers built from `released`, one line each, in the order of the release."""
    old = list(parts(released))
    new = {part.key: part for part in parts(current)}
    taken = {(part.scope, part.kind, part.number): part for part in new.values()}
    found: list[str] = []
    for part in old:
        successor = new.get(part.key)
        found += [f"{part} removed or renamed"] if successor is None else changes(part, successor)
        heir = taken.get((part.scope, part.kind, part.number))
        if part.number is not None and heir and (successor is None or successor.number != part.number):
            found.append(f'{part}: its number is reused by "{heir.name}"')
    return [*found, *reserved_numbers_used(released, taken.values())]


def changes(old: Part, new: Part) -> Iterator[str]:
    """The properties that differ."""
    for name, before in old.properties.items():
        if before != (after := new.properties[name]):
            yield f"{old} changed {name} {before} -> {after}"


def reserved_numbers_used(released: FileDescriptorSet, current: Iterable[Part]) -> Iterator[str]:
    """Parts that use a number which the release keeps reserved, since a peer older still may use it."""
    reserved = dict(reserved_ranges(released))
    for part in current:
        for first, last in reserved.get(part.scope, []):
            if part.number is not None and first <= part.number <= last:
                yield f"{part} uses a number that the release reserves"


def reserved_ranges(contract: FileDescriptorSet) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    """Scope and reserved ranges (first, last) of each message and enum."""
    for file in contract.file:
        scopes = [(file.package, file.message_type, file.enum_type)]
        for scope, messages, enums in scopes:
            for enum in enums:
                yield f"enum {scope}.{enum.name}: ", [(each.start, each.end) for each in enum.reserved_range]
            for message in messages:
                name = f"{scope}.{message.name}"
                # The end of a message's range lies one past it, that of an enum's does not (descriptor.proto).
                yield f"message {name}: ", [(each.start, each.end - 1) for each in message.reserved_range]
                scopes.append((name, message.nested_type, message.enum_type))


# ---- Files ------------------------------------------------------------------------------------------------


def compile_contract(root: Path) -> FileDescriptorSet:
    """Descriptors of root/nnhal/v1/*.proto, without what they import from elsewhere and without comments."""
    sources = sorted(root.glob("nnhal/v1/*.proto"))
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "contract.binpb"
        arguments = ["protoc", f"-I{root}", f"-I{well_known}", f"--descriptor_set_out={out}"]
        if protoc.main(arguments + [str(path) for path in sources]) != 0:
            raise SystemExit("protoc failed")
        return FileDescriptorSet.FromString(out.read_bytes())


def check(current: FileDescriptorSet, released: Path) -> None:
    """Ends the program with the list of breaks, if there are any."""
    if not released.exists():
        raise SystemExit(f"{released} is missing: there is no release to compare with")
    if found := breaks(FileDescriptorSet.FromString(released.read_bytes()), current):
        raise SystemExit("\n".join([*found, f"{len(found)} changes break peers of the last release"]))


def main(arguments: list[str] | None = None) -> None:
    """The command line; `arguments` default to those of the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", action="store_true", help="make the current contract the last release")
    options = parser.parse_args(arguments)
    current = compile_contract(PROTO)
    if options.release:
        RELEASED.write_bytes(current.SerializeToString(deterministic=True))
        print(f"{RELEASED.relative_to(PROTO.parent)} written: {len(current.file)} files")
        return
    check(current, RELEASED)
    print(f"{sum(1 for _ in parts(current))} parts of the contract keep the last release's promises")


if __name__ == "__main__":
    main()
