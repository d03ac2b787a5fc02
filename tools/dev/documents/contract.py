"""Reference of the contract, from the proto files: docs/contract.md and docs/contract."""

import inspect
import tempfile
from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from pathlib import Path

import grpc_tools
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)
from grpc_tools import protoc

import nnhal
from tools.dev.documents.markdown import ROOT, Documents, render, wrap

PROTO = ROOT / "proto"
PACKAGE = ".nnhal.v1."

Field = FieldDescriptorProto
_SCALARS = {
    Field.TYPE_BOOL: ("bool", "false"),
    Field.TYPE_BYTES: ("bytes", "empty"),
    Field.TYPE_FLOAT: ("float", "0"),
    Field.TYPE_INT32: ("int32", "0"),
    Field.TYPE_INT64: ("int64", "0"),
    Field.TYPE_STRING: ("string", "empty"),
    Field.TYPE_UINT32: ("uint32", "0"),
}
"""Name and absent value of the scalar types that the contract uses."""


class Comments:
    """Comments of one proto file, by the path of the element as in SourceCodeInfo."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._texts: dict[tuple[int, ...], str] = {}
        self.header = ""
        for location in file.source_code_info.location:
            path = tuple(location.path)
            if path == (FileDescriptorProto.SYNTAX_FIELD_NUMBER,):
                self.header = "\n".join((*location.leading_detached_comments, location.leading_comments))
            elif location.leading_comments:
                self._texts[path] = location.leading_comments

    def __getitem__(self, path: tuple[int, ...]) -> str:
        return " ".join(self._texts.get(path, "").split())


@cache
def descriptors() -> tuple[FileDescriptorProto, ...]:
    """Return the proto files of the contract with their source info, in alphabetical order.

    Raises:
        SystemExit: protoc failed.
    """
    names = sorted(str(path.relative_to(PROTO)) for path in PROTO.glob("nnhal/v1/*.proto"))
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as folder:
        image = Path(folder) / "v1.binpb"
        options = ["--include_source_info", f"--descriptor_set_out={image}", f"-I{PROTO}", f"-I{well_known}"]
        if protoc.main(["protoc", *options, *names]) != 0:
            raise SystemExit("protoc failed")
        files = FileDescriptorSet.FromString(image.read_bytes()).file
        return tuple(sorted(files, key=lambda file: file.name))


def operation_comments() -> Mapping[str, str]:
    """Return the comment of each operation, by its name."""
    number = FileDescriptorProto.ENUM_TYPE_FIELD_NUMBER, EnumDescriptorProto.VALUE_FIELD_NUMBER
    return {
        value.name.removeprefix("OPERATION_TYPE_"): Comments(file)[number[0], position, number[1], i]
        for file in descriptors()
        for position, enum in enumerate(file.enum_type)
        if enum.name == "OperationType"
        for i, value in enumerate(enum.value)
    }


def _zeros() -> Mapping[str, str]:
    """Return the short name of value 0 of each enum, by the enum's full name."""
    return {
        f"{PACKAGE}{enum.name}": _short_name(enum, enum.value[0].name)
        for file in descriptors()
        for enum in file.enum_type
    }


def _short_name(enum: EnumDescriptorProto, name: str) -> str:
    """Return the name of a value without the prefix that all values of the enum share."""
    prefix = "".join(f"_{letter}" if letter.isupper() else letter.upper() for letter in enum.name).lstrip("_") + "_"
    return name.removeprefix(prefix)


def _homes() -> Mapping[str, str]:
    """Return the document of each message and enum, by its full name."""
    return {
        f"{PACKAGE}{element.name}": Path(file.name).stem
        for file in descriptors()
        for element in (*file.message_type, *file.enum_type)
    }


def _link(full_name: str, document: str) -> str:
    name = full_name.removeprefix(PACKAGE)
    home = _homes().get(full_name)
    if home is None:
        return f"`{name.lstrip('.')}`"
    return f"[{name}]({'' if home == document else f'{home}.md'}#{name.lower()})"


