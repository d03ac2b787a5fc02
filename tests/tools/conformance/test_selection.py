"""Sampling, and what --select and --exclude take."""

import pytest

from tools.conformance import builtin, registry
from tools.conformance.run import suites, tasks
from tools.conformance.samples import named
from tools.conformance.selection import Selection, sample, signature
from tools.conformance.vectors import Case

CASES = builtin.cases()


def variant(name: str, of: str) -> Case:
    return Case(named(of).data | {"name": name, "spec": f"folder/{of}"})


def test_a_sample_takes_so_many_of_each_signature() -> None:
    adds = [variant(f"add_{i}", "add_float") for i in range(4)]
    convolutions = [variant(f"conv_{i}", "conv_float_same") for i in range(2)]
    mixed = [adds[0], convolutions[0], adds[1], adds[2], convolutions[1], adds[3]]
    assert sample(mixed, 1) == [adds[0], convolutions[0]]
    assert sample(mixed, 3) == mixed[:-1]


def test_operations_and_operand_types_make_the_signature() -> None:
    assert signature(named("add_float")) == (("ADD",), ("TENSOR_FLOAT32", "TENSOR_FLOAT32", "INT32", "TENSOR_FLOAT32"))
    different = {signature(named(name)) for name in ("add_float", "add_quant8", "mul_float", "quantize_dequantize")}
    assert len(different) == 4
    assert signature(named("mul_float")) == signature(named("mul_relaxed"))


@pytest.mark.parametrize(
    ("select", "exclude", "taken"),
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
def test_vectors_go_by_name_and_spec(select: list[str], exclude: list[str], taken: bool) -> None:
    names = ("add_float",) if select == ["add_float"] else ()
    case = variant(names[0] if names else "add_variant", "add_float")
    assert Selection(select, exclude).takes_case(case) is taken


def test_checks_go_by_id_and_name() -> None:
    registry.load()
    chosen = [task.name for task in tasks(("extra", "basic"), CASES, Selection(["EXTRA-0[12]*", "STATIC-02"]))]
    assert "STATIC-02" in chosen
    assert {"EXTRA-01 after success", "EXTRA-02 of executions"} < set(chosen)
    assert {name.split()[0] for name in chosen} == {"STATIC-02", "EXTRA-01", "EXTRA-02"}


def test_each_suite_samples_the_vectors_that_it_applies_to() -> None:
    left_out = variant("add_float_all_inputs_as_internal", "add_float")
    work = tasks(("validation", "qos"), [left_out, named("add_float")], count=1)
    names = [(task.suite, task.name) for task in work if task.suite == "validation" or "QOS" not in task.name]
    assert names == [("validation", "add_float"), ("qos", "add_float_all_inputs_as_internal")]


def test_suites_by_name() -> None:
    assert suites(["qos", "basic"]) == ("qos", "basic")
    assert "nnhal" not in suites() and "nnhal" in suites(strict=True) and "nnhal" in suites(["nnhal"])
    with pytest.raises(ValueError, match="no suite 'quality'; there are basic, "):
        suites(["basic", "quality"])
