"""Outputs as tables and files."""

from pathlib import Path

import numpy as np
import pytest

from nnhal.types import Model, Operand, OperandType, Subgraph
from nnhal_tools.cli import results
from nnhal_tools.cli.errors import CommandError
from tests.tools.cli.command import rendered


def test_best_classes_are_dequantized_and_labelled() -> None:
    operand = Operand(OperandType.TENSOR_QUANT8_ASYMM_SIGNED, (1, 6), 1 / 256, -128)
    output = np.array([[-128, 0, 64, -64, -127, 0]], np.int8)
    rows = rendered(results.best_classes_table(output, operand, ["a", "b", "[bold]c[/bold]", "d", "e", "f"]))
    assert rows == [
        ["class", "label", "probability"],
        ["2", "[bold]c[/bold]", "0.7500"],
        ["1", "b", "0.5000"],
        ["5", "f", "0.5000"],
        ["3", "d", "0.2500"],
        ["4", "e", "0.0039"],
    ]


@pytest.mark.parametrize("values", [[1.5, 0.0], [0.5, -2.0]])
def test_values_that_are_not_probabilities_are_called_scores(values: list[float]) -> None:
    rows = rendered(results.best_classes_table(np.array([values]), Operand(OperandType.TENSOR_FLOAT32, (1, 2)), []))
    assert rows == [["class", "score"], ["0", f"{values[0]:g}"], ["1", f"{values[1]:g}"]]


def test_equal_classes_keep_their_order() -> None:
    rows = rendered(
        results.best_classes_table(np.arange(100)[np.newaxis] % 2, Operand(OperandType.TENSOR_INT32, (1, 100)), [])
    )
    assert [row[0] for row in rows[1:]] == ["1", "3", "5", "7", "9"]


@pytest.mark.parametrize(
    ("dimensions", "classes"),
    [([(1, 7)], 7), ([(1, 7), (3,)], 7), ([(1, 1)], 0), ([(2, 7)], 0), ([(1, 0)], 0), ([], 0)],
)
def test_classes_are_counted_only_in_a_class_vector(dimensions: list[tuple[int, ...]], classes: int) -> None:
    operands = tuple(Operand(OperandType.TENSOR_FLOAT32, d) for d in dimensions)
    assert results.count_classes(Model(Subgraph(operands, (), (), tuple(range(len(operands)))))) == classes


def test_summary_shows_real_values() -> None:
    operand = Operand(OperandType.TENSOR_QUANT8_ASYMM, (2, 2), 0.5, 10)
    rows = rendered(results.summary_table([np.array([[10, 12], [14, 8]], np.uint8)], [operand], ["named"]))
    assert rows == [
        ["output", "shape", "dtype", "min", "max", "mean"],
        ["named", "[2, 2]", "uint8", "-1", "2", "0.5"],
    ]


def test_outputs_are_saved_under_valid_file_names(tmp_path: Path) -> None:
    names = results.output_names(["a/b:0", "a.b", "", "a:b:0"], 5)
    outputs = [np.full(2, i) for i in range(5)]
    paths = results.save_outputs(tmp_path / "new" / "folder", outputs, names)
    assert [path.name for path in paths] == ["a_b_0_0.npy", "a.b.npy", "output_2.npy", "a_b_0_3.npy", "output_4.npy"]
    for path, output in zip(paths, outputs, strict=True):
        np.testing.assert_array_equal(np.load(path), output)


def test_unwritable_folder_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CommandError, match="cannot write to"):
        results.save_outputs(tmp_path / "file", [np.zeros(1)], ["x"])
