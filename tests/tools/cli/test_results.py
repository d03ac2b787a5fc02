"""Outputs as tables and files."""

from pathlib import Path

import numpy as np
import pytest

from nnhal.tflite.model_metadata import ModelMetadata, TensorMetadata
from nnhal.types import AnyArray, Model, Operand, OperandType, Subgraph
from nnhal_tools.cli import results
from nnhal_tools.cli.errors import CommandError
from nnhal_tools.output_kinds.finding import Finding
from tests.tools.cli.command import rendered


@pytest.mark.parametrize(
    ("dimensions", "classes"),
    [
        ([(1, 7)], 7),
        ([(1, 7), (3,)], 7),
        ([(1, 5, 5, 7)], 7),
        ([(1, 7), (1, 7, 4), (1,), (1, 7)], 0),
        ([(1, 1)], 0),
        ([(2, 7)], 0),
        ([(1, 0)], 0),
        ([], 0),
    ],
)
def test_classes_are_counted_only_in_values_of_classes(dimensions: list[tuple[int, ...]], classes: int) -> None:
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
    with pytest.raises(CommandError, match="cannot write"):
        results.save_outputs(tmp_path / "file", [np.zeros(1)], ["x"])


def test_outputs_are_saved_in_an_archive_under_any_names(tmp_path: Path) -> None:
    outputs: list[AnyArray] = [np.arange(3, dtype=np.int8), np.ones((2, 2), np.float32), np.zeros(1)]
    (path,) = results.save_outputs(tmp_path / "all.npz", outputs, ["file", "a/b:0", "file"])
    with np.load(path) as archive:
        assert set(archive) == {"file_0", "a/b:0", "file_2"}
        np.testing.assert_array_equal(archive["file_0"], outputs[0])
        assert archive["a/b:0"].dtype == np.float32


def test_only_one_output_fits_in_a_npy_file(tmp_path: Path) -> None:
    results.require_output_path(tmp_path / "one.npy", 1)
    results.save_outputs(tmp_path / "one.npy", [np.arange(3)], ["x"])
    np.testing.assert_array_equal(np.load(tmp_path / "one.npy"), [0, 1, 2])
    with pytest.raises(CommandError, match=r"cannot save 2 outputs in .*two\.npy; give a \.npz archive or a folder"):
        results.require_output_path(tmp_path / "two.npy", 2)
    with pytest.raises(CommandError, match="no folder"):
        results.require_output_path(tmp_path / "none" / "all.npz", 2)


def test_metadata_of_another_number_of_outputs_is_ignored() -> None:
    operand = Operand(OperandType.TENSOR_FLOAT32, (1, 2))
    labelled = TensorMetadata(axis_labels=("a", "b"))

    def find(*metadata: TensorMetadata) -> Finding | None:
        return results.interpret(
            [np.array([[0.9, 0.1]])], [operand], ["x"], ModelMetadata(outputs=metadata), [(1, 3)], []
        )

    fitting, ignored = find(labelled), find(labelled, labelled)
    assert fitting and ignored
    assert (fitting.as_json()["classes"][0].get("label"), ignored.as_json()["classes"][0].get("label")) == ("a", None)


def test_labels_without_classes_are_rejected() -> None:
    operand = Operand(OperandType.TENSOR_FLOAT32, (1, 1, 17, 3))
    with pytest.raises(CommandError, match="--labels needs outputs with classes; the outputs are of no known kind"):
        results.interpret([np.zeros((1, 1, 17, 3))], [operand], ["x"], ModelMetadata(), [], ["a"])
