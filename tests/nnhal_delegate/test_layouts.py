"""Layouts of LiteRT's structures in `litert.h` and `parameters.txt`: those that were measured, from ../shared."""

import json
import re
import struct
import subprocess
from ctypes import addressof, create_string_buffer
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from nnhal.tflite_schema import TensorType
from nnhal.tflite_schema.tables import OPTIONS
from nnhal_delegate import functions
from nnhal_delegate.parameters import STRUCTURES, ParameterField, read_options
from nnhal_delegate.tensor_types import tensor_type
from nnhal_ndk.build import native_folder
from tests.shared import shared

NATIVE = native_folder("nnhal_delegate")
HEADER = (NATIVE / "litert.h").read_text()

OTHER_NAMES = {
    "fused_activation_function": "activation",
    "idx_out_type": "index_out_type",
    "new_shape": "shape",
}
NUMBERS = {"int8": 1, "int16": 2}
ENUMERATIONS = ("int", "padding", "mirror", "type", "bias")


def measured() -> Any:
    return json.loads(shared("reference/litert-delegate.json").read_text())


def host_name(field: str) -> str:
    """Return the name of a field of an option table in LiteRT's structure."""
    name = re.sub(r"_(w|h|d)(?=_factor$|$)", lambda m: {"w": "_width", "h": "_height", "d": "_depth"}[m[1]], field)
    return OTHER_NAMES.get(field, name)


def test_the_header_has_the_measured_layouts(tmp_path: Path) -> None:
    facts = measured()
    lines = ['#include "litert.h"']
    for name, structure in facts["structs"].items():
        if not re.search(rf"(\}} {name};|struct {name} \{{)", HEADER):
            continue
        lines.append(f'_Static_assert(sizeof({name}) == {structure["size"]}, "{name}");')
        for field in structure["fields"]:
            check = f"offsetof({name}, {field['name']}) == {field['offset']}"
            lines.append(f'_Static_assert({check}, "{name}.{field["name"]}");')
    for constants in facts["enums"].values():
        for name, number in constants.items():
            if re.search(rf"\b{name.split()[-1]}\b", HEADER):
                lines.append(f'_Static_assert({name.split()[-1]} == {number}, "{name}");')
    assert len(lines) > 90
    source = tmp_path / "layouts.c"
    source.write_text("\n".join(lines))
    subprocess.run(["cc", "-std=gnu11", "-Wall", "-Werror", "-fsyntax-only", f"-I{NATIVE}", str(source)], check=True)


def test_the_parameters_have_the_measured_layouts() -> None:
    facts = measured()
    for operator, structure in STRUCTURES.items():
        name = "TfLiteConv3DParams" if operator == "CONV_3D" else facts["operators"][operator]["params"]
        members = {member["name"]: member for member in facts["structs"][name]["fields"]}
        for field in structure.fields:
            member = members[host_name(field.name)]
            assert (field.offset, operator) == (member["offset"], operator)
            assert field.type in ENUMERATIONS or member["type"].startswith((field.type, f"const {field.type}"))
            assert field.type in ("bool", "float") or field.array or member["size"] == 4
            if field.array:
                assert any(
                    each["offset"] == field.length and each["name"].startswith("num_") for each in members.values()
                )


def test_all_options_have_a_field() -> None:
    facts = measured()["operators"]
    absent = {"quant_spec"}  # LiteRT's structure lacks it
    for structure in STRUCTURES.values():
        fields = {field.name for field in OPTIONS[structure.table] if field.type != "ignored"}
        assert fields - absent == {field.name for field in structure.fields}
    refused = {"CALL_ONCE", "IF", "WHILE", "VAR_HANDLE", "HASHTABLE", "REDUCE_WINDOW"}
    refused |= {"MULTINOMIAL", "RANDOM_STANDARD_NORMAL", "RANDOM_UNIFORM"}
    with_parameters = {name for name, facts in facts.items() if facts["params"] and not name.startswith("STABLEHLO_")}
    assert with_parameters - set(STRUCTURES) == refused


def test_types_have_the_measured_numbers() -> None:
    for name, number in measured()["enums"]["TfLiteType"].items():
        if number:
            assert TensorType(tensor_type(number)).name == name.removeprefix("kTfLite").upper().replace(
                "E4", "_E4"
            ).replace("E5", "_E5")
    assert tensor_type(0) == tensor_type(99) == -1


def test_functions_have_the_numbers_of_the_header() -> None:
    names = re.findall(r"FUNCTION_([a-z_]+)", (NATIVE / "functions.h").read_text())
    exported = re.findall(r"@_exported\ndef (\w+)", Path(functions.__file__).read_text())
    assert names == exported
    assert len(functions.FUNCTIONS) == len(names)


# ---- Reading --------------------------------------------------------------------------------------------


def read(operator: str, layout: str, *values: Any, version: int = 1, types: tuple[int, ...] = ()) -> dict[str, Any]:
    memory = create_string_buffer(struct.pack(layout, *values) + bytes(64))
    return read_options(operator, version, addressof(memory), types)[1]


def test_options_are_converted() -> None:
    options = read("CONV_2D", "<7i", 2, 3, 4, 1, 5, 6, 0)
    assert options == {
        "padding": 1,
        "stride_w": 3,
        "stride_h": 4,
        "fused_activation_function": 1,
        "dilation_w_factor": 5,
        "dilation_h_factor": 6,
    }
    assert read("MIRROR_PAD", "<i", 2) == {"mode": 1}
    assert read("CAST", "<2i", 4, 9) == {"in_data_type": TensorType.INT64, "out_data_type": TensorType.INT8}
    assert read("RESHAPE", "<9i", 1, -1, 3, 0, 0, 0, 0, 0, 3) == {"new_shape": (1, -1, 3)}
    boundaries = create_string_buffer(struct.pack("<2f", 0.5, 1.5))
    assert read("BUCKETIZE", "<iiQ", 2, 0, addressof(boundaries)) == {"boundaries": (0.5, 1.5)}


@pytest.mark.parametrize(("version", "known"), [(7, False), (8, True)])
def test_fields_that_older_hosts_lack_depend_on_the_version(version: int, known: bool) -> None:
    assert ("offset" in read("STRIDED_SLICE", "<6i", 0, 0, 0, 0, 0, 1, version=version)) == known


@pytest.mark.parametrize(("type_", "known"), [(4, True), (2, False), (77, False)])
def test_the_type_of_a_bias_must_be_that_of_the_tensor(type_: int, known: bool) -> None:
    types = (TensorType.INT16, TensorType.INT8, TensorType.INT64)
    assert ("quantized_bias_type" in read("CONV_2D", "<7i", 1, 1, 1, 0, 1, 1, type_, types=types)) == known


def test_fields_do_not_overlap() -> None:
    for structure in STRUCTURES.values():
        fields: list[ParameterField] = sorted(structure.fields, key=lambda field: field.offset)
        assert all(a.offset < b.offset for a, b in pairwise(fields))