def _entry_of_map(message: DescriptorProto, field: Field) -> DescriptorProto | None:
    for nested in message.nested_type:
        if nested.options.map_entry and field.type_name.endswith(f".{message.name}.{nested.name}"):
            return nested
    return None


def _type_and_absent(message: DescriptorProto, field: Field, document: str) -> tuple[str, str]:
    """Return the type of a field as Markdown, and its value when absent."""
    if (entry := _entry_of_map(message, field)) is not None:
        key, value = (_type_and_absent(entry, part, document)[0] for part in entry.field)
        return f"map of {key} to {value}", "empty"
    if field.type in _SCALARS:
        name, absent = _SCALARS[field.type]
    else:
        name, absent = _link(field.type_name, document), _zeros().get(field.type_name, "unset")
    if field.label == Field.LABEL_REPEATED:
        return f"repeated {name}", "empty"
    if field.proto3_optional or field.HasField("oneof_index"):
        return name, "unset"
    return name, absent


def _signature(method: MethodDescriptorProto, document: str) -> str:
    request, response = (_link(name, document) for name in (method.input_type, method.output_type))
    streams = ["stream of " if streaming else "" for streaming in (method.client_streaming, method.server_streaming)]
    return f"Request: {streams[0]}{request}. Response: {streams[1]}{response}."


def _choice(message: DescriptorProto, field: Field) -> str:
    """Return a sentence on the oneof that a field belongs to, or ""."""
    is_choice = field.HasField("oneof_index") and not field.proto3_optional
    return f" One of `{message.oneof_decl[field.oneof_index].name}`." if is_choice else ""


def _header(comments: Comments) -> str:
    """Return the comment at the start of a file. Indented lines are code."""
    blocks = []
    for block in comments.header.strip("\n").split("\n\n"):
        lines = [line.removeprefix(" ") for line in block.splitlines()]
        if lines and lines[0].startswith("  "):
            blocks.append("\n".join(["```text", *(line.removeprefix("  ") for line in lines), "```"]))
        else:
            blocks.append(wrap(" ".join(lines)))
    return "\n\n".join(blocks) + "\n"


def _reference(file: FileDescriptorProto) -> str:
    """Return the document of one proto file."""
    document, comments = Path(file.name).stem, Comments(file)
    return render(
        "proto_file",
        name=Path(file.name).name,
        header=_header(comments),
        file=file,
        comments=comments,
        signature=lambda method: _signature(method, document),
        cells=lambda message, field: _type_and_absent(message, field, document),
        choice=_choice,
        SERVICE=FileDescriptorProto.SERVICE_FIELD_NUMBER,
        MESSAGE=FileDescriptorProto.MESSAGE_TYPE_FIELD_NUMBER,
        ENUM=FileDescriptorProto.ENUM_TYPE_FIELD_NUMBER,
    )


def _content(file: FileDescriptorProto) -> str:
    services = [f"service {service.name}" for service in file.service]
    count = len(file.message_type)
    parts = [*services, f"{count} messages" if count != 1 else "1 message"] if count else services
    return ", ".join([*parts, *(f"enum {enum.name}" for enum in file.enum_type)])


def _client_default(name: str) -> str:
    default = inspect.signature(nnhal.Device.prepare).parameters[name].default
    return default.name if isinstance(default, IntEnum) else str(default)


def generate() -> Documents:
    """Return the reference: an index, and a document for each proto file."""
    rows = "".join(
        f"| [{Path(file.name).name}](contract/{Path(file.name).stem}.md) | {_content(file)} |\n"
        for file in descriptors()
    )
    errors = next(Comments(file) for file in descriptors() if file.name.endswith("/error.proto"))
    index = render(
        "contract",
        rows=rows,
        preference=_client_default("preference"),
        priority=_client_default("priority"),
        errors=_header(errors),
    )
    documents = {Path("docs/contract.md"): index}
    for file in descriptors():
        documents[Path("docs/contract") / f"{Path(file.name).stem}.md"] = _reference(file)
    return documents
