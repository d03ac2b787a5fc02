"""Execution of a model on many files: batches, parts of files, and files that fail."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from nnhal.errors import DeadObjectError, HalError, invalid_argument
from nnhal.types import AnyArray, ErrorStatus
from nnhal_tools.batch.execution import run_files


class UnreadableError(Exception):
    pass


PARTS = {"a": [1], "b": [2, 4, 6], "bad": [], "c": [5], "d": [7]}
PATHS = [Path(name) for name in PARTS]


def read(path: Path) -> list[list[AnyArray]]:
    if path.name == "bad":
        raise UnreadableError("cannot read bad")
    return [[np.full((1, 2), value, np.float32)] for value in PARTS[path.name]]


@pytest.mark.parametrize("batch", [1, 2, 3, 10])
def test_each_file_gets_its_own_outputs(batch: int) -> None:
    shapes = []

    def execute(inputs: Sequence[AnyArray]) -> list[AnyArray]:
        shapes.append(inputs[0].shape)
        return [inputs[0] * 10, inputs[0][:, :1].astype(np.int32)]

    results = dict(run_files(PATHS, read, execute, batch, UnreadableError))
    assert list(results) == PATHS
    assert set(shapes) == {(batch, 2)} and len(shapes) >= 6 // batch
    assert isinstance(error := results.pop(Path("bad")), UnreadableError) and str(error) == "cannot read bad"
    for path, outputs in results.items():
        assert not isinstance(outputs, Exception)
        mean = np.mean(PARTS[path.name])
        assert outputs[0].tolist() == [[mean * 10] * 2] and outputs[1].tolist() == [[mean]]
        assert [output.dtype for output in outputs] == [np.float32, np.int32]


def test_failed_execution_ends_only_its_files() -> None:
    def execute(inputs: Sequence[AnyArray]) -> list[AnyArray]:
        if 5 in inputs[0]:
            raise invalid_argument("no fives")
        return [inputs[0]]

    results = dict(run_files(PATHS, read, execute, 1, UnreadableError))
    assert [path.name for path, outputs in results.items() if isinstance(outputs, Exception)] == ["bad", "c"]
    assert isinstance(results[Path("c")], HalError)


def test_dead_service_ends_the_run() -> None:
    def execute(inputs: Sequence[AnyArray]) -> list[AnyArray]:
        raise DeadObjectError(ErrorStatus.DEVICE_UNAVAILABLE, "gone")

    with pytest.raises(DeadObjectError):
        list(run_files(PATHS, read, execute, 1, UnreadableError))
