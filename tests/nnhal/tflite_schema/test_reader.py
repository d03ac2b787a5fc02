"""Flatbuffers: every offset, vtable, vector and string is checked before it is followed."""

import struct
from enum import IntEnum
from typing import Any

import numpy as np
import pytest

from nnhal.tflite_schema import enumerations
from nnhal.tflite_schema.reader import Fields, FlatbufferReader, InvalidFlatbuffer
from nnhal.tflite_schema.tables import OPTIONS, OPTIONS_NUMBERS, SCALARS, TABLES
from tests.nnhal.tflite.build import Op, Tensor, build, flatbuffers, options, schema

ENUMERATIONS = [value for value in vars(enumerations).values() if isinstance(value, type) and value is not IntEnum]
_NUMBERS = {"bool": True, "float32": 2.5}


def read(data: bytes, table: str = "Model", *, strict: bool = True) -> Fields:
    return FlatbufferReader(np.frombuffer(data, np.uint8), b"TFL3", strict=strict).root(table)


def refusal(data: bytes) -> str:
    """Return the message with which a flatbuffer is refused."""
    with pytest.raises(InvalidFlatbuffer) as caught:
        read(data)
    return str(caught.value)


def exp() -> bytes:
    """Return a model of one EXP."""
    return build(Op("EXP", [Tensor((2, 3))], [Tensor((2, 3))]))


def root(data: bytes) -> int:
    return int(struct.unpack_from("<I", data)[0])


def vtable(data: bytes, table: int) -> int:
    return table - int(struct.unpack_from("<i", data, table)[0])


def field(data: bytes, number: int) -> int:
    """Return the position of a field of the root table."""
    position = root(data)
    return position + int(struct.unpack_from("<H", data, vtable(data, position) + 4 + 2 * number)[0])


def patched(data: bytes, position: int, code: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into("<" + code, changed, position, value)
    return bytes(changed)


@pytest.mark.parametrize("data", [b"", b"TFL3", bytes(7)])
def test_short_data_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidFlatbuffer, match=f"the flatbuffer has {len(data)} bytes; expected at least 8"):
        read(data)


def test_other_identifier_is_refused() -> None:
    assert "has identifier b'TFL2'; expected b'TFL3'" in refusal(exp()[:4] + b"TFL2" + exp()[8:])


@pytest.mark.parametrize("offset", [0, 2**32 - 1, 2**31, 10**6])
def test_root_outside_of_the_data_is_refused(offset: int) -> None:
    assert refusal(patched(exp(), 0, "I", offset)).startswith(("the root: offset", "model: bytes"))


def test_unaligned_table_is_refused() -> None:
    assert "is not a multiple of 4" in refusal(patched(exp(), 0, "I", root(exp()) + 2))


@pytest.mark.parametrize("distance", [2**31 - 1, -(2**31), 10**6, -(10**6)])
def test_vtable_outside_of_the_data_is_refused(distance: int) -> None:
    assert "are outside of the" in refusal(patched(exp(), root(exp()), "i", distance))


@pytest.mark.parametrize("size", [0, 2, 5])
def test_vtable_of_invalid_size_is_refused(size: int) -> None:
    data = exp()
    assert f"a vtable has {size} bytes" in refusal(patched(data, vtable(data, root(data)), "H", size))


def test_vtable_that_ends_outside_of_the_data_is_refused() -> None:
    data = exp()
    assert "are outside of the" in refusal(patched(data, vtable(data, root(data)), "H", 65534))


def test_field_outside_of_the_data_is_refused() -> None:
    data = exp()
    assert "model.version: bytes" in refusal(patched(data, vtable(data, root(data)) + 4, "H", 65532))


def test_unaligned_field_is_refused() -> None:
    data = exp()
    position = vtable(data, root(data)) + 4
    (offset,) = struct.unpack_from("<H", data, position)
    assert "model.version: position" in refusal(patched(data, position, "H", offset + 1))


def test_unknown_field_is_refused() -> None:
    data = exp()
    start = vtable(data, root(data))
    moved = len(data) + len(data) % 2
    table = struct.pack("<HH", 4 + 2 * 12, 64) + struct.pack("<12H", *[4] * 12)
    grown = data + bytes(moved - len(data)) + table
    assert "Model has a field that is not in the schema" in refusal(
        patched(grown, root(data), "i", root(data) - moved)
    ), start


@pytest.mark.parametrize("length", [2**32 - 1, 2**30, 10**5])
def test_vector_longer_than_the_data_is_refused(length: int) -> None:
    data = exp()
    position = field(data, 2)
    position += int(struct.unpack_from("<I", data, position)[0])
    assert "model.subgraphs: bytes" in refusal(patched(data, position, "I", length))


@pytest.mark.parametrize("offset", [0, 2**31, 2**32 - 1, 10**6])
def test_vector_outside_of_the_data_is_refused(offset: int) -> None:
    assert refusal(patched(exp(), field(exp(), 2), "I", offset)).startswith("model.subgraphs: ")


def test_string_without_end_is_refused() -> None:
    builder = flatbuffers.Builder()
    text = builder.CreateString("code")
    schema.OperatorCodeStart(builder)
    schema.OperatorCodeAddCustomCode(builder, text)
    builder.Finish(schema.OperatorCodeEnd(builder), b"TFL3")
    data = bytes(builder.Output())
    assert read(data, "OperatorCode")["custom_code"] == "code"
    with pytest.raises(InvalidFlatbuffer, match=r"operatorcode\.custom_code: the string does not end with a zero byte"):
        read(data.replace(b"code\0", b"codeX"), "OperatorCode")


