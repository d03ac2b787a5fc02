"""Samples of vectors, and selection by --select and --exclude."""

import pytest

from nnhal_tools.conformance.runner import plan_tasks, select_suites
from nnhal_tools.conformance.selection import Selection, case_signature, sample_cases
from nnhal_tools.conformance.suites import load
from nnhal_tools.conformance.vectors import builtin
from nnhal_tools.conformance.vectors.case import Case
from nnhal_tools.conformance.vectors.samples import builtin_case

CASES = builtin.cases()


def variant(name: str, of: str) -> Case:
    return Case(builtin_case(of).data | {"name": name, "spec": f"folder/{of}"})


def test_sample_has_a_number_of_vectors_of_each_signature() -> None:
    adds = [variant(f"add_{i}", "add_float") for i in range(4)]
    convolutions = [variant(f"conv_{i}", "conv_float_same") for i in range(2)]
    mixed = [adds[0], convolutions[0], adds[1], adds[2], convolutions[1], adds[3]]
    assert sample_cases(mixed, 1) == [adds[0], convolutions[0]]
    assert sample_cases(mixed, 3) == mixed[:-1]


def test_signature_is_operations_and_operand_types() -> None:
    assert case_signature(builtin_case("add_float")) == (
        ("ADD",),
        ("TENSOR_FLOAT32", "TENSOR_FLOAT32", "INT32", "TENSOR_FLOAT32"),
    )
    different = {
        case_signature(builtin_case(name)) for name in ("add_float", "add_quant8", "mul_float", "quantize_dequantize")
    }
    assert len(different) == 4
    assert case_signature(builtin_case("mul_float")) == case_signature(builtin_case("mul_relaxed"))


@pytest.mark.parametrize(
    ("select", "exclude", "selected"),
    [
        ([], [], True),
        (["add_float"], [], True),
        (["folder/*"], [], True),
        (["folder/add_*/add_v*"], [], True),
        (["folder/add_float/add_variant"], [], True),
        (["add"], [], False),
        (["sub*"], [], False),
        (["sub*", "add*"], [], True),
        ([], ["add*"], False),
        (["folder/*"], ["*variant"], False),
    ],
)
def test_vectors_are_selected_by_name_and_spec(select: list[str], exclude: list[str], selected: bool) -> None:
    names = ("add_float",) if select == ["add_float"] else ()
    case = variant(names[0] if names else "add_variant", "add_float")
    assert Selection(select, exclude).matches_case(case) is selected


def test_checks_are_selected_by_id_and_name() -> None:
    load()
    chosen = [task.name for task in plan_tasks(("extra", "basic"), CASES, Selection(["EXTRA-0[12]*", "STATIC-02"]))]
    assert "STATIC-02" in chosen
    assert {"EXTRA-01 after success", "EXTRA-02 executions"} < set(chosen)
    assert {name.split()[0] for name in chosen} == {"STATIC-02", "EXTRA-01", "EXTRA-02"}


def test_suites_are_left_out_by_name() -> None:
    suites = {task.suite for task in plan_tasks(("qos", "validation", "basic"), CASES, Selection(exclude=("valid*",)))}
    assert suites == {"qos", "basic"}


def test_each_suite_samples_its_own_vectors() -> None:
    left_out = variant("add_float_all_inputs_as_internal", "add_float")
    work = plan_tasks(("validation", "qos"), [left_out, builtin_case("add_float")], count=1)
    names = [(task.suite, task.name) for task in work if task.suite == "validation" or "QOS" not in task.name]
    assert names == [("validation", "add_float"), ("qos", "add_float_all_inputs_as_internal")]


def test_suites_are_selected_by_name() -> None:
    assert select_suites(["qos", "basic"]) == ("qos", "basic")
    assert (
        "nnhal" not in select_suites() and "nnhal" in select_suites(strict=True) and "nnhal" in select_suites(["nnhal"])
    )
    with pytest.raises(ValueError, match="unknown suite 'quality'; the suites are basic, "):
        select_suites(["basic", "quality"])
