"""Vectors of records: random models keep their meaning, and records are chosen for what they cover."""

from pathlib import Path
from random import Random

import numpy as np
import pytest

from nnhal import wire
from nnhal.errors import HalError
from nnhal.recording.archive import Archive
from nnhal.types import Model
from nnhal_tools.conformance.reduce import write_case
from nnhal_tools.conformance.vectors.case import read_cases
from nnhal_tools.replay.vectors import NoVectorError, case_of, choose_records, recorded_case
from tests.driver.control_flow_models import adds_one, choose, doubles, f
from tests.driver.one_operation import execute, prepare
from tests.end_to_end.support.models import chain
from tests.end_to_end.support.random_models import random_sample
from tests.nnhal.recording.archives import write_archive


def assert_same(model: Model, inputs: list[np.ndarray], folder: Path) -> None:
    outputs = execute(prepare(model), inputs)[1]
    write_case(folder / "case.jsonl.gz", case_of("case", model, inputs, outputs))
    (case,) = read_cases(folder)
    copy = wire.to_model(case.model())
    for actual, expected, output in zip(execute(prepare(copy), inputs)[1], outputs, case.outputs, strict=True):
        np.testing.assert_array_equal(actual, expected)
        np.testing.assert_array_equal(output.array, expected)
    for value, given in zip(case.inputs, inputs, strict=True):
        np.testing.assert_array_equal(value, given)


def test_random_models(tmp_path: Path) -> None:
    random, compared = Random(11), 0
    while compared < 40:
        sample = random_sample(random)
        try:
            execute(prepare(sample.model), sample.inputs)
        except (HalError, AssertionError):
            continue
        assert_same(sample.model, list(sample.inputs), tmp_path)
        compared += 1


def test_control_flow(tmp_path: Path) -> None:
    assert_same(choose(adds_one(), doubles()), [np.array([False]), f(5)], tmp_path)


def test_extensions_are_refused() -> None:
    with pytest.raises(NoVectorError, match="vectors have no extensions"):
        case_of("case", choose(adds_one(), adds_one(type_=0x10001)), [], [])


def test_records_are_chosen_for_what_they_cover(tmp_path: Path) -> None:
    values = [f(1, 2), f(1, 2), f(2, 1), f(-1, 2), f(1e6, 2), f(1e-6, 2), f(np.nan, 2), f(1, 2), f(0, 0)]
    path = write_archive(tmp_path / "a.tar", chain(1), [([x], [2 * x]) for x in values])
    chosen = [record.name for record, _ in choose_records(Archive(path))]
    assert chosen == ["a/1", "a/4", "a/5", "a/6", "a/7", "a/9"]
    record, model = next(choose_records(Archive(path)))
    case = recorded_case(record, model)
    assert case.spec == f"recorded/{case.name}" and not case.is_built_in and case.outputs[0].atol == 1e-5