def test_tables_that_share_a_position_are_counted() -> None:
    """A vector of offsets to one table would otherwise multiply the work of a small file."""
    count = 250_000
    builder = flatbuffers.Builder()
    schema.BufferStart(builder)
    buffer = schema.BufferEnd(builder)
    builder.StartVector(4, count, 4)
    for _ in range(count):
        builder.PrependUOffsetTRelative(buffer)
    buffers = builder.EndVector()
    schema.ModelStart(builder)
    schema.ModelAddBuffers(builder, buffers)
    builder.Finish(schema.ModelEnd(builder), b"TFL3")
    with pytest.raises(InvalidFlatbuffer, match="more than 200000 tables"):
        read(bytes(builder.Output()))


def test_vectors_that_share_a_position_are_counted() -> None:
    count, length = 200, 100_000
    builder = flatbuffers.Builder()
    builder.StartVector(4, length, 4)
    for _ in range(length):
        builder.PrependInt32(1)
    numbers = builder.EndVector()
    graphs = []
    for _ in range(count):
        schema.SubGraphStart(builder)
        schema.SubGraphAddInputs(builder, numbers)
        graphs.append(schema.SubGraphEnd(builder))
    builder.StartVector(4, count, 4)
    for graph in graphs:
        builder.PrependUOffsetTRelative(graph)
    vector = builder.EndVector()
    schema.ModelStart(builder)
    schema.ModelAddSubgraphs(builder, vector)
    builder.Finish(schema.ModelEnd(builder), b"TFL3")
    with pytest.raises(InvalidFlatbuffer, match="more than 4000000 elements"):
        read(bytes(builder.Output()))


def test_shared_tables_are_counted_also_by_a_lenient_reader() -> None:
    builder = flatbuffers.Builder()
    schema.TensorStart(builder)
    tensors = _vector_of(builder, schema.TensorEnd(builder))
    schema.SubGraphStart(builder)
    schema.SubGraphAddTensors(builder, tensors)
    graphs = _vector_of(builder, schema.SubGraphEnd(builder))
    schema.ModelStart(builder)
    schema.ModelAddSubgraphs(builder, graphs)
    builder.Finish(schema.ModelEnd(builder), b"TFL3")
    with pytest.raises(InvalidFlatbuffer, match="more than 200000 tables"):
        read(bytes(builder.Output()), strict=False)


def _vector_of(builder: Any, table: int) -> int:
    """Return a vector of 1000 offsets to one table."""
    builder.StartVector(4, 1000, 4)
    for _ in range(1000):
        builder.PrependUOffsetTRelative(table)
    return int(builder.EndVector())


@pytest.mark.parametrize("name", sorted(TABLES))
def test_schema_has_the_numbers_types_and_defaults_of_the_engine(name: str) -> None:
    """Each scalar field is written by the generated code, and read by its number, type and default here."""
    defaults = vars(getattr(schema, f"{name}T")())
    defaults = {key.lower(): value for key, value in defaults.items()}
    scalars = [f for f in TABLES[name] if f.type in SCALARS and not f.is_vector]
    for each in scalars:
        key = each.name.replace("_", "")
        assert defaults[key] == each.default, each.name
        builder = flatbuffers.Builder()
        getattr(schema, f"{name}Start")(builder)
        add = next(f for text, f in vars(schema).items() if text.lower() == f"{name}Add{key}".lower())
        value = _NUMBERS.get(each.type, 7)
        add(builder, value)
        builder.Finish(getattr(schema, f"{name}End")(builder), b"TFL3")
        assert read(bytes(builder.Output()), name, strict=False)[each.name] == value


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_schema_has_all_options(name: str) -> None:
    known = {key.lower() for key in vars(getattr(schema, f"{name}T")())}
    listed = {each.name.replace("_", "") for each in OPTIONS[name] if each.type != "ignored"}
    assert known == listed


def test_options_have_the_numbers_of_the_engine() -> None:
    numbers = {name: value for name, value in vars(schema.BuiltinOptions).items() if isinstance(value, int)}
    assert numbers == {"NONE": 0, **OPTIONS_NUMBERS}


@pytest.mark.parametrize("enum", ENUMERATIONS, ids=lambda enum: enum.__name__)
def test_enumerations_have_the_numbers_of_the_engine(enum: type[IntEnum]) -> None:
    theirs = vars(getattr(schema, enum.__name__))
    assert {member.name: member.value for member in enum} == {k: v for k, v in theirs.items() if isinstance(v, int)}


def test_lenient_reader_ignores_fields_that_the_schema_lacks() -> None:
    data = exp()
    moved = len(data) + len(data) % 2
    table = struct.pack("<HH", 4 + 2 * 12, 64) + struct.pack("<12H", *[0] * 11, 4)
    grown = patched(data + bytes(moved - len(data)) + table, root(data), "i", root(data) - moved)
    assert "Model has a field that is not in the schema" in refusal(grown)
    assert read(grown, strict=False)["version"] == 0


def test_truncated_model_is_refused() -> None:
    data = build(
        Op("CONCATENATION", [Tensor((2,)), Tensor((3,), data=[1, 2, 3])], [Tensor((5,))], options("Concatenation"))
    )
    read(data)
    for length in range(len(data)):
        assert refusal(data[:length])
