"""Reports of imports: they list every operator, also of files that cannot be imported."""

from pathlib import Path

import numpy as np
import pytest

from nnhal import tflite
from nnhal.tflite.report import ImportOutcome, ImportReport
from tests.nnhal.tflite.build import Op, Tensor, build, options


def inspect(tmp_path: Path, *operators: Op, inputs: list[Tensor] | None = None) -> ImportReport:
    path = tmp_path / "model.tflite"
    path.write_bytes(build(*operators, inputs=inputs))
    report = tflite.inspect(path)
    if report.refusals():
        with pytest.raises(tflite.TfliteError, match=r"model\.tflite: ") as raised:
            tflite.load(path)
        assert report.refusals()[0] in str(raised.value)
    else:
        assert tflite.load(path)
    return report


def test_damaged_operator_does_not_hide_the_others(tmp_path: Path) -> None:
    a, b, c, d, lost = (Tensor((2,)) for _ in range(5))
    operators = [Op("ADD", [a, lost], [b], options("Add")), Op("NEG", [b], [c]), Op("CUMSUM", [c, lost], [d])]
    report = inspect(tmp_path, *operators, inputs=[a])
    refused, direct = ImportOutcome.REFUSED, ImportOutcome.DIRECT
    assert [each.outcome for each in report.operators] == [refused, direct, refused]
    assert [line.partition(":")[0] for line in report.refusals()] == ["operator 0 (ADD)", "operator 2 (CUMSUM)"]
    assert "has no value here" in report.operators[0].reason


def test_problem_of_the_whole_file_does_not_hide_the_operators(tmp_path: Path) -> None:
    constant, output = Tensor((2,), data=[1, 2]), Tensor((2,))
    report = inspect(tmp_path, Op("NEG", [constant], [output]))
    assert report.problem == "has no inputs" and report.refusals() == ["has no inputs"]
    assert [str(each.operator) for each in report.operators] == ["operator 0 (NEG)"]


def test_problem_with_a_variable_does_not_hide_the_operators(tmp_path: Path) -> None:
    handle, value, output = Tensor((), "RESOURCE"), Tensor((2,)), Tensor((2,))
    table = options("VarHandle", sharedName=b"v")
    operators = [
        Op("ASSIGN_VARIABLE", [handle, value], []),
        Op("VAR_HANDLE", [], [handle], table),
        Op("NEG", [value], [output]),
    ]
    report = inspect(tmp_path, *operators, inputs=[value])
    assert report.problem.startswith("operator 0 (ASSIGN_VARIABLE): tensor ")
    assert [each.outcome for each in report.operators][2] == ImportOutcome.DIRECT


def test_tensors_have_the_indexes_of_the_file(tmp_path: Path) -> None:
    half, full, image, output = Tensor((2,), "FLOAT16", np.ones(2)), Tensor((2,)), Tensor((2,), name="x"), Tensor((2,))
    report = inspect(tmp_path, Op("DEQUANTIZE", [half], [full]), Op("ADD", [image, full], [output], options("Add")))
    assert [each.outcome for each in report.operators] == [ImportOutcome.FOLDED, ImportOutcome.DIRECT]
    assert report.graph.tensors[report.operators[1].operator.inputs[0]].name == "x"
    assert report.graph.tensors[report.operators[0].operator.inputs[0]].type == 1  # FLOAT16
