"""The reference of the contract, the arguments of operations and the rules: complete, and as the code says."""

import ast
from pathlib import Path

import pytest

from nnhal.operations import SIGNATURES
from nnhal.types import OperandType, OperationType
from tools.dev.documents import contract, operation_arguments
from tools.dev.documents import rules as rule_list
from tools.dev.documents.contract import descriptors, operation_comments
from tools.dev.documents.error_message import message_template
from tools.dev.documents.markdown import ROOT, Documents

ARGUMENTS = Path("operation-arguments.md")
RULE_TABLES = ("client/nnhal/rules", "driver/nnhal_driver/validation")


@pytest.fixture(scope="module")
def documents() -> Documents:
    return {
        path.relative_to("docs"): text
        for module in (contract, operation_arguments, rule_list)
        for path, text in module.generate().items()
    }


def section(text: str, heading: str) -> str:
    """Return the part of a document from a heading to the next one."""
    _, _, rest = text.partition(f"\n{heading}\n")
    return rest.split("\n#")[0]


def test_every_part_of_the_contract_has_an_entry(documents: Documents) -> None:
    for file in descriptors():
        text = documents[Path("contract") / f"{Path(file.name).stem}.md"]
        for service in file.service:
            assert all(f"### {service.name}.{method.name}\n" in text for method in service.method)
        for message in file.message_type:
            entry = section(text, f"### {message.name}")
            assert all(f"| {field.number} | `{field.name}` |" in entry for field in message.field)
        for enum in file.enum_type:
            entry = section(text, f"### {enum.name}")
            assert all(f"| {value.number} | `{value.name}` |" in entry for value in enum.value)


def test_fields_tell_their_absent_value(documents: Documents) -> None:
    entry = section(documents[Path("contract/device.md")], "### PrepareModelRequest")
    assert "| `preference` | [ExecutionPreference](enums.md#executionpreference) | LOW_POWER |" in entry
    assert "| `deadline_ns` | int64 | unset | Nanoseconds from now. Absent or -1: no deadline." in entry
    limits = "| `limits` | map of string to int64 | empty | Effective limits, by name. |"
    assert limits in documents[Path("contract/session.md")]


def test_defaults_of_the_python_client_are_those_of_prepare(documents: Documents) -> None:
    text = documents[Path("contract.md")]
    assert "| `preference` | LOW_POWER | FAST_SINGLE_ANSWER |" in text
    assert "| `priority` | LOW | MEDIUM |" in text


def test_every_operation_has_a_description_and_an_entry(documents: Documents) -> None:
    assert list(operation_comments()) == [type_.name for type_ in OperationType]
    assert all(documents[ARGUMENTS].count(f"\n### {type_.name}\n") == 1 for type_ in OperationType)


def test_entry_of_a_convolution(documents: Documents) -> None:
    entry = section(documents[ARGUMENTS], "### CONV_2D")
    inputs = " ".join(entry.partition("\n- Outputs")[0].split())
    assert "- Inputs (explicit padding): 0 input T of rank 4, 1 filter F of rank 4, 2 bias B, 3 padding_left," in inputs
    assert "3 padding_scheme, 4 stride_width, 5 stride_height, 6 activation, [7 layout BOOL = false]," in inputs
    assert inputs.endswith("[8 dilation_width = 1, 9 dilation_height = 1]")
    assert "  - TENSOR_QUANT8_ASYMM, TENSOR_QUANT8_SYMM_PER_CHANNEL, TENSOR_INT32\n" in entry
    assert "- When prepared: A per-channel filter is quantized along dimension 0, its output channels.\n" in entry
    assert "  - `activation is {value}; it must be in 0..3`" in entry


@pytest.mark.parametrize(
    ("type_", "inputs"),
    [
        (OperationType.CONCATENATION, "0 input T... of rank 1 to 4, last axis"),
        (OperationType.SOFTMAX, "0 input T of rank 1 to 4, 1 beta S, [2 axis = -1]"),
    ],
)
def test_inputs(documents: Documents, type_: OperationType, inputs: str) -> None:
    assert f"\n- Inputs: {inputs}\n" in section(documents[ARGUMENTS], f"### {type_.name}")


def test_entries_have_each_combination_of_types(documents: Documents) -> None:
    for type_, signature in SIGNATURES.items():
        entry = section(documents[ARGUMENTS], f"### {OperationType(type_).name}")
        columns = list(signature.rows[0])
        if columns:
            _, _, types = entry.partition(f"\n- {', '.join(columns)}:")
            listed = types.split("\n- ")[0].replace("\n  -" if len(columns) > 1 else ",", "\n").split("\n")
            rows = [", ".join(OperandType(type_).name for type_ in row.values()) for row in signature.rows]
            assert [text.strip() for text in listed if text.strip()] == rows


def test_every_rule_of_a_table_is_listed(documents: Documents) -> None:
    listed = [line.split(" | ")[0][2:] for line in documents[Path("rules.md")].splitlines() if line.startswith("| V-")]
    rules = {check.rule for check in rule_list.checks()}
    assert set(listed) >= rules
    tables = [path for folder in RULE_TABLES for path in (ROOT / folder).glob("*.py")]
    registered = {
        call.args[0].value
        for path in tables
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "forbid"
        if isinstance(call.args[0], ast.Constant)
    }
    assert len(registered) > 60
    assert registered - {""} <= rules


def test_every_rule_has_a_description() -> None:
    described = {check.rule for check in rule_list.checks() if check.forbids}
    assert {check.rule for check in rule_list.checks()} == described
    assert set(rule_list.SUMMARIES) <= described


def test_rule_names_its_messages() -> None:
    (check,) = [check for check in rule_list.checks() if check.rule == "V-OPERAND-09"]
    assert check.forbids == "Quantized without scale"
    assert check.messages == ("has scale {scale}, must be > 0",)
    assert check.path == "client/nnhal/rules/operand.py"


@pytest.mark.parametrize(
    ("source", "template"),
    [
        ('"is empty"', "is empty"),
        ('f"has rank {len(operand.dimensions)}" " here"', "has rank {len(dimensions)} here"),
        ('f"has shape {list(shape)}, must be {_LAST_TYPE - 1}"', "has shape {shape}, must be {last_type - 1}"),
        ("""f"must be {f'{low}..{high}' if high else '0'}" """, "must be {low}..{high}"),
        ('f"names {_KINDS[role]} {index:g} of {model.type.name}"', "names {kind} {index} of {type}"),
        ("text", ""),
    ],
)
def test_templates_name_their_variable_parts(source: str, template: str) -> None:
    assert message_template(ast.parse(source, mode="eval").body) == template
